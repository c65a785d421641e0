package delivery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/agent/delivery/sinktest"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

var quiet = slog.New(slog.DiscardHandler)

const consumers = 5

// amounts contains the energy of each consumer, followed by unattributed energy.
type amounts [consumers + 1]energy.Microjoules

func (a amounts) minus(b amounts) amounts {
	for i := range a {
		a[i] -= b[i]
	}
	return a
}

func (a *amounts) add(b amounts) {
	for i := range a {
		a[i] += b[i]
	}
}

func consumer(i int) string { return fmt.Sprintf("pod/uid-%d/%d", i/2, i) }

// node simulates a machine with energy consumers and an agent that is killed repeatedly.
type node struct {
	dir     string
	boot    int
	now     time.Duration
	used    amounts // total over all boots
	opts    QueueOptions
	sink    sinktest.Sink
	queue   *Queue
	base    amounts       // used energy when the stream started
	seen    amounts       // energy read by the agent
	seenAt  time.Duration // time of the last reading
	lost    amounts       // energy that cannot be attributed, because no agent with the previous state was running
	lossy   bool          // the disk failed, so the lost energy is unpredictable
	dead    bool          // not even the mark could be written, so the sink must reject partially recorded batches
	trouble disktrouble
}

// disktrouble injects disk failures.
type disktrouble struct {
	kill  int // number of changes until the agent is killed; -1 for never
	torn  int // number of bytes of the last change that are written
	dead  bool
	full  bool
	ended bool // the agent was killed
}

var errKilled = errors.New("killed")

func (t *disktrouble) fault(op string, n int) (int, error) {
	if t.ended {
		return 0, errKilled
	}
	if t.kill == 0 {
		t.ended = true
		return min(t.torn, n), errKilled
	}
	if t.kill > 0 {
		t.kill--
	}
	switch {
	case t.dead:
		return 0, syscall.EIO
	case t.full && (op == "slot" || op == "batch"):
		return min(n, 40), syscall.ENOSPC
	}
	return n, nil
}

// start starts an agent. If reboot is true, it runs on a new boot.
func (n *node) start(fatal func(...any), reboot bool) {
	n.trouble.kill, n.trouble.ended = -1, false
	if reboot {
		n.open(fatal)
		known := n.seen
		n.abandon()
		n.boot++
		n.now = time.Second
		n.lost.add(n.used.minus(known))
		n.base = n.used
		n.open(fatal)
		if n.queue.State() != nil {
			fatal("got the state of another boot")
		}
		return
	}
	n.open(fatal)
}

func (n *node) open(fatal func(...any)) {
	n.opts.Dir, n.opts.Node, n.opts.Boot = n.dir, "node1", fmt.Sprint("boot-", n.boot)
	var err error
	if n.queue, err = OpenQueue(n.opts, quiet); err != nil {
		fatal(err)
	}
	if n.queue.disk != nil {
		n.queue.disk.fault = n.trouble.fault
	}
	state := n.queue.State()
	if state == nil {
		// The previous stream was never saved.
		n.lost.add(n.used.minus(n.base))
		n.base, n.seen, n.seenAt = n.used, n.used, n.now
		return
	}
	for i := range n.seen {
		n.seen[i] = energy.Microjoules(binary.LittleEndian.Uint64(state[8*i:]))
	}
	n.seenAt = time.Duration(binary.LittleEndian.Uint64(state[8*len(n.seen):]))
}

func (n *node) abandon() { n.queue.Close() }

func (n *node) state() []byte {
	var state []byte
	for _, v := range n.seen {
		state = binary.LittleEndian.AppendUint64(state, uint64(v))
	}
	return binary.LittleEndian.AppendUint64(state, uint64(n.seenAt))
}

// add runs a tick without calling Save.
func (n *node) add(fatal func(...any), parent batch.Parent) {
	a := energy.Attribution{Start: n.seenAt, End: n.now, Quality: energy.Measured}
	for i, e := range n.used.minus(n.seen) {
		a.Measured += e
		switch {
		case i == consumers:
			a.Unknown = e
		case e > 0:
			a.Shares = append(a.Shares, energy.Share{
				ID: consumer(i), Dynamic: e - e/3, Idle: e / 3, CPU: time.Duration(e),
			})
		}
	}
	m := Meta{
		Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(n.now), Source: "package (rapl)", IdlePolicy: "requests",
		Parent: parent,
	}
	if err := n.queue.Add(&a, m); err != nil {
		fatal(err)
	}
	n.seen, n.seenAt = n.used, n.now
}

