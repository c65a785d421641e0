package delivery_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/agent/delivery"
	"github.com/kubenergy/kubenergy/internal/agent/delivery/killtest"
	"github.com/kubenergy/kubenergy/internal/agent/delivery/sinktest"
	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestKill kills an agent, in which only the meters and the host are simulated, at random times, and compares the
// recorded energy with the counter.
func TestKill(t *testing.T) {
	kills := 40
	if os.Getenv("KUBENERGY_LONG") != "" {
		kills = 200
	}
	for _, mode := range []struct {
		name    string
		fault   func(n int) sinktest.Fault
		batches int
		memory  bool
		method  string
	}{
		{
			name: "the sink is up", fault: func(int) sinktest.Fault { return sinktest.Fault{} }, batches: 64,
			method: "bands",
		},
		{name: "the sink fails at random points", fault: randomFault, batches: 64, method: "bands"},
		{name: "batches are folded", fault: mostlyDown, batches: 3, method: "bands"},
		{name: "attribution", fault: randomFault, batches: 8, method: "attributor"},
		{name: "without a state directory", fault: randomFault, batches: 8, method: "bands", memory: true},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			k := &killed{batches: mode.batches, method: mode.method}
			k.sink.Fault = mode.fault
			if !mode.memory {
				k.dir = t.TempDir()
			}
			k.run(t, kills)
			k.compare(t, kills, mode.memory)
		})
	}
}

// randomFault fails half of the requests, each at a random step.
func randomFault(int) sinktest.Fault {
	return []sinktest.Fault{
		7: {},
		{Status: http.StatusInternalServerError},
		{Status: http.StatusInternalServerError, Booked: true},
		{Cut: true},
		{Cut: true, Booked: true},
		{Delay: 5 * time.Millisecond, Booked: true, Cut: true},
		{Delay: 5 * time.Millisecond},
		{Body: "<html>", Booked: true},
		{Epoch: "other", Booked: true},
	}[rand.N(16)]
}

func mostlyDown(n int) sinktest.Fault {
	if n%20 < 17 {
		return sinktest.Fault{Status: http.StatusBadGateway, Booked: n%2 == 0}
	}
	return sinktest.Fault{}
}

// killed is an agent that is killed repeatedly, and its environment.
type killed struct {
	dir     string
	batches int
	method  string
	sink    sinktest.Sink
	power   *killtest.Powercap
	healed  atomic.Bool
}

