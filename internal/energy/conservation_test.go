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

// What may go wrong in a node that a test simulates. Skew between the sweep over CPU times and the meters, and
// consumers that come and go, are no faults.
type faults uint32

const (
	lostTicks faults = 1 << iota // the agent sleeps, up to two minutes
	missedSweeps
	missedRoots
	missedParts
	rootResets
	partResets
	partsTooLarge // parts measure up to 1.5 times the root
	vanishing     // consumers go without a word
	takeovers     // another consumer takes a name
	lateFinds     // consumers that are older than they seem
	busyUnknown
	busyFalls
	disorder // sweeps that are not sorted, observations that come twice
	restartsWithState
	restartsWithout
	lateReadings // meters that take up to two seconds, by which time the next sweep is over
	newCounters  // a counter joins the root, or leaves it

	noFaults  faults = 0
	allFaults        = newCounters<<1 - 1
)

// A simMeter is a true counter of energy, and the wrapping one that is read. Its truth is in microjoules of any size.
type simMeter struct {
	o      energy.CounterOptions
	c      *energy.Counter
	truth  *big.Int
	zero   *big.Int // the truth at which the raw counter was 0
	at     time.Duration
	power  float64
	every  int // ticks between refreshes
	age    int
	shown  energy.Reading
	resets int
	known  *big.Int // the truth that is shown
	runs   int      // how many resets came before it
}

func newSimMeter(rng *rand.Rand, kind energy.DomainKind, name string, every int) *simMeter {
	m := &simMeter{truth: new(big.Int), zero: new(big.Int), every: every, known: new(big.Int)}
	m.o = energy.CounterOptions{Domain: energy.Domain{Kind: kind, Name: name}, Quality: energy.Measured, Max: 1000}
	if bits := 33 + rng.IntN(32); rng.IntN(5) > 0 { // wraps after 7 s at full power, at the earliest
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

// read shows the counter. A meter that is slow shows the value of its last refresh.
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
	if m.shown.Raw == raw.Uint64() { // else the reading of before: after a restart the meter was read at the same instant
		m.known.Set(m.truth)
		m.runs = m.resets
	}
	return m.shown
}

// reset puts the counter to 0, but only where that cannot look like work.
func (m *simMeter) reset() {
	raw := new(big.Int).Sub(m.truth, m.zero)
	if m.o.Range > 0 {
		raw.Mod(raw, new(big.Int).Add(new(big.Int).SetUint64(m.o.Range), big.NewInt(1)))
		if left := m.o.Range - raw.Uint64(); left < 1200*200*1e6 {
			return
		}
	}
	if raw.Cmp(big.NewInt(1200*200*1e6)) < 0 {
		return // it could have risen above the old value until it is read
	}
	m.zero.Set(m.truth)
	m.resets++
}

type simConsumer struct {
	id     string
	cpu    time.Duration
	shown  time.Duration // at the last sweep
	rate   float64
	weight uint64
	ghost  bool // alive, and not seen
}

// A simNode is a node with meters and consumers, an attributor, and an oracle beside it.
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
	busy    time.Duration // truth
	gone    time.Duration // CPU time of those that ended, as far as the host knows
	system  time.Duration
	options energy.AttributorOptions
	a       *energy.Attributor
	out     energy.Attribution
	oracle  oracle

	// parts are not missed: what is missing in a process's first interval, it does not expect
	whole   bool
	twin    *energy.Attributor // which was not restarted
	twinOut energy.Attribution

	intervals int
	unknown   energy.Microjoules
	measured  energy.Microjoules
	unm       time.Duration
	shareCPU  map[string]time.Duration
	past      map[string]time.Duration // what consumers used that ended
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

// work lets the node run until an instant.
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
	n.busy += dt / 50 // the system
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
		case n.rng.IntN(30) == 0: // it ends, and the host knows its last time
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
			read := max(c.shown, c.cpu-time.Duration(n.rng.Int64N(int64(ms)))) // a moment ago
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
	// The host computes it so, and it never falls.
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
	skew := time.Duration(n.rng.Int64N(int64(200*ms))) - 50*ms // mostly the meters are read after the sweep
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

// tick lets a second pass, or what a fault makes of it, and holds the attributor to the oracle.
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
			n.t.Fatalf("an observation that came twice changed something")
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
		n.t.Fatalf("the state changed in restoring it: %d and %d bytes", len(state), len(again))
	}
	for _, m := range append(slices.Clone(n.roots), n.parts...) {
		m.c = energy.NewCounter(m.o)
		m.shown = energy.Reading{} // the dead process held it; the run that it names is not this process's
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
			n.t.Fatalf("restored from its state it gives %+v, otherwise %+v", n.out, n.twinOut)
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
		n.t.Fatalf("interval %d: energy in an unmeasured interval: %+v", n.intervals, out)
	}
	n.measured += out.Measured
	n.unknown += out.Unknown
	n.unm += out.Unmeasured
	for _, s := range out.Shares {
		if s.CPU < 0 || (out.Unmeasured > 0 && s.Dynamic+s.Idle != 0) {
			n.t.Fatalf("interval %d: share %+v", n.intervals, s)
		}
		n.shareCPU[s.ID] += s.CPU
	}
	if len(n.parts) == 0 && out.Platform != 0 {
		n.t.Fatalf("interval %d: a platform without parts: %+v", n.intervals, out)
	}
}

