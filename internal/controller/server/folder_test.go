package server

import (
	"cmp"
	"context"
	"encoding/csv"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

func newFolder(o FolderOptions) (*Folder, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, discard)
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	return NewFolder(o)
}

func aBooking(at time.Time) *ledger.Booking {
	b := &batch.Batch{
		Version: 1, Stream: batch.Stream{Node: "worker1", Boot: "b", Epoch: "e"}, First: 1, Last: 1,
		EndSinceBoot: 15 * time.Second, Source: "=cmd()", Quality: energy.Measured,
		IdlePolicy: "apart", Measured: 1000, Idle: 100, Platform: 20, Unknown: 30,
		Shares: []energy.Share{
			{ID: "pod/u/c1", Dynamic: 500},
			{ID: "pod/u/c2", Dynamic: 200, Idle: 50, CPU: time.Second},
			{ID: "system", Dynamic: 100},
		},
	}
	b.SetWall(at)
	return &ledger.Booking{
		Batch: b, Received: at, Rates: ledger.Rates{PUE: 1.2, Carbon: 300, Price: math.NaN()},
		Consumers: []*ledger.Consumer{
			{Key: "pod/u", Pod: "+web", Account: ledger.Account{Kind: ledger.Workload, Namespace: "shop"}},
			{Key: "pod/u", Pod: "+web", Account: ledger.Account{Kind: ledger.Workload, Namespace: "shop"}},
			{Key: "system", Account: ledger.Account{Kind: ledger.System}},
		},
	}
}

func aRecord(at time.Time) ledger.Record {
	return ledger.Record{
		ID: "i", At: at, Action: "place", Namespace: "shop", Owner: "job", Node: "worker1", Strategy: "carbon+window",
		Intensity: 212.5,
	}
}

// fill calls with and then runs the folder until all queued rows have been written.
func fill(t *testing.T, o FolderOptions, with func(*Folder)) *Folder {
	t.Helper()
	f, err := newFolder(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	with(f)
	if err := f.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return f
}

func tables(t *testing.T, dir, pattern string) map[string][][]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][][]string{}
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(file).ReadAll()
		file.Close()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		all[filepath.Base(name)] = rows
	}
	return all
}

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	o := FolderOptions{Dir: dir, Now: func() time.Time { return noon }}
	fill(t, o, func(f *Folder) {
		f.Booked(aBooking(noon), ledger.Receipt{})
		hold := aRecord(noon)
		hold.Action = "hold"
		f.Recorded([]ledger.Record{aRecord(noon), hold})
	})
	metrics := tables(t, dir, "metrics_*.csv")
	rows := metrics["metrics_20261103T120000Z.csv"]
	if len(metrics) != 1 || len(rows) != 4 || !slices.Equal(rows[0], metricsHead) {
		t.Fatalf("%v", metrics)
	}
	value := func(row int, column string) string { return rows[row][slices.Index(metricsHead, column)] }
	for _, c := range []struct {
		row          int
		column, want string
	}{
		{1, "Kind", "node"},
		{1, "Node", "worker1"},
		{1, "Energy_uJ", "1000"},
		{1, "Idle_uJ", "100"},
		{1, "Platform_uJ", "20"},
		{1, "Unknown_uJ", "30"},
		{1, "Source", "'=cmd()"},
		{1, "Price_perKWh", ""},
		{1, "CarbonIntensity_gPerKWh", "300"},
		{2, "Kind", "workload"},
		{2, "Pod", "'+web"},
		{2, "Consumer", "pod/u"},
		{2, "Energy_uJ", "750"},
		{2, "Idle_uJ", "50"},
		{2, "CPU_ns", "1000000000"},
		{2, "Namespace", "shop"},
		{3, "Kind", "system"},
		{3, "Energy_uJ", "100"},
		{3, "Agentless", "false"},
	} {
		if got := value(c.row, c.column); got != c.want {
			t.Errorf("row %d: %s is %q, want %q", c.row, c.column, got, c.want)
		}
	}
	log := tables(t, dir, "schedule_log.csv")["schedule_log.csv"]
	if len(log) != 2 || !slices.Equal(log[0], scheduleHead) ||
		!slices.Equal(log[1], []string{"shop/job", "worker1", "carbon+window", "212.5", "2026-11-03T12:00:00Z"}) {
		t.Errorf("%v", log)
	}

	// After a restart, the log is continued even after an incomplete row, and a new metrics file is started.
	if err := os.WriteFile(filepath.Join(dir, "schedule_log.csv"), []byte(strings.Join(scheduleHead, ",")+"\nshop/to"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "schedule_log.csv"), noon, noon); err != nil {
		t.Fatal(err)
	}
	fill(t, o, func(f *Folder) {
		f.Booked(aBooking(noon), ledger.Receipt{})
		f.Recorded([]ledger.Record{aRecord(noon)})
	})
	if got := len(tables(t, dir, "metrics_*.csv")); got != 2 {
		t.Errorf("unexpected number of metrics files: %d", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "schedule_log.csv"))
	if err != nil || !strings.Contains(string(text), "\nshop/to\nshop/job,worker1,") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestFolderIsBounded writes for several days and verifies the number and size of files.
