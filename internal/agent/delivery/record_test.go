package delivery

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func someBatch() *batch.Batch {
	end := time.Date(2026, 11, 3, 10, 15, 30, 123456789, time.UTC)
	return &batch.Batch{
		Version: batch.Version, Stream: batch.Stream{Node: "node1", Boot: "boot-0", Epoch: "epoch"}, First: 7, Last: 9,
		Parent: &batch.Parent{Host: "rack1", VM: "worker"}, Start: end.Add(-15 * time.Second), End: end,
		StartSinceBoot: 100 * time.Second, EndSinceBoot: 115 * time.Second, Unmeasured: time.Second,
		Source: "guest (files)", Quality: energy.Derived, IdlePolicy: "equal", Measured: 1000, Idle: 100, Platform: 50,
		Unknown: 1,
		Shares: []energy.Share{
			{ID: "pod/a/1", Dynamic: 500, Idle: 300, GPU: 450, CPU: 12 * time.Second, Ended: true},
			{ID: energy.System, Dynamic: 49, CPU: time.Second},
		},
	}
}

func someRecord() *record {
	return &record{
		seq: 300, generation: 2, end: 115 * time.Second, batch: someBatch(), state: []byte("what the agent knows"),
	}
}

func TestRecord(t *testing.T) {
	open := &record{
		seq: 1, generation: 1, empty: true, broken: true,
		batch: &batch.Batch{Version: 1, Stream: batch.Stream{Epoch: "e"}, First: 1, Last: 1},
	}
	for name, r := range map[string]*record{"sealed": someRecord(), "empty": open} {
		data := r.append(nil, slotMagic)
		got, err := decodeRecord(data, slotMagic, true)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "empty" {
			got.batch.Start, got.batch.End, got.batch.Shares = time.Time{}, time.Time{}, nil
		}
		if diff := cmp.Diff(r, got, cmp.AllowUnexported(record{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if _, err := decodeRecord(append(slices.Clone(data), "left from before"...), slotMagic, false); err != nil {
			t.Errorf("%s: slot with trailing data: %v", name, err)
		}
		for i := range data {
			damaged := slices.Clone(data)
			damaged[i] ^= 0x10
			if _, err := decodeRecord(damaged, slotMagic, false); err == nil {
				t.Errorf("%s: flipped bit in byte %d was not detected", name, i)
			}
			if _, err := decodeRecord(data[:i], slotMagic, false); err == nil {
				t.Errorf("%s: decoded a record truncated to %d of %d bytes", name, i, len(data))
			}
		}
		if _, err := decodeRecord(data, batchMagic, true); err == nil {
			t.Errorf("%s: decoded a slot as a batch", name)
		}
	}
}

// withChecksum adds a valid header to a payload, because a fuzzer cannot guess checksums.
func withChecksum(payload []byte) []byte {
	data := append([]byte(slotMagic), make([]byte, headerSize-len(slotMagic))...)
	data = append(data, payload...)
	binary.LittleEndian.PutUint32(data[12:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(data[8:], crc32.Checksum(data[12:], castagnoli))
	return data
}

func FuzzRecord(f *testing.F) {
	for _, r := range []*record{someRecord(), {
		seq: 1, empty: true, batch: &batch.Batch{Version: 1, Stream: batch.Stream{Epoch: "e"}, First: 1, Last: 1},
	}} {
		f.Add(r.append(nil, slotMagic)[headerSize:], true)
		f.Add(r.append(nil, slotMagic), false)
	}
	f.Add([]byte{0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f}, true)
	f.Fuzz(func(t *testing.T, data []byte, sealed bool) {
		defer memtest.Limit(t, 100*len(data))()
		if sealed {
			data = withChecksum(data)
		}
		r, err := decodeRecord(data, slotMagic, false)
		if err != nil {
			return
		}
		again, err := decodeRecord(r.append(nil, slotMagic), slotMagic, true)
		if err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		if diff := cmp.Diff(r, again, cmp.AllowUnexported(record{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzStateDir opens a queue on a directory with arbitrary contents.
func FuzzStateDir(f *testing.F) {
	f.Add(someRecord().append(nil, slotMagic), someRecord().append(nil, batchMagic), "batch-2-7-9")
	f.Add([]byte("x"), []byte{}, "batch-1-1-18446744073709551615")
	f.Fuzz(func(t *testing.T, slot, file []byte, name string) {
		defer memtest.Limit(t, 100*(len(slot)+len(file)+len(name)))()
		if strings.ContainsAny(name, "/\x00") || len(name) > 100 || strings.HasPrefix(name, ".") || name == "" ||
			name == "lock" {
			return
		}
		dir, err := os.MkdirTemp(memory, "kubenergy-fuzz")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "slot-1"), slot, 0o600),
			os.WriteFile(filepath.Join(dir, name), file, 0o600)); err != nil {
			t.Fatal(err)
		}
		q, err := OpenQueue(QueueOptions{Dir: dir, Node: "node1", Boot: "boot-0"}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		a := &energy.Attribution{Start: q.end, End: q.end, Quality: energy.Measured}
		if err := q.Add(a, Meta{Wall: time.Unix(1e9, 0), Source: "s", IdlePolicy: "apart"}); err != nil && q.end >= 0 {
			t.Fatal(err)
		}
		if err := q.Save(nil); err != nil {
			t.Fatal(err)
		}
		q.Seal()
		for b := q.next(nil); b != nil; b = q.next(nil) {
			if err := b.Validate(); err != nil {
				t.Fatal(err)
			}
			if err := q.acked(b, b.Last); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestOnlyOneAgent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	opts := QueueOptions{Dir: dir, Node: "node1", Boot: "boot"}
	q, err := OpenQueue(opts, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenQueue(opts, quiet); !errors.Is(err, errLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("opening by a second agent: %v", err)
	}
	q.Close()
	q, err = OpenQueue(opts, quiet)
	if err != nil {
		t.Fatal(err)
	}
	q.Close()
}

// TestDamage verifies that if a file is damaged, only the energy stored in that file is lost.
func TestDamage(t *testing.T) {
	n := &node{dir: t.TempDir(), now: time.Second, trouble: disktrouble{kill: -1}}
	n.start(t.Fatal, false)
	for i := range 4 {
		n.now += time.Second
		n.used[i] += 1000
		n.add(t.Fatal, noParent)
		n.queue.Save(n.state())
		n.queue.Seal()
	}
	n.abandon()
	damaged := filepath.Join(n.dir, "batch-1-2-2")
	data, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	data[40] ^= 1
	if err := os.WriteFile(damaged, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "batch-1-9-9"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	q, err := OpenQueue(QueueOptions{Dir: n.dir, Node: "node1", Boot: "boot-0"},
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	n.queue = q
	defer n.abandon()
	if strings.Count(log.String(), "level=ERROR") != 2 {
		t.Error(log.String())
	}
	for n.send(t.Fatal, false, false) {
	}
	total := n.sink.Totals()
	if total.Measured != 3000 || total.Gaps != 1 || q.State() == nil {
		t.Errorf("%+v", total)
	}
	if _, err := os.Stat(filepath.Join(n.dir, "damaged-batch-1-2-2")); err != nil {
		t.Error(err)
	}
}

// TestPowerFailure verifies that batches that were already acknowledged and reappear after a power failure are not
// recorded twice.
func TestPowerFailure(t *testing.T) {
	n := &node{dir: t.TempDir(), now: time.Second, trouble: disktrouble{kill: -1}}
	n.opts.MaxBatches = 4
	n.start(t.Fatal, false)
	tick := func() {
		n.now += time.Second
		n.used[0] += 1000
		n.add(t.Fatal, noParent)
		n.queue.Save(n.state())
	}
	for range 4 {
		tick()
		n.queue.Seal()
	}
	tick()
	old := t.TempDir()
	if err := os.CopyFS(filepath.Join(old, "state"), os.DirFS(n.dir)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !n.send(t.Fatal, false, false) {
			t.Fatal("batch was not sent")
		}
	}
	n.abandon()
	n.dir, n.boot, n.now = filepath.Join(old, "state"), 1, time.Second
	n.open(t.Fatal)
	defer func() { n.abandon() }()
	n.lost = amounts{} // the state directory was complete
	for range 8 {
		tick()
		n.queue.Seal()
	}
	for n.send(t.Fatal, false, false) {
	}
	if n.booked() != n.used || n.sink.Breaches() != nil {
		t.Errorf("recorded %v, want %v: %v", n.booked(), n.used, n.sink.Breaches())
	}
}

func TestAddRefuses(t *testing.T) {
	q, err := OpenQueue(QueueOptions{Node: "node1", Boot: "boot"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	m := Meta{Wall: time.Unix(1e9, 0), Source: "s", IdlePolicy: "apart"}
	good := func() *energy.Attribution {
		return &energy.Attribution{Start: 10, End: 20, Measured: 5, Shares: []energy.Share{
			{ID: "pod/a/1", Dynamic: 2}, {ID: "pod/b/1", Dynamic: 3},
		}}
	}
	for name, change := range map[string]func(*energy.Attribution){
		"time falls":   func(a *energy.Attribution) { a.End = 9 },
		"energy lost":  func(a *energy.Attribution) { a.Measured = 6 },
		"negative":     func(a *energy.Attribution) { a.Shares[0].Dynamic, a.Shares[1].Dynamic = -1, 6 },
		"negative CPU": func(a *energy.Attribution) { a.Shares[0].CPU = -1 },
		"not sorted":   func(a *energy.Attribution) { slices.Reverse(a.Shares) },
		"in no time":   func(a *energy.Attribution) { a.End = 10 },
	} {
		a := good()
		change(a)
		if err := q.Add(a, m); err == nil {
			t.Errorf("%s: Add() succeeded, want an error", name)
		}
	}
	if got := q.Stats().Refused; got != 6*5+1 {
		t.Errorf("Refused = %d µJ", got)
	}
	a := good()
	if err := q.Add(a, m); err != nil {
		t.Error(err)
	}
	if err := q.Add(a, m); err == nil {
		t.Error("added the same interval twice")
	}
	if _, err := OpenQueue(QueueOptions{Node: "", Boot: "boot"}, quiet); err == nil {
		t.Error("opened a queue without a node name")
	}
}

// TestWrongMeta verifies that energy is accepted regardless of the wall clock and of invalid metadata.
func TestWrongMeta(t *testing.T) {
	now := time.Unix(1e9, 0)
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	for name, c := range map[string]struct {
		meta  [2]Meta
		warns int
	}{
		"a clock gone wrong": {meta: [2]Meta{{Wall: now}, {Wall: year(2300)}}},
		"a clock set right":  {meta: [2]Meta{{Wall: year(2300)}, {Wall: now}}},
		"no clock":           {meta: [2]Meta{{}, {}}},
		"just after 1900":    {meta: [2]Meta{{Wall: year(1900)}, {Wall: year(1900)}}},
		"far away":           {meta: [2]Meta{{Wall: year(-1e6)}, {Wall: year(1e6)}}},
		"its own host": {meta: [2]Meta{
			{Wall: now, Parent: batch.Parent{Host: "node1", VM: "v"}},
			{Wall: now, Parent: batch.Parent{Host: "node1", VM: "v"}},
		}, warns: 1},
		"no text": {meta: [2]Meta{
			{Wall: now, Parent: batch.Parent{Host: "a\ufffd", VM: "v"}},
			{Wall: now, Parent: batch.Parent{Host: "h", VM: "a\u0085"}},
		}, warns: 2},
		"no source": {meta: [2]Meta{{Wall: now}, {Wall: now}}},
	} {
		var log strings.Builder
		q, err := OpenQueue(QueueOptions{Node: "node1", Boot: "boot"}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range c.meta {
			m.IdlePolicy = "apart"
			at := time.Duration(i+1) * time.Hour
			if err := q.Add(&energy.Attribution{Start: at, End: at + time.Hour, Measured: 1, Unknown: 1},
				m); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		q.Seal()
		sum := energy.Microjoules(0)
		for b := q.next(nil); b != nil; b = q.next(nil) {
			if err := b.Validate(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			sum += b.Measured
			if err := q.acked(b, b.Last); err != nil {
				t.Fatal(err)
			}
		}
		if sum != 2 || strings.Count(log.String(), "WARN") != c.warns {
			t.Errorf("%s: queued %d µJ, log is %q", name, sum, log.String())
		}
	}
}

// TestFormerBatchesAreBounded verifies that the size and the number of batches of previous boots are bounded.
func TestFormerBatchesAreBounded(t *testing.T) {
	for name, limit := range map[string]QueueOptions{"bytes": {MaxBytes: 2000}, "number": {MaxBatches: 3}} {
		n := &node{dir: t.TempDir(), now: time.Second, trouble: disktrouble{kill: -1}}
		n.start(t.Fatal, false)
		for range 30 {
			n.now += time.Second
			n.used[0]++
			n.add(t.Fatal, noParent)
			n.queue.Save(n.state())
			n.queue.Seal()
		}
		n.abandon()
		n.opts = limit
		n.start(t.Fatal, true)
		if s := n.queue.Stats(); n.queue.size > 4*n.queue.opts.MaxBytes || s.Pending > 4*n.queue.opts.MaxBatches ||
			s.Pending < 3 {
			t.Errorf("%s: %+v, %d bytes", name, s, n.queue.size)
		}
		for n.send(t.Fatal, false, false) {
		}
		if n.booked() != n.used {
			t.Errorf("%s: recorded %v of %v", name, n.booked(), n.used)
		}
		n.abandon()
	}
}

// TestAcknowledgedFileStays verifies that a recorded batch is not recorded twice if its file could not be removed,
// even if later batches of its stream have been recorded since.
func TestAcknowledgedFileStays(t *testing.T) {
	n := &node{dir: t.TempDir(), now: time.Second, trouble: disktrouble{kill: -1}}
	n.opts.MaxBatches = 2
	n.start(t.Fatal, false)
	defer func() { n.abandon() }()
	tick := func() {
		n.now += time.Second
		n.used[0] += 10
		n.add(t.Fatal, noParent)
		n.queue.Save(n.state())
	}
	seal := func() {
		tick()
		n.queue.Seal()
	}
	n.queue.disk.fault = func(op string, size int) (int, error) {
		if op == "remove" {
			return 0, syscall.EROFS
		}
		return size, nil
	}
	seal()
	n.send(t.Fatal, false, false)
	seal()
	n.send(t.Fatal, false, true) // recorded, but the response is lost
	n.abandon()
	n.open(t.Fatal)
	for range 3 {
		seal() // must not fold recorded and unrecorded batches
	}
	for n.send(t.Fatal, false, false) {
	}
	tick()
	n.queue.Seal()
	n.send(t.Fatal, false, false)
	if n.booked() != n.used || n.sink.Breaches() != nil {
		t.Errorf("recorded %v, want %v: %v", n.booked(), n.used, n.sink.Breaches())
	}
}

// TestHoleAfterRestart verifies that the next batch covers the time in which no agent was running, even if the
// newest batch file is newer than the slots.
func TestHoleAfterRestart(t *testing.T) {
	n := &node{dir: t.TempDir(), now: time.Second, trouble: disktrouble{kill: -1}}
	n.start(t.Fatal, false)
	n.now += time.Second
	n.used[0]++
	n.add(t.Fatal, noParent)
	n.queue.Save(n.state())
	n.queue.Seal()
	n.abandon()
	n.open(t.Fatal)
	defer func() { n.abandon() }()
	end := n.now
	a := &energy.Attribution{Start: end + 5*time.Second, End: end + 6*time.Second, Measured: 1, Unknown: 1}
	if err := n.queue.Add(a, Meta{Wall: time.Unix(1e9, 0), Source: "s", IdlePolicy: "apart"}); err != nil {
		t.Fatal(err)
	}
	n.queue.Save(nil)
	n.queue.Seal()
	n.send(t.Fatal, false, false)
	b := n.queue.next(nil)
	if b == nil || b.First != 2 || b.StartSinceBoot != end || b.Unmeasured != 5*time.Second {
		t.Errorf("%+v", b)
	}
}

// TestSlotThatCannotBeOpened verifies that a slot that cannot be opened is an error, because the other slot may be
// older and its number may already be acknowledged.
func TestSlotThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("slot-1", filepath.Join(dir, "slot-1")); err != nil { // symlink loop
		t.Fatal(err)
	}
	if _, err := OpenQueue(QueueOptions{Dir: dir, Node: "node1", Boot: "boot-0"},
		slog.New(slog.DiscardHandler)); err == nil {
		t.Error("OpenQueue() succeeded, want an error")
	}
}

func TestSlotsDamaged(t *testing.T) {
	n := &node{dir: t.TempDir(), now: time.Second, trouble: disktrouble{kill: -1}}
	n.start(t.Fatal, false)
	for range 3 {
		n.now += time.Second
		n.used[0]++
		n.add(t.Fatal, noParent)
		n.queue.Save(n.state())
	}
	epoch := n.queue.stream.Epoch
	n.abandon()
	for _, slot := range []string{"slot-0", "slot-1"} {
		if err := os.WriteFile(filepath.Join(n.dir, slot), []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for life, warnings := range []int{1, 0} {
		var log strings.Builder
		q, err := OpenQueue(QueueOptions{Dir: n.dir, Node: "node1", Boot: "boot-0"},
			slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(log.String(), "level=WARN") != warnings || q.stream.Epoch == epoch {
			t.Errorf("process %d: %s", life, log.String())
		}
		if err := q.Save([]byte("state")); err != nil {
			t.Fatal(err)
		}
		epoch = ""
		if life == 1 && string(q.State()) != "state" {
			t.Error("the state saved after the damage is lost")
		}
		q.Close()
	}
	for _, slot := range []string{"damaged-slot-0", "damaged-slot-1"} {
		if data, err := os.ReadFile(filepath.Join(n.dir, slot)); string(data) != "garbage" {
			t.Errorf("%q, %v", data, err)
		}
	}
}

func TestStateDirNotWritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := OpenQueue(QueueOptions{Dir: filepath.Join(file, "state"), Node: "node1", Boot: "boot"}, quiet)
	if err == nil || !strings.Contains(err.Error(), "--state-dir") || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}

// TestNames verifies that consumers beyond the limit are condensed.
func TestNames(t *testing.T) {
	q, err := OpenQueue(QueueOptions{Node: "node1", Boot: "boot", MaxConsumers: 4}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	m := Meta{Wall: time.Unix(1e9, 0), Source: "s", IdlePolicy: "apart"}
	for i, shares := range [][]energy.Share{
		{{ID: batch.Others, Dynamic: 1}, {ID: "pod/a/1", Dynamic: 2}},
		{{ID: "pod/a/2", Dynamic: 4, Ended: true}, {ID: "pod/a/3", Dynamic: 8, Ended: true}, {ID: "vm/x", Dynamic: 16}},
	} {
		a := &energy.Attribution{Start: time.Duration(i), End: time.Duration(i + 1), Shares: shares}
		for _, s := range shares {
			a.Measured += s.Dynamic
		}
		if err := q.Add(a, m); err != nil {
			t.Fatal(err)
		}
	}
	q.Seal()
	want := []energy.Share{
		{ID: batch.Others, Dynamic: 1},
		{ID: "pod/a", Dynamic: 12},
		{ID: "pod/a/1", Dynamic: 2},
		{ID: "vm/x", Dynamic: 16},
	}
	b := q.next(nil)
	if diff := cmp.Diff(want, b.Shares); diff != "" || b.Validate() != nil {
		t.Errorf("%v%s", b.Validate(), diff)
	}
}