// send delivers one batch. The request or the response may be lost.
func (n *node) send(fatal func(...any), requestLost, answerLost bool) bool {
	b := n.queue.next(nil)
	if b == nil || n.trouble.ended || requestLost {
		return false
	}
	ack, err := n.sink.Book(b)
	if err != nil {
		if !n.dead {
			fatal("sink rejected the batch: ", err)
		}
		return false
	}
	if answerLost {
		return true
	}
	err = n.queue.acked(b, ack.Acked)
	if err != nil && !n.dead {
		fatal(err)
	}
	return err == nil
}

func (n *node) booked() amounts {
	totals := n.sink.Totals()
	var booked amounts
	for i := range consumers {
		booked[i] = totals.Consumers[consumer(i)]
	}
	booked[consumers] = totals.Unknown
	return booked
}

// TestExactness verifies promise P4: energy is never recorded twice, and while the disk is writable, no energy is
// lost except for energy used while no agent could observe it.
func TestExactness(t *testing.T) {
	t.Run("disk", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { exactness(t, false, false) }) })
	t.Run("full", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { exactness(t, true, false) }) })
	t.Run("dead", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { exactness(t, false, true) }) })
}

func exactness(t *rapid.T, full, dead bool) {
	dir, err := os.MkdirTemp(memory, "kubenergy-exact")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	n := &node{dir: dir, now: time.Second, trouble: disktrouble{kill: -1}}
	n.opts.MaxBatches = rapid.IntRange(1, 6).Draw(t, "limit")
	n.start(t.Fatal, false)
	defer func() { n.abandon() }()
	var parent batch.Parent
	operations := []string{
		"tick", "tick", "tick", "add", "save", "seal", "seal", "send", "send", "kill later", "parent",
	}
	if full || dead {
		operations = append(operations, "fail", "fail", "heal")
	}
	for range rapid.IntRange(1, 80).Draw(t, "operations") {
		switch op := rapid.SampledFrom(operations).Draw(t, "op"); op {
		case "tick", "add":
			n.now += time.Second
			for i := range n.used {
				n.used[i] += energy.Microjoules(rapid.SampledFrom([]int{0, 1, 1000, 123456}).Draw(t, "energy"))
			}
			n.add(t.Fatal, parent)
			if op == "tick" {
				n.queue.Save(n.state())
			}
		case "save":
			n.queue.Save(n.state())
		case "seal":
			n.queue.Seal()
		case "send":
			n.send(t.Fatal, rapid.Bool().Draw(t, "request lost"), rapid.Bool().Draw(t, "answer lost"))
		case "kill later":
			n.trouble.kill, n.trouble.torn = rapid.IntRange(0, 6).Draw(t, "changes"),
				rapid.IntRange(0, 400).Draw(t, "torn")
		case "parent":
			if parent == noParent {
				parent = batch.Parent{Host: "host", VM: "vm"}
			} else {
				parent = noParent
			}
		case "fail":
			n.trouble.full, n.trouble.dead, n.lossy, n.dead = full, dead, true, dead
		case "heal":
			n.trouble.full, n.trouble.dead = false, false
		}
		killed := n.trouble.ended
		if op := n.trouble; op.ended {
			n.abandon()
			n.start(t.Fatal, rapid.IntRange(0, 9).Draw(t, "boots") == 0)
		}
		if !killed {
			switch rapid.IntRange(0, 29).Draw(t, "end of life") {
			case 0:
				n.abandon()
				n.start(t.Fatal, false)
			case 1:
				n.abandon()
				n.start(t.Fatal, true)
			}
		}
	}
	n.settle(t)
}