func TestFolderIsBounded(t *testing.T) {
	dir := t.TempDir()
	now := noon
	for _, foreign := range []string{"metrics_mine.csv", "metrics_20200101T000000Z.txt", "notes"} {
		if err := os.WriteFile(filepath.Join(dir, foreign), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := filepath.Join(dir, "metrics_20200101T000000Z.csv")
	if err := os.WriteFile(old, []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := newFolder(FolderOptions{Dir: dir, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	f.maxBytes, f.maxFiles = 2000, 5
	for i := range 300 {
		f.write(rows{&f.metrics, func() [][]string { return metricsRows(aBooking(now)) }, 1})
		f.write(rows{&f.log, func() [][]string { return scheduleRows([]ledger.Record{aRecord(now)}) }, 1})
		if f.log.file != nil { // the file system does not use the fake clock
			if err := os.Chtimes(filepath.Join(dir, "schedule_log.csv"), now, now); err != nil {
				t.Fatal(err)
			}
		}
		if i%20 == 0 {
			now = now.Add(25 * time.Hour)
		}
	}
	f.metrics.close()
	f.log.close()
	if got := len(tables(t, dir, "metrics_2*.csv")); got != 5 {
		t.Errorf("unexpected number of metrics files: %d", got)
	}
	logs := tables(t, dir, "schedule_log*.csv")
	if len(logs) != 5 && len(logs) != 6 || logs["schedule_log.csv"] == nil {
		t.Errorf("%d logs", len(logs))
	}
	for name, rows := range logs {
		if len(rows) < 2 || !slices.Equal(rows[0], scheduleHead) {
			t.Errorf("%s: %v", name, rows)
		}
	}
	for _, foreign := range []string{"metrics_mine.csv", "metrics_20200101T000000Z.txt", "notes"} {
		if _, err := os.Stat(filepath.Join(dir, foreign)); err != nil {
			t.Errorf("unrelated file %s was deleted: %v", foreign, err)
		}
	}
	for _, entry := range must(os.ReadDir(dir)) {
		if info := must(entry.Info()); info.Size() > 4000 {
			t.Errorf("%s has %d bytes", entry.Name(), info.Size())
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestFolderNeverBlocks fills the queue without a writer.
func TestFolderNeverBlocks(t *testing.T) {
	registry := prometheus.NewRegistry()
	var log strings.Builder
	f, err := newFolder(FolderOptions{
		Dir: t.TempDir(), Registerer: registry, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.queue = make(chan rows, 10)
	for range 1000 {
		f.Booked(aBooking(noon), ledger.Receipt{})
	}
	if got := testutil.ToFloat64(f.lost.WithLabelValues(lostQueue)); got != 990 {
		t.Errorf("got %v lost rows", got)
	}
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("log: %s", &log)
	}
}

// TestFolderFails removes the directory and restores it.
func TestFolderFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	now := noon
	var log strings.Builder
	f, err := newFolder(FolderOptions{
		Dir: dir, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	write := func() {
		f.write(rows{&f.log, func() [][]string { return scheduleRows([]ledger.Record{aRecord(now)}) }, 1})
	}
	for range 50 {
		write()
		now = now.Add(time.Second)
	}
	if got := testutil.ToFloat64(f.lost.WithLabelValues(lostWrite)); got != 50 {
		t.Errorf("got %v lost rows", got)
	}
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("log: %s", &log)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	write()
	f.log.close()
	if got := tables(t, dir, "schedule_log.csv")["schedule_log.csv"]; len(got) != 2 {
		t.Errorf("%v", got)
	}
	if _, err := newFolder(FolderOptions{Dir: filepath.Join(dir, "schedule_log.csv", "x")}); err == nil {
		t.Error("newFolder() below a file succeeded, want an error")
	}
}

// TestFolderFull writes to a device that is always full.
func TestFolderFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("/dev/full is not available")
	}
	f, err := newFolder(FolderOptions{Dir: t.TempDir(), Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	f.write(rows{&f.metrics, func() [][]string { return metricsRows(aBooking(noon)) }, 1})
	file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.metrics.file.Close()
	f.metrics.file = file
	for range 100 {
		f.write(rows{&f.metrics, func() [][]string { return metricsRows(aBooking(noon)) }, 1})
	}
	if got := testutil.ToFloat64(f.lost.WithLabelValues(lostWrite)); got == 0 {
		t.Error("no lost rows were counted")
	}
}

func TestNumber(t *testing.T) {
	if got := number(math.Inf(1)); got != "" {
		t.Errorf("number(+Inf) = %q, want \"\"", got)
	}
}
