package energy_test

import (
	"bytes"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Faults of a simulated node. Clock skew between the sweep over CPU times and the meters, and the churn of
// consumers, are always present and not faults.
type faults uint32

const (
	lostTicks faults = 1 << iota // the agent is suspended for up to two minutes
	missedSweeps
	missedRoots
	missedParts
	rootResets
	partResets
	partsTooLarge // parts measure up to 1.5 times the root
	vanishing     // consumers disappear without being reported as ended
	takeovers     // another consumer reuses a name
	lateFinds     // consumers are older than they appear
	busyUnknown
	busyFalls
	disorder // sweeps are unsorted, observations are repeated
	restartsWithState
	restartsWithout
	lateReadings // meters take up to two seconds, longer than until the next sweep
	newCounters  // a counter is added to the root or removed from it

	noFaults  faults = 0
	allFaults        = newCounters<<1 - 1
)

// A simMeter is an exact energy counter and the wrapping counter that is read. The exact value is in microjoules
// and of arbitrary size.
type simMeter struct {
	o      energy.CounterOptions
	c      *energy.Counter
	truth  *big.Int
	zero   *big.Int // the exact value at which the raw counter was 0
	at     time.Duration
	power  float64
	every  int // number of ticks between refreshes
	age    int
	shown  energy.Reading
	resets int
	known  *big.Int // the exact value of the last reading
	runs   int      // number of resets before the last reading
}

func newSimMeter(rng *rand.Rand, kind energy.DomainKind, name string, every int) *simMeter {
	m := &simMeter{truth: new(big.Int), zero: new(big.Int), every: every, known: new(big.Int)}
	m.o = energy.CounterOptions{Domain: energy.Domain{Kind: kind, Name: name}, Quality: energy.Measured, Max: 1000}
	if bits := 33 + rng.IntN(32); rng.IntN(5) > 0 { // wraps after at least 7 s at full power
		m.o.Range = 1<<bits - 1
	}
	if m.o.Range > 0 {
		m.zero.Neg(new(big.Int).SetUint64(rng.Uint64N(m.o.Range)))
	}
	m.c = energy.NewCounter(m.o)
	return m
}

func (m *simMeter) advance(at time.Duration) {
	m.truth.Add(m.truth, big.NewInt(int64(m.power*(at-m.at).Seconds()*1e6)))
	m.at = at
}

// read returns a reading of the counter. A slow meter returns the value of its last refresh.
func (m *simMeter) read(at time.Duration) energy.Reading {
	at = max(at, m.at)
	m.advance(at)
	if m.age++; (m.age < m.every && m.shown.At > 0) || at == m.shown.At {
		return m.shown
	}
	m.age = 0
	raw := new(big.Int).Sub(m.truth, m.zero)
	if m.o.Range > 0 {
		raw.Mod(raw, new(big.Int).Add(new(big.Int).SetUint64(m.o.Range), big.NewInt(1)))
	}
	m.shown = m.c.Next(raw.Uint64(), at)
	if m.shown.Raw == raw.Uint64() { // otherwise repeat the previous reading
		m.known.Set(m.truth)
		m.runs = m.resets
	}
	return m.shown
}

// reset sets the counter to 0 unless the reset could be mistaken for usage.
func (m *simMeter) reset() {
	raw := new(big.Int).Sub(m.truth, m.zero)
	if m.o.Range > 0 {
		raw.Mod(raw, new(big.Int).Add(new(big.Int).SetUint64(m.o.Range), big.NewInt(1)))
		if left := m.o.Range - raw.Uint64(); left < 1200*200*1e6 {
			return
		}
	}
	if raw.Cmp(big.NewInt(1200*200*1e6)) < 0 {
		return // it could exceed the old value before the next reading
	}
	m.zero.Set(m.truth)
	m.resets++
}

type simConsumer struct {
	id     string
	cpu    time.Duration
	shown  time.Duration // as of the last sweep
	rate   float64
	weight uint64
	ghost  bool // running, but not listed in sweeps
}

// A simNode is a node with meters and consumers, an attributor, and an oracle that verifies it.
type simNode struct {
	t       fataler
	rng     *rand.Rand
	faults  faults
	now     time.Duration
	cpus    float64
	roots   []*simMeter
	parts   []*simMeter
	who     []*simConsumer
	born    int
	busy    time.Duration // exact value
	gone    time.Duration // CPU time of ended consumers known to the host
	system  time.Duration
	options energy.AttributorOptions
	a       *energy.Attributor
	out     energy.Attribution
	oracle  oracle

	// whole is set if no part is missed. A process does not expect parts that are missing in its first interval.
	whole   bool
	twin    *energy.Attributor // without restarts
	twinOut energy.Attribution

	intervals int
	unknown   energy.Microjoules
	measured  energy.Microjoules
	unm       time.Duration
	shareCPU  map[string]time.Duration
	past      map[string]time.Duration // usage of ended consumers
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

func newSimNode(t fataler, seed uint64, f faults, consumers int) *simNode {
	rng := rand.New(rand.NewPCG(seed, uint64(f)))
	n := &simNode{
		t: t, rng: rng, faults: f, now: time.Duration(rng.Int64N(1e15)), cpus: float64(1 + rng.IntN(64)),
		shareCPU: map[string]time.Duration{}, past: map[string]time.Duration{},
	}
	n.options.Idle, n.options.Patience = energy.IdlePolicy(rng.IntN(3)), time.Minute
	if rng.IntN(2) == 0 {
		n.options.Prior = &energy.Profile{Idle: energy.Watts(rng.Float64() * 100), Max: 300}
	}
	every := 1
	if rng.IntN(4) == 0 {
		every = 2 + rng.IntN(8)
	}
	for i := range 1 + rng.IntN(2) {
		n.roots = append(n.roots, newSimMeter(rng, energy.Package, fmt.Sprintf("root-%d", i), every))
	}
	for i := range rng.IntN(4) {
		slow := 1
		if rng.IntN(4) == 0 {
			slow = 1 + rng.IntN(5)
		}
		n.parts = append(n.parts, newSimMeter(rng, energy.Core, fmt.Sprintf("part-%d", i), slow))
	}
	for _, m := range append(slices.Clone(n.roots), n.parts...) {
		m.at = n.now
	}
	for range consumers {
		n.bear()
	}
	n.a = energy.NewAttributor(n.options)
	return n
}

func (n *simNode) chance(f faults, oneIn int) bool { return n.faults&f != 0 && n.rng.IntN(oneIn) == 0 }

func (n *simNode) bear() *simConsumer {
	n.born++
	c := &simConsumer{rate: n.rng.Float64() * n.cpus / 20, weight: n.rng.Uint64N(3000)}
	switch n.rng.IntN(4) {
	case 0:
		c.id = energy.VMID(fmt.Sprintf("vm-%d", n.born))
	case 1:
		c.id = energy.CgroupID(fmt.Sprintf("/step/%d", n.born))
	default:
		c.id = energy.ContainerID(fmt.Sprintf("uid-%d", n.rng.IntN(6)),
			[]string{"", fmt.Sprint("c", n.born)}[n.rng.IntN(2)])
	}
	for _, other := range n.who {
		if other.id == c.id {
			c.id += fmt.Sprint("/", n.born)
			break
		}
	}
	n.who = append(n.who, c)
	return c
}

// work advances the node by dt.
func (n *simNode) work(dt time.Duration) {
	u := 0.0
	for _, c := range n.who {
		if n.rng.IntN(10) == 0 {
			c.rate = n.rng.Float64() * n.cpus / 20
		}
		used := time.Duration(c.rate * float64(dt))
		c.cpu += used
		n.busy += used
		u += c.rate
	}
	n.busy += dt / 50 // the system's usage
	for i, m := range n.roots {
		m.power = (60 + 100*u/n.cpus + 5*n.rng.Float64()) / float64(i+1)
	}
	for _, m := range n.parts {
		m.power = n.roots[0].power * n.rng.Float64() / float64(len(n.parts))
		if n.faults&partsTooLarge != 0 {
			m.power = n.roots[0].power * 1.5 / float64(len(n.parts))
		}
	}
	n.now += dt
}

func (n *simNode) sweep(o *energy.Observation) {
	o.Usage = make([]energy.Usage, 0, len(n.who)+1)
	others := n.gone
	for i := 0; i < len(n.who); i++ {
		c := n.who[i]
		switch {
		case n.rng.IntN(30) == 0: // it ends, and the host has its final CPU time
			o.Ended = append(o.Ended, energy.Usage{ID: c.id, CPU: c.cpu})
			n.past[c.id] += c.cpu
			n.gone += c.cpu
			others += c.cpu
			n.who = slices.Delete(n.who, i, i+1)
			i--
			continue
		case n.chance(vanishing, 40):
			n.who = slices.Delete(n.who, i, i+1)
			i--
			continue
		case n.chance(vanishing, 30):
			c.ghost = !c.ghost
		case n.chance(takeovers, 40):
			c.cpu, c.shown = time.Duration(n.rng.Int64N(int64(sec))), 0
		}
		if !c.ghost {
			read := max(c.shown, c.cpu-time.Duration(n.rng.Int64N(int64(ms)))) // read slightly earlier
			c.shown = read
			o.Usage = append(o.Usage, energy.Usage{ID: c.id, CPU: read, Weight: c.weight})
			others += read
		}
	}
	if n.rng.IntN(4) == 0 {
		c := n.bear()
		c.cpu = time.Duration(n.rng.Int64N(int64(sec / 20)))
		n.busy += c.cpu
		if n.chance(lateFinds, 3) {
			c.cpu = time.Hour
		}
		c.shown = c.cpu
		o.Usage = append(o.Usage, energy.Usage{ID: c.id, CPU: c.cpu, Weight: c.weight})
		others += c.cpu
	}
	// The host computes this value in the same way, and it never decreases.
	n.system = max(n.system, n.busy-others)
	o.Usage = append(o.Usage, energy.Usage{ID: energy.System, CPU: n.system})
	for _, list := range [][]energy.Usage{o.Usage, o.Ended} {
		slices.SortFunc(list, func(a, b energy.Usage) int { return strings.Compare(a.ID, b.ID) })
	}
}

func (n *simNode) observe() *energy.Observation {
	o := &energy.Observation{CPUs: n.cpus, Busy: n.busy}
	n.sweep(o)
	o.At = n.now
	skew := time.Duration(n.rng.Int64N(int64(200*ms))) - 50*ms // in most cases the meters are read after the sweep
	if n.chance(lateReadings, 5) {
		skew = time.Duration(n.rng.Int64N(int64(2 * sec)))
	}
	for _, m := range n.roots {
		r := m.read(n.now + skew + time.Duration(n.rng.Int64N(int64(5*ms))))
		if !n.chance(missedRoots, 15) {
			o.Root = append(o.Root, r)
		}
	}
	for _, m := range n.parts {
		r := m.read(n.now + skew + time.Duration(n.rng.Int64N(int64(5*ms))))
		if !n.chance(missedParts, 4) || n.whole {
			o.Parts = append(o.Parts, r)
		}
	}
	if n.chance(missedSweeps, 6) {
		if o.Usage = nil; n.rng.IntN(2) == 0 {
			o.Ended = nil
		}
	}
	if n.chance(busyUnknown, 6) {
		o.Busy = 0
	}
	if n.chance(busyFalls, 6) {
		o.Busy -= time.Duration(n.rng.Int64N(int64(n.busy) + 1))
	}
	if n.chance(disorder, 10) && len(o.Usage) > 1 {
		o.Usage[0], o.Usage[1] = o.Usage[1], o.Usage[0]
	}
	return o
}

// tick advances the time by a second, or longer if a fault is injected, and verifies the attributor with the
// oracle.
func (n *simNode) tick() {
	dt := sec + time.Duration(n.rng.Int64N(int64(20*ms))) - 10*ms
	if n.chance(lostTicks, 20) {
		dt = time.Duration(1+n.rng.IntN(120)) * sec
	}
	n.work(dt)
	for _, m := range n.roots {
		if n.chance(rootResets, 30) {
			m.reset()
		}
	}
	for _, m := range n.parts {
		if n.chance(partResets, 20) {
			m.reset()
		}
	}
	if n.chance(newCounters, 40) {
		if len(n.roots) > 1 && n.rng.IntN(2) == 0 {
			n.roots = n.roots[:len(n.roots)-1]
		} else {
			n.roots = append(n.roots, newSimMeter(n.rng, energy.Package, fmt.Sprintf("root-%d", len(n.roots)), 1))
			n.roots[len(n.roots)-1].at = n.now
		}
	}
	o := n.observe()
	n.attribute(o)
	if n.chance(disorder, 10) {
		before := n.a.AppendState(nil)
		if n.a.Observe(o, &n.out) || !bytes.Equal(before, n.a.AppendState(nil)) {
			n.t.Fatalf("a repeated observation changed the state or completed an interval")
		}
	}
	if n.chance(restartsWithState, 20) {
		n.restart()
	}
	if n.chance(restartsWithout, 60) {
		n.a, n.twin = energy.NewAttributor(n.options), nil
		n.oracle = oracle{}
		for _, m := range append(slices.Clone(n.roots), n.parts...) {
			m.c = energy.NewCounter(m.o)
			m.shown = energy.Reading{}
		}
	}
}

func (n *simNode) restart() {
	state := n.a.AppendState(nil)
	n.whole = true
	n.twin, n.a = n.a, energy.NewAttributor(n.options)
	if err := n.a.RestoreState(state); err != nil {
		n.t.Fatalf("%v", err)
	}
	if again := n.a.AppendState(nil); !bytes.Equal(state, again) {
		n.t.Fatalf("state of %d bytes differs after restoring it: %d bytes", len(state), len(again))
	}
	for _, m := range append(slices.Clone(n.roots), n.parts...) {
		m.c = energy.NewCounter(m.o)
		m.shown = energy.Reading{} // the previous process held it; its run belongs to that process
		for _, r := range n.a.Readings(nil) {
			m.c.Resume(r)
		}
	}
}

func (n *simNode) attribute(o *energy.Observation) {
	done := n.a.Observe(o, &n.out)
	n.oracle.check(n, o, done)
	if n.twin != nil {
		again := n.twin.Observe(o, &n.twinOut)
		shares, twins := n.out.Shares, n.twinOut.Shares
		if again != done || (done && (!slices.Equal(shares, twins) || n.out.Idle != n.twinOut.Idle ||
			n.out.Platform != n.twinOut.Platform)) {
			n.t.Fatalf("interval after restoring the state is %+v, want %+v", n.out, n.twinOut)
		}
	}
	if !done {
		return
	}
	out := &n.out
	n.intervals++
	n.whole = n.whole && out.Unmeasured > 0
	if err := out.Check(); err != nil {
		n.t.Fatalf("interval %d: %v: %+v", n.intervals, err, out)
	}
	if out.Unmeasured > 0 && out.Measured+out.Idle+out.Platform+out.Unknown != 0 {
		n.t.Fatalf("interval %d: unexpected energy in an unmeasured interval: %+v", n.intervals, out)
	}
	n.measured += out.Measured
	n.unknown += out.Unknown
	n.unm += out.Unmeasured
	for _, s := range out.Shares {
		if s.CPU < 0 || (out.Unmeasured > 0 && s.Dynamic+s.Idle != 0) {
			n.t.Fatalf("interval %d: invalid share %+v", n.intervals, s)
		}
		n.shareCPU[s.ID] += s.CPU
	}
	if len(n.parts) == 0 && out.Platform != 0 {
		n.t.Fatalf("interval %d: unexpected platform energy without parts: %+v", n.intervals, out)
	}
}

// The oracle has the exact counters, interpolates them with arbitrary precision, and derives the expected interval.
type oracle struct {
	begun   bool
	end     time.Duration
	since   time.Duration // start of the energy that has not been recorded
	counter map[string]*trueCounter

	first, booked *big.Int // sums over the counters, since the last break
	segment       *big.Int // measured by the attributor since then
	known         bool
}

type trueCounter struct {
	at     time.Duration
	value  *big.Int // the exact value, at
	runs   int
	run    uint32
	booked *big.Int
}

func (k *oracle) check(n *simNode, o *energy.Observation, done bool) {
	n.t.Helper()
	if !k.begun {
		if done {
			n.t.Fatalf("unexpected interval after the first observation: %+v", n.out)
		}
		k.begun = true
		k.restart(n, o, o.At)
		return
	}
	joined, missing, stale, reset := k.compare(n, o)
	fewer := missing && len(o.Root) > 0 && o.At-k.end > time.Minute
	switch {
	case !done:
		if len(o.Root) == 0 && k.counter == nil {
			n.t.Fatalf("no unmeasured interval was reported without a root")
		}
		if !missing && !stale && !reset && !joined && k.until(o) > k.end {
			n.t.Fatalf("no interval was reported although all counters advanced")
		}
		if (reset || joined) && k.lastOf(o) > k.end {
			n.t.Fatalf("no interval was reported at a break")
		}
		if o.At-k.end > time.Minute && !reset && !joined && (k.until(o) > k.end || !fewer && (missing || stale)) {
			n.t.Fatalf("no unmeasured interval was reported after more than a minute")
		}
		if reset || joined || fewer {
			k.restart(n, o, k.end)
		}
	case n.out.Start != k.end || n.out.End <= n.out.Start:
		n.t.Fatalf("interval until %v is followed by one from %v to %v", k.end, n.out.Start, n.out.End)
	case n.out.Unmeasured > 0:
		if n.out.Unmeasured != n.out.End-n.out.Start {
			n.t.Fatalf("interval is partly unmeasured: %+v", n.out)
		}
		gaveUp := o.At-k.end > time.Minute && (missing || stale)
		if !joined && !reset && !gaveUp && k.counter != nil {
			n.t.Fatalf("interval is unmeasured without a reason: %+v", n.out)
		}
		if gaveUp && !reset && !joined && !fewer && k.counter != nil {
			k.end = n.out.End // the energy is late
			return
		}
		k.restart(n, o, n.out.End)
	default:
		if joined || missing || stale || reset {
			n.t.Fatalf("interval is measured although a counter was added %v, is missing %v, is stale %v or was reset %v",
				joined, missing, stale, reset)
		}
		k.measured(n, o)
	}
}

func (k *oracle) compare(n *simNode, o *energy.Observation) (joined, missing, stale, reset bool) {
	for _, r := range o.Root {
		c := k.counter[r.Domain.Name]
		switch m := n.meter(r.Domain.Name); {
		case c == nil:
			joined = true
		case c.runs != m.runs, r.Run != c.run: // a gap that may hide a wrap is a break too
			reset = true
		case r.At <= c.at:
			stale = true
		}
	}
	for name := range k.counter {
		missing = missing || !slices.ContainsFunc(o.Root, func(r energy.Reading) bool { return r.Domain.Name == name })
	}
	return
}

func (n *simNode) meter(name string) *simMeter {
	return n.roots[slices.IndexFunc(n.roots, func(m *simMeter) bool { return m.o.Domain.Name == name })]
}

func (k *oracle) until(o *energy.Observation) time.Duration {
	end := o.At
	for _, r := range o.Root {
		end = min(end, r.At)
	}
	return end
}

func (k *oracle) lastOf(o *energy.Observation) time.Duration {
	end := time.Duration(0)
	for _, r := range o.Root {
		end = max(end, r.At)
	}
	return end
}

func (k *oracle) restart(n *simNode, o *energy.Observation, end time.Duration) {
	k.endSegment(n)
	k.counter, k.known = nil, false
	for _, r := range o.Root {
		if k.counter == nil {
			k.counter = map[string]*trueCounter{}
			if !k.begun || k.end == 0 {
				end = k.lastOf(o)
			}
		}
		m := n.meter(r.Domain.Name)
		k.counter[r.Domain.Name] = &trueCounter{at: r.At, value: new(big.Int).Set(m.known), runs: m.runs, run: r.Run}
	}
	k.end, k.since = end, end
	k.first, k.booked, k.segment = new(big.Int), new(big.Int), new(big.Int)
}

func (k *oracle) measured(n *simNode, o *energy.Observation) {
	if want := k.until(o); n.out.End != want {
		n.t.Fatalf("interval ends at %v, want %v", n.out.End, want)
	}
	want := new(big.Int)
	for _, r := range o.Root {
		c, m := k.counter[r.Domain.Name], n.meter(r.Domain.Name)
		if c.booked == nil { // counting starts at the end of the unknown energy if its reading is older
			c.booked = c.value
			if c.at < k.since {
				c.booked = between(c.at, c.value, r.At, m.known, k.since)
			}
			k.first.Add(k.first, c.booked)
		}
		var value *big.Int
		if n.out.End >= c.at {
			value = between(c.at, c.value, r.At, m.known, n.out.End)
		} else {
			value = between(k.since, c.booked, c.at, c.value, n.out.End)
		}
		want.Add(want, value).Sub(want, c.booked)
		c.at, c.value, c.booked = r.At, new(big.Int).Set(m.known), value
	}
	if want.Sign() < 0 || !want.IsInt64() || want.Int64() != int64(n.out.Measured) {
		n.t.Fatalf("measured energy = %d µJ, want %v: %+v", n.out.Measured, want, n.out)
	}
	k.segment.Add(k.segment, big.NewInt(int64(n.out.Measured)))
	k.known, k.end, k.since = true, n.out.End, n.out.End
}

// endSegment compares the sum of all intervals since the last break with the difference of the exact counters.
func (k *oracle) endSegment(n *simNode) {
	if !k.known {
		return
	}
	low, high := new(big.Int).Neg(k.first), new(big.Int).Neg(k.first)
	for _, c := range k.counter {
		low.Add(low, c.booked)
		high.Add(high, c.value)
	}
	if k.segment.Cmp(low) != 0 || k.segment.Cmp(high) > 0 {
		n.t.Fatalf(
			"intervals since the last break measured %v µJ, want %v, and %v at the last reading",
			k.segment, low, high)
	}
}

func between(at time.Duration, value *big.Int, later time.Duration, then *big.Int, instant time.Duration) *big.Int {
	v := new(big.Int).Sub(then, value)
	v.Mul(v, big.NewInt(int64(instant-at)))
	v.Quo(v, big.NewInt(int64(later-at)))
	return v.Add(v, value)
}

// Property P3: in every interval, consumers + idle + platform + unknown = measured, in integer microjoules, and
// measured equals the energy counted by the counters, regardless of wraps, resets, churn, clock skew, lost ticks
// and restarts.
func TestConservation(t *testing.T) {
	t.Run("drawn", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			f := faults(rapid.Uint32Range(0, uint32(allFaults)).Draw(t, "faults"))
			n := newSimNode(t, rapid.Uint64().Draw(t, "seed"), f, rapid.IntRange(0, 40).Draw(t, "consumers"))
			for range rapid.IntRange(1, 120).Draw(t, "ticks") {
				n.tick()
			}
			n.oracle.endSegment(n)
		})
	})
	rounds, ticks := 60, 500
	if long {
		rounds, ticks = 400, 2000
	}
	t.Run("long", func(t *testing.T) {
		intervals, unmeasured, all := 0, time.Duration(0), time.Duration(0)
		for round := range rounds {
			f := faults(rand.New(rand.NewPCG(uint64(round), 9)).Uint32()) & allFaults
			if round%10 == 0 {
				f = allFaults
			}
			n := newSimNode(t, uint64(round), f, 20)
			start := n.now
			for range ticks {
				n.tick()
			}
			n.oracle.endSegment(n)
			intervals, unmeasured, all = intervals+n.intervals, unmeasured+n.unm, all+n.now-start
		}
		t.Logf("%d intervals over %v, %.1f %% unmeasured", intervals, all,
			100*unmeasured.Seconds()/all.Seconds())
	})
	t.Run("without faults", func(t *testing.T) {
		var measured, unknown energy.Microjoules
		for round := range rounds {
			n := newSimNode(t, uint64(round), noFaults, 20)
			for range 30 { // slow parts have no usage until their second value, and slow roots later
				n.tick()
			}
			n.unknown = 0
			for range ticks {
				n.tick()
			}
			n.oracle.endSegment(n)
			if n.unm > 0 {
				t.Errorf("round %d: %v unmeasured, want 0", round, n.unm)
			}
			measured, unknown = measured+n.measured, unknown+n.unknown
			if n.unknown > n.measured/1000 {
				t.Errorf("round %d: %v of %v are unknown, want at most a thousandth", round, n.unknown, n.measured)
			}
			n.checkCPU()
		}
		t.Logf("%v of %v are unknown: %.5f %%", unknown, measured, 100*float64(unknown)/float64(measured))
	})
}

// checkCPU compares the attributed CPU times with those of the consumers, in a run without faults.
func (n *simNode) checkCPU() {
	for _, c := range n.who {
		if got, want := n.shareCPU[c.id], c.cpu+n.past[c.id]; got > want {
			n.t.Fatalf("CPU time attributed to %s = %v, want at most %v", c.id, got, want)
		}
	}
	var all time.Duration
	for _, v := range n.shareCPU {
		all += v
	}
	if all > n.busy {
		n.t.Fatalf("CPU time attributed to all consumers = %v, want at most %v", all, n.busy)
	}
}