// settle delivers all batches and compares the totals.
func (n *node) settle(t *rapid.T) {
	n.trouble.full, n.trouble.dead, n.trouble.kill = false, false, -1
	n.now += time.Second
	n.add(t.Fatal, noParent)
	if err := n.queue.Save(n.state()); err != nil {
		t.Fatal(err)
	}
	n.queue.Seal()
	for n.send(t.Fatal, false, false) {
	}
	booked, totals := n.booked(), n.sink.Totals()
	if breaches := n.sink.Breaches(); breaches != nil && !n.dead {
		t.Fatal(breaches)
	}
	if n.lossy {
		for i, e := range booked {
			if e > n.used[i] {
				t.Fatalf("recorded energy of consumer %d = %d µJ, want %d", i, e, n.used[i])
			}
		}
		return
	}
	if want := n.used.minus(n.lost); booked != want {
		t.Fatalf("recorded %v µJ, used %v, unobserved %v", booked, n.used, n.lost)
	}
	if totals.Gaps != 0 {
		t.Fatalf("%d gaps", totals.Gaps)
	}
	if s := n.queue.Stats(); s.Pending != 0 || n.queue.size != 0 || s.DiskErrors != 0 && !n.trouble.ended {
		t.Fatalf("%+v", s)
	}
	n.queue.Save(n.state())
	entries, err := os.ReadDir(n.dir)
	if err != nil {
		t.Fatal(err)
	}
	if names := slices.DeleteFunc(fileNames(entries), func(name string) bool {
		return slices.Contains([]string{"lock", "slot-0", "slot-1", temporaryName}, name)
	}); len(names) > 0 {
		t.Fatalf("files left in the state directory: %v", names)
	}
}

func fileNames(entries []os.DirEntry) []string {
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// memory is a directory on a fast in-memory file system, if available.
var memory = func() string {
	if _, err := os.Stat("/dev/shm"); err == nil {
		return "/dev/shm"
	}
	return os.TempDir()
}()

// TestExactnessInMemory verifies that without a state directory, only unacknowledged energy is lost when the agent
// dies, and no energy is recorded twice.
func TestExactnessInMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := &node{now: time.Second, trouble: disktrouble{kill: -1}, lossy: true}
		n.opts.MaxBatches = rapid.IntRange(1, 6).Draw(t, "limit")
		n.start(t.Fatal, false)
		alive := true
		for range rapid.IntRange(1, 80).Draw(t, "operations") {
			switch rapid.SampledFrom([]string{"tick", "tick", "seal", "send", "send", "lose", "kill"}).Draw(t, "op") {
			case "tick":
				n.now += time.Second
				for i := range n.used {
					n.used[i] += energy.Microjoules(rapid.SampledFrom([]int{0, 1, 1000}).Draw(t, "energy"))
				}
				n.add(t.Fatal, noParent)
				n.queue.Save(n.state())
			case "seal":
				n.queue.Seal()
			case "send":
				n.send(t.Fatal, false, false)
			case "lose":
				n.send(t.Fatal, false, true)
			case "kill":
				alive = false
				n.start(t.Fatal, false)
			}
		}
		n.queue.Seal()
		for n.send(t.Fatal, false, false) {
		}
		if booked := n.booked(); alive && booked != n.used {
			t.Fatalf("recorded %v, want %v", booked, n.used)
		}
		for i, e := range n.booked() {
			if e > n.used[i] {
				t.Fatalf("recorded energy of consumer %d = %d µJ, want %d", i, e, n.used[i])
			}
		}
		if breaches := n.sink.Breaches(); breaches != nil {
			t.Fatal(breaches)
		}
	})
}

// TestSinkDownAnHour verifies that no energy is lost during an hour without a controller, with 240 batches and a
// limit of 32.
func TestSinkDownAnHour(t *testing.T) {
	n := &node{dir: t.TempDir(), now: time.Second, trouble: disktrouble{kill: -1}}
	n.opts.MaxBatches = 32
	n.start(t.Fatal, false)
	defer func() { n.abandon() }()
	for batchNumber := range 240 {
		for second := range 15 {
			n.now += time.Second
			for i := range n.used {
				n.used[i] += energy.Microjoules(1_000_003*(i+1) + 17*batchNumber + second)
			}
			n.add(t.Fatal, noParent)
			if err := n.queue.Save(n.state()); err != nil {
				t.Fatal(err)
			}
		}
		n.queue.Seal()
		n.send(t.Fatal, batchNumber > 0, true) // the first batch is recorded, but its response is lost
	}
	s := n.queue.Stats()
	if s.Pending > 32 || s.Folded < 200 {
		t.Errorf("%+v", s)
	}
	for n.send(t.Fatal, false, false) {
	}
	totals := n.sink.Totals()
	if n.booked() != n.used || n.sink.Breaches() != nil || totals.Duplicates != 1 {
		t.Errorf("recorded %v, want %v, breaches %v", n.booked(), n.used, n.sink.Breaches())
	}
	t.Logf("3,600 s in %d batches, %v", totals.Batches, slices.Collect(maps.Values(totals.Consumers)))
}
