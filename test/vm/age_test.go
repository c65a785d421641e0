//go:build linux && amd64

package vm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/guest"
)

const (
	// most is the default number of machines, which can be changed with KUBENERGY_VMS.
	most     = 16
	watching = 30 * time.Second
	young    = time.Second // maximum age of 99 % of the readings
)

// TestAge starts guests one after another, each with a minimal kernel that only reads its counter over virtiofs,
// and measures the age of the readings. The age is the time from the write of the counter on the host until the
// host is notified of the reading.
func TestAge(t *testing.T) {
	d := guest.MakeDisk(t, guest.Require(t, "e2e-vm"))
	n := most
	if text := os.Getenv("KUBENERGY_VMS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			t.Fatalf("KUBENERGY_VMS is %q, want a positive number of machines", text)
		}
	}
	machine := kit.WatchMachine(t)
	dir := kit.Dir(t, "kubenergy-age")
	h, initrd := startHost(t, dir), writeInitrd(t, d, dir)
	table := &report.Table{Columns: []report.Column{
		{Name: "Machines", Field: "machines"},
		{Name: "Readings", Field: "readings"},
		{Name: "p50\n(s)", Field: "p50Seconds", Show: humanize.Significant},
		{Name: "p99\n(s)", Field: "p99Seconds", Show: humanize.Significant},
		{Name: "Oldest\n(s)", Field: "oldestSeconds", Show: humanize.Significant},
	}}
	var lines [3]plotter.XYs
	var listeners []*listener
	for _, count := range counts(n) {
		for len(listeners) < count {
			listeners = append(listeners, startSmall(t, h, d, dir, initrd, fmt.Sprint("vm-", len(listeners)+1)))
		}
		ages := watch(listeners)
		row := []any{count, len(ages)}
		for i, q := range []float64{0.5, 0.99, 1} {
			age := report.Quantile(ages, q)
			row, lines[i] = append(row, age), append(lines[i], plotter.XY{X: float64(count), Y: age})
		}
		table.Add(row...)
		if p99 := lines[1][len(lines[1])-1].Y; p99 > young.Seconds() {
			machine.TooSlow("99th percentile of the age of readings with %d machines is %.2f s", count, p99)
		}
	}
	write(t, "age.csv", table)
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min, p.X.Min = "Virtual machines", "Age of a reading (s)", 0, 0
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(report.NumberTicks), plot.TickerFunc(report.NumberTicks)
	if err := plotutil.AddLinePoints(p, "median", lines[0], "99th percentile", lines[1], "maximum",
		lines[2]); err != nil {
		t.Fatal(err)
	}
	p.Legend.Top, p.Y.Max = true, 1.3*p.Y.Max
	for _, name := range []string{"age.svg", "age.png"} {
		if err := p.Save(6*vg.Inch, 3.5*vg.Inch, filepath.Join(out(t), name)); err != nil {
			t.Fatal(err)
		}
	}
}

// counts returns increasing numbers of machines up to most.
func counts(most int) (all []int) {
	for n := 1; n < most; n += max(1, n/2) {
		all = append(all, n)
	}
	return append(all, most)
}

// startSmall starts a minimal guest and waits until it has read its counter.
func startSmall(t *testing.T, h *host, d guest.Disk, dir, initrd, name string) *listener {
	t.Helper()
	own := filepath.Join(dir, name)
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	_, args := h.share(t, own, name, "128M")
	m := guest.Bare(t, d, own, name, append(args, "-m", "128M", "-nic", "none", "-initrd", initrd,
		"-append", "console=ttyS0 quiet panic=-1")...)
	l := h.add(t, m)
	kit.Eventually(t, m.Patience()*30*time.Second, name+" has read its counter", func() bool {
		return len(l.reported()) > 0
	}, m.On(), h.agent)
	return l
}

// watch returns the ages of the readings of all guests in seconds.
func watch(listeners []*listener) (ages []float64) {
	for _, l := range listeners {
		l.forget()
	}
	time.Sleep(watching)
	for _, l := range listeners {
		for _, age := range l.reported() {
			ages = append(ages, age.Seconds())
		}
	}
	return ages
}

// writeInitrd writes the initrd of a minimal guest, which contains the probe and the required kernel modules.
func writeInitrd(t *testing.T, d guest.Disk, dir string) (path string) {
	t.Helper()
	var archive bytes.Buffer
	add := func(name string, mode int, content []byte) {
		pad := func() { archive.Write(make([]byte, -archive.Len()&3)) }
		fmt.Fprintf(&archive, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00", 0, mode, 0, 0, 1, 0,
			len(content), 0, 0, 0, 0, len(name)+1, 0, name)
		pad()
		archive.Write(content)
		pad()
	}
	const folder, program = 0o040755, 0o100755
	files := map[string]string{"init": kit.Build(t, "./test/vm/testdata/probe")}
	modules, err := filepath.Glob(filepath.Join(d.Modules, "*.ko"))
	if err != nil || len(modules) == 0 {
		t.Fatal("disk of the guest contains no kernel modules", err)
	}
	add("dev", folder, nil)
	add("modules", folder, nil)
	for _, m := range modules {
		files["modules/"+filepath.Base(m)] = m
	}
	for name, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		add(name, program, content)
	}
	add("TRAILER!!!", 0, nil)
	return kit.Write(t, filepath.Join(dir, "initrd"), archive.Bytes())
}

// out returns the directory for tables and plots.
func out(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(kit.Root, "out", "vm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// write writes a table as CSV and logs it.
func write(t *testing.T, name string, table *report.Table) {
	t.Helper()
	var csv bytes.Buffer
	if err := table.CSV(&csv); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out(t), name), csv.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", name, table.Framed(true, false))
}