// The oracle knows the true counters, of which it interpolates in fractions of any size, and what an interval must be.
type oracle struct {
	begun   bool
	end     time.Duration
	since   time.Duration // since when energy is not booked
	counter map[string]*trueCounter

	first, booked *big.Int // sums over the counters, since the last break
	segment       *big.Int // what the attributor measured since then
	known         bool
}

type trueCounter struct {
	at     time.Duration
	value  *big.Int // the truth, at
	runs   int
	run    uint32
	booked *big.Int
}

func (k *oracle) check(n *simNode, o *energy.Observation, done bool) {
	n.t.Helper()
	if !k.begun {
		if done {
			n.t.Fatalf("the first observation, whose counters say nothing, gave %+v", n.out)
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
			n.t.Fatalf("nothing is known of the root, and nobody says so")
		}
		if !missing && !stale && !reset && !joined && k.until(o) > k.end {
			n.t.Fatalf("all counters advanced, but nothing came of it")
		}
		if (reset || joined) && k.lastOf(o) > k.end {
			n.t.Fatalf("a break was not told")
		}
		if o.At-k.end > time.Minute && !reset && !joined && (k.until(o) > k.end || !fewer && (missing || stale)) {
			n.t.Fatalf("waiting for more than a minute")
		}
		if reset || joined || fewer {
			k.restart(n, o, k.end)
		}
	case n.out.Start != k.end || n.out.End <= n.out.Start:
		n.t.Fatalf("after an interval until %v comes one from %v to %v", k.end, n.out.Start, n.out.End)
	case n.out.Unmeasured > 0:
		if n.out.Unmeasured != n.out.End-n.out.Start {
			n.t.Fatalf("an interval is measured in part: %+v", n.out)
		}
		gaveUp := o.At-k.end > time.Minute && (missing || stale)
		if !joined && !reset && !gaveUp && k.counter != nil {
			n.t.Fatalf("an interval is unmeasured without reason: %+v", n.out)
		}
		if gaveUp && !reset && !joined && !fewer && k.counter != nil {
			k.end = n.out.End // the energy is late
			return
		}
		k.restart(n, o, n.out.End)
	default:
		if joined || missing || stale || reset {
			n.t.Fatalf("an interval is measured by counters that joined %v, are missing %v, stale %v, were reset %v",
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
		case c.runs != m.runs, r.Run != c.run: // a gap in which a wrap may hide is a break too
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
		n.t.Fatalf("interval until %v, want %v", n.out.End, want)
	}
	want := new(big.Int)
	for _, r := range o.Root {
		c, m := k.counter[r.Domain.Name], n.meter(r.Domain.Name)
		if c.booked == nil { // counts from the end of what is not known, if its reading is older
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
		n.t.Fatalf("measured are %d µJ, want %v: %+v", n.out.Measured, want, n.out)
	}
	k.segment.Add(k.segment, big.NewInt(int64(n.out.Measured)))
	k.known, k.end, k.since = true, n.out.End, n.out.End
}

// endSegment holds the sum of all intervals since the last break to the difference of the true counters.
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
			"all intervals since the last break measured %v µJ, the true counters say %v, and at their last reading %v",
			k.segment, low, high)
	}
}

func between(at time.Duration, value *big.Int, later time.Duration, then *big.Int, instant time.Duration) *big.Int {
	v := new(big.Int).Sub(then, value)
	v.Mul(v, big.NewInt(int64(instant-at)))
	v.Quo(v, big.NewInt(int64(later-at)))
	return v.Add(v, value)
}

// P3: for every interval consumers + idle + platform + unknown = measured, in integer microjoules, and measured is
// what the counters counted, whatever wraps, resets, churn, skew, lost ticks and restarts there are.
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
	switch {
	case raced:
		rounds = 20
	case long:
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
		t.Logf("%d intervals over %v, of which %.1f %% unmeasured", intervals, all,
			100*unmeasured.Seconds()/all.Seconds())
	})
	t.Run("without faults", func(t *testing.T) {
		var measured, unknown energy.Microjoules
		for round := range rounds {
			n := newSimNode(t, uint64(round), noFaults, 20)
			for range 30 { // slow parts say nothing until their second value, and slow roots later
				n.tick()
			}
			n.unknown = 0
			for range ticks {
				n.tick()
			}
			n.oracle.endSegment(n)
			if n.unm > 0 {
				t.Errorf("round %d: %v are unmeasured", round, n.unm)
			}
			measured, unknown = measured+n.measured, unknown+n.unknown
			if n.unknown > n.measured/1000 {
				t.Errorf("round %d: %v of %v are unknown", round, n.unknown, n.measured)
			}
			n.checkCPU()
		}
		t.Logf("%v of %v are unknown: %.5f %%", unknown, measured, 100*float64(unknown)/float64(measured))
	})
}

// checkCPU holds the CPU times that were attributed to those of the consumers, without faults.
func (n *simNode) checkCPU() {
	for _, c := range n.who {
		if got, want := n.shareCPU[c.id], c.cpu+n.past[c.id]; got > want {
			n.t.Fatalf("%s was attributed %v of its %v", c.id, got, want)
		}
	}
	var all time.Duration
	for _, v := range n.shareCPU {
		all += v
	}
	if all > n.busy {
		n.t.Fatalf("consumers were attributed %v of %v", all, n.busy)
	}
}