func (k *killed) run(t *testing.T, kills int) {
	fault := k.sink.Fault
	k.sink.Fault = func(n int) sinktest.Fault {
		if k.healed.Load() {
			return sinktest.Fault{}
		}
		return fault(n)
	}
	server := httptest.NewServer(&k.sink)
	defer server.Close()
	var err error
	if k.power, err = killtest.NewPowercap(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	defer k.power.Close()
	killer := &killtest.Killer{Longest: 100 * time.Millisecond, Command: func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "KUBENERGY_KILLED="+strings.Join([]string{
			k.dir, k.power.Energy(), server.URL, strconv.Itoa(k.batches), k.method,
		}, ","))
		return cmd
	}}
	defer killer.Close()
	// The counter does not advance until the agent has read it for the first time.
	if err := killer.Start(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	k.await(t, "the agent has saved its state", func() bool { return k.dir == "" || k.saved() })
	// Run the agent longer on a slow machine, so that it is not always killed before it has started.
	killer.Longest = min(max(killer.Longest, 3*time.Since(began)), 400*time.Millisecond)
	k.power.Start(0.5)
	if err := killer.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := killer.Lives(kills - 1); err != nil {
		t.Fatal(err)
	}
	k.healed.Store(true)
	before := k.sink.Totals().Batches
	if err := killer.Start(); err != nil {
		t.Fatal(err)
	}
	// One batch may be from a pending request of the previous agent.
	k.await(t, "the last agent has delivered a batch", func() bool { return k.sink.Totals().Batches > before+1 })
	if err := k.power.Close(); err != nil {
		t.Fatal(err)
	}
	k.await(t, "all energy is recorded", func() bool {
		return k.dir == "" || uint64(k.sink.Totals().Measured) >= k.power.Used()
	})
	if output, err := killer.End(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

// saved reports whether the agent has saved its state twice, so that the state contains the first reading.
func (k *killed) saved() bool {
	for _, slot := range []string{"slot-0", "slot-1"} {
		if info, err := os.Stat(filepath.Join(k.dir, slot)); err != nil || info.Size() < 60 {
			return false
		}
	}
	return true
}

func (k *killed) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	kit.Await(t, time.Minute, what, func(context.Context) (bool, error) {
		return done(), fmt.Errorf("used %d µJ, recorded %+v, breaches %v", k.power.Used(), k.sink.Totals(),
			k.sink.Breaches())
	})
}

func (k *killed) compare(t *testing.T, kills int, memory bool) {
	used, total := k.power.Used(), k.sink.Totals()
	t.Logf("%d kills: used %d µJ, recorded %d in %d batches, %d unknown; %v unmeasured; %d requests, %d "+
		"duplicate batches",
		kills, used, total.Measured, total.Batches, total.Unknown, total.Unmeasured, k.sink.Requests(),
		total.Duplicates)
	if breaches := k.sink.Breaches(); breaches != nil {
		t.Error(breaches)
	}
	if uint64(total.Measured) > used {
		t.Errorf("%d µJ were counted twice", uint64(total.Measured)-used)
	}
	if !memory && uint64(total.Measured) != used {
		t.Errorf("%d µJ were lost", used-uint64(total.Measured))
	}
	if total.Gaps != 0 {
		t.Errorf("%d gaps", total.Gaps)
	}
	if k.method != "bands" {
		return
	}
	for i, want := range bands(0, used) {
		got := uint64(total.Consumers[band(i)])
		if got > want || !memory && got != want {
			t.Errorf("%s: recorded %d µJ, want %d", band(i), got, want)
		}
	}
}

// The counter's range is divided into bands that belong to one consumer each. The energy of each consumer therefore
// follows from the counter.
const (
	bandWidth = 997
	bandCount = 17
)

func band(i int) string { return fmt.Sprintf("pod/%08d-uid/%02d", i/3, i) }

// bands returns the energy of each consumer between two counter values.
func bands(from, to uint64) [bandCount]uint64 {
	below := func(value uint64, i int) uint64 {
		const round = bandWidth * bandCount
		start := uint64(i * bandWidth)
		return value/round*bandWidth + min(max(value%round, start)-start, bandWidth)
	}
	var used [bandCount]uint64
	for i := range used {
		used[i] = below(to, i) - below(from, i)
	}
	return used
}

func TestMain(m *testing.M) {
	if args := os.Getenv("KUBENERGY_KILLED"); args != "" {
		if err := live(strings.Split(args, ",")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// live runs the agent that is killed.
func live(args []string) error {
	dir, file, url, method := args[0], args[1], args[2], args[4]
	batches, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	queue, err := delivery.OpenQueue(delivery.QueueOptions{Dir: dir, Node: "node1", Boot: "boot", MaxBatches: batches},
		log)
	if err != nil {
		return err
	}
	defer queue.Close()
	pusher, err := delivery.NewPusher(delivery.PushOptions{
		Options: apiclient.Options{URL: url, Timeout: time.Second}, Interval: 20 * time.Millisecond,
	}, queue, log)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pushing, stopPushing := context.WithCancel(context.Background())
	pushed := make(chan struct{})
	go func() {
		pusher.Run(pushing)
		close(pushed)
	}()
	go impatient(pushing, pusher)
	defer func() {
		stopPushing()
		<-pushed
	}()
	a := agents[method](queue.State())
	for ctx.Err() == nil {
		counter, err := readCounter(file)
		if err != nil {
			return err
		}
		if attribution := a.tick(counter, sinceBoot()); attribution != nil {
			if err := queue.Add(attribution, delivery.Meta{
				Wall: time.Now(), Source: "package (test)", IdlePolicy: "apart",
			}); err != nil {
				return err
			}
		}
		if err := queue.Save(a.state()); err != nil {
			return err
		}
		time.Sleep(5*time.Millisecond + rand.N(5*time.Millisecond))
	}
	return nil
}

// impatient repeatedly requests deliveries, like a client that does not wait for the pusher's retries.
func impatient(ctx context.Context, pusher *delivery.Pusher) {
	for ctx.Err() == nil {
		pusher.Push(ctx)
		time.Sleep(15 * time.Millisecond)
	}
}

func readCounter(file string) (uint64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
}

func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// simulated computes attributions from readings.
type simulated interface {
	tick(counter uint64, now time.Duration) *energy.Attribution
	state() []byte
}

var agents = map[string]func(state []byte) simulated{
	"bands": func(state []byte) simulated {
		b := &bandAgent{}
		if state != nil {
			b.counter, b.at = binary.LittleEndian.Uint64(state), time.Duration(binary.LittleEndian.Uint64(state[8:]))
		}
		return b
	},
	"attributor": newAttributing,
}

// bandAgent attributes energy by the bands of the counter.
type bandAgent struct {
	counter uint64
	at      time.Duration
}

func (b *bandAgent) tick(counter uint64, now time.Duration) *energy.Attribution {
	from, start := b.counter, b.at
	b.counter, b.at = counter, now
	if from == 0 {
		return nil
	}
	a := &energy.Attribution{
		Start: start, End: now, Measured: energy.Microjoules(counter - from), Quality: energy.Measured,
	}
	for i, e := range bands(killtest.Since(from), killtest.Since(counter)) {
		if e > 0 {
			a.Shares = append(a.Shares, energy.Share{ID: band(i), Dynamic: energy.Microjoules(e)})
		}
	}
	return a
}

func (b *bandAgent) state() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, b.counter), uint64(b.at))
}

// attributing uses the real attributor. It does not know the consumers before a restart, as if all of them had
// changed, so the energy of that interval is unknown.
type attributing struct {
	attributor *energy.Attributor
	meter      *energy.Counter
	last       energy.Reading
	restarted  bool
	out        energy.Attribution
}

func newAttributing(state []byte) simulated {
	a := &attributing{
		attributor: energy.NewAttributor(energy.AttributorOptions{}),
		meter: energy.NewCounter(energy.CounterOptions{
			Domain: energy.Domain{Kind: energy.Package, Name: "package-0"}, Quality: energy.Measured, Max: 1e6,
		}),
		restarted: state != nil,
	}
	if state == nil {
		return a
	}
	if err := a.attributor.RestoreState(state); err != nil {
		panic(err)
	}
	for _, r := range a.attributor.Readings(nil) {
		a.meter.Resume(r)
	}
	return a
}

func (a *attributing) tick(counter uint64, now time.Duration) *energy.Attribution {
	a.last = a.meter.Next(counter, now)
	o := &energy.Observation{At: now, CPUs: 2, Busy: now, Root: []energy.Reading{a.last}}
	if !a.restarted {
		o.Usage = []energy.Usage{
			{ID: "pod/a/1", CPU: now / 2}, {ID: "pod/b/1", CPU: now / 4}, {ID: energy.System, CPU: now / 4},
		}
	}
	a.restarted = false
	if !a.attributor.Observe(o, &a.out) {
		return nil
	}
	return &a.out
}

func (a *attributing) state() []byte { return a.attributor.AppendState(nil) }
