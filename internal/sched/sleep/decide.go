package sleep

import (
	"cmp"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Decide returns the plan for putting machines to sleep and waking them.
func Decide(s *Snapshot) Plan {
	d := newDecision(s)
	d.serve()
	d.wakeForBound()
	d.count()
	d.wakeForHeadroom()
	d.rest()
	d.limitWakes()
	return d.plan
}

// decision is a Plan under construction.
type decision struct {
	*Snapshot
	plan  Plan
	nodes []sched.Node // machines including the work planned on them
	up    []bool       // awake and remaining awake, booting, or woken by the plan
	taken []bool       // whether planned or waiting work is assigned to the machine
	awake map[string]int
	best  []int // all machines, ordered by power per core
	woken []int // machines woken by the plan, in the order of its steps
	ahead int   // sleeping machines assigned to needs so far, which must be woken before the next one

	free, used sched.Resources // totals over all machines that are up
	largest    sched.Resources // Snapshot.Largest, if any machine is large enough
	roomy      int             // number of machines that are up and have capacity for it
}

func newDecision(s *Snapshot) *decision {
	n := len(s.Machines)
	d := &decision{
		Snapshot: s, plan: Plan{Verdicts: make([]Verdict, n)}, nodes: make([]sched.Node, n), up: make([]bool, n),
		taken: make([]bool, n), awake: map[string]int{},
	}
	for i := range s.Machines {
		m := &s.Machines[i]
		d.up[i] = m.State == Awake || m.State == Booting && m.Failed == 0
		d.nodes[i] = sched.Node{
			Name: m.Name, Labels: m.Labels, Capacity: m.Capacity, Free: m.Capacity, Profile: m.Profile, Speed: m.Speed,
			PUE: m.PUE, Awake: d.up[i],
		}
		if m.State == Awake {
			d.nodes[i].Free, d.nodes[i].Jobs = m.Free, m.Jobs
			if !m.Closed {
				d.awake[m.Zone]++
			}
		}
		if !m.Closed && s.Largest.Within(m.Capacity) {
			d.largest = s.Largest
		}
		d.plan.Verdicts[i].Reason = first(m)
	}
	d.best = sliceutil.Order(n, func(a, b int) int {
		return cmp.Compare(s.Machines[a].perCore(), s.Machines[b].perCore())
	})
	return d
}

// first returns the initial reason of a machine, which may be replaced later.
func first(m *Machine) Reason {
	switch {
	case m.State == Asleep:
		return Spare
	case m.State != Awake:
		return Changing
	case m.Jobs > 0:
		return Works
	}
	return JustEmptied
}

// askAgain records a time when the decision may change without an event.
func (d *decision) askAgain(at time.Time) {
	if at.After(d.Now) && (d.plan.Next.IsZero() || at.Before(d.plan.Next)) {
		d.plan.Next = at
	}
}

// serve assigns a machine to each need in order of time. Waiting work comes before planned work.
func (d *decision) serve() {
	needs := slices.Clone(d.Needs)
	slices.SortStableFunc(needs, func(a, b Need) int { return a.At.Compare(b.At) })
	for k := range needs {
		need := &needs[k]
		waits := !need.At.After(d.Now)
		i := d.cheapest(need, func(i int) bool {
			return d.up[i] && (!waits || d.Machines[i].State != Awake) // it does not wait on awake machines
		})
		if i < 0 && waits {
			i = d.cheapest(need, func(i int) bool { return d.Machines[i].State == Awake && d.Machines[i].Jobs == 0 })
		}
		if i >= 0 {
			d.give(i, need, waits)
		} else if !d.rouse(need, waits) {
			d.plan.Unmet = append(d.plan.Unmet, need.Job)
		}
	}
}

const (
	// tries limits the number of machines that boot for one need, not counting one that has just failed.
	tries = 4
	// lately is the time after a failed boot during which a single further boot is not relied on.
	lately = time.Minute
)

// rouse wakes the machine on which a need adds the least energy. If the last boot of that machine failed, another
// machine is woken as well. If a boot for waiting work has just failed, several machines are woken, because a
// further failure would delay the work too much. It reports whether any machine would have sufficient capacity.
func (d *decision) rouse(need *Need, waits bool) (met bool) {
	woken, alone := d.tried(need)
	for met = woken > 0; woken < tries; {
		i := d.sleeper(need)
		if i < 0 {
			return met
		}
		met = true
		if d.give(i, need, waits); d.plan.Verdicts[i].Do != Wake {
			return met
		}
		if woken++; !waits || alone && d.Machines[i].Failed == 0 {
			return met
		}
	}
	return met
}

// tried returns the number of booting machines for a need that have failed before, and whether a single further
// machine is sufficient because no boot has just failed.
func (d *decision) tried(need *Need) (boot int, alone bool) {
	alone = true
	for i := range d.nodes {
		m := &d.Machines[i]
		if m.Failed == 0 || !d.suits(i, need) {
			continue
		}
		late := m.State == Booting && d.Now.After(m.Since.Add(m.BootTime()))
		if late || m.State == Asleep && d.Now.Before(m.Since.Add(lately)) {
			alone = false
		} else if m.State == Booting {
			boot++
		}
	}
	return boot, alone
}

// sleeper returns the machine to wake for a need, or -1 if none has sufficient capacity. Sleeping machines are
// preferred to machines in shutdown, and machines with a recent boot failure come last.
func (d *decision) sleeper(need *Need) int {
	i := d.cheapest(need, func(i int) bool { return d.sleeps(i) && !d.Now.Before(d.Machines[i].retry()) })
	if i < 0 {
		i = d.cheapest(need, func(i int) bool { return d.Machines[i].State == Stopping })
	}
	if i < 0 {
		i = d.cheapest(need, d.sleeps)
	}
	return i
}

// sleeps reports whether a machine is asleep and not yet selected to be woken.
func (d *decision) sleeps(i int) bool {
	return d.Machines[i].State == Asleep && d.plan.Verdicts[i].Do != Wake
}

// suits reports whether a need may use a machine and fits on it.
func (d *decision) suits(i int, need *Need) bool {
	if len(need.Machines) > 0 {
		if _, ok := slices.BinarySearch(need.Machines, d.Machines[i].Name); !ok {
			return false
		}
	}
	job := sched.Job{Request: need.Request, Selector: need.Selector}
	return job.Fits(&d.nodes[i])
}

// retry returns the time when a machine with failed boots is tried again if there are alternatives: after two times
// its boot time, four times, and so on.
func (m *Machine) retry() time.Time {
	if m.Failed <= 0 {
		return time.Time{}
	}
	const doublings = 6
	return m.Since.Add(m.BootTime() << min(m.Failed, doublings))
}

// cheapest returns the allowed machine with sufficient capacity on which a need adds the least energy, or -1 if
// there is none.
func (d *decision) cheapest(need *Need, allowed func(i int) bool) int {
	job := sched.Job{Request: need.Request, Duration: max(need.Duration, time.Minute)}
	var s sched.Snapshot
	best, least := -1, energy.Joules(0)
	for i := range d.nodes {
		n := &d.nodes[i]
		if !allowed(i) || !d.suits(i, need) {
			continue
		}
		e := s.Estimate(&job, n, sched.Window{Start: d.Now, End: d.Now.Add(n.Runtime(&job))}).Energy
		if best < 0 || e < least {
			best, least = i, e
		}
	}
	return best
}

// give assigns a need to a machine, which is woken in time for it.
func (d *decision) give(i int, need *Need, waits bool) {
	m, v := &d.Machines[i], &d.plan.Verdicts[i]
	if !waits && need.At.After(d.Now.Add(m.Horizon(&d.Policy))) {
		return // the machine may still sleep before the start
	}
	d.nodes[i] = d.nodes[i].Place(need.Request)
	reason := ForPlanned
	if waits {
		reason = ForWaiting
	}
	if !d.taken[i] && v.Reason != Works {
		v.Reason, v.For, v.Owner = reason, need.Job, need.Owner
	}
	if !d.taken[i] && m.State == Asleep {
		d.ahead++
	}
	d.taken[i] = true
	if d.up[i] || m.State != Asleep {
		return
	}
	at := need.At.Add(-m.BootTime() - d.Policy.Lead - time.Duration((d.ahead-1)/d.Policy.MaxWakes())*rampWindow)
	switch {
	case waits || !at.After(d.Now):
		if !waits || !d.Now.Before(m.retry()) {
			d.wake(i)
			return
		}
		v.Reason, v.Until = BootFailed, m.retry()
		d.askAgain(m.retry())
	default:
		d.askAgain(at)
	}
}

// wake marks a machine to be woken. A machine with a failed last boot is not counted as up.
func (d *decision) wake(i int) {
	if d.plan.Verdicts[i].Do != Wake {
		d.woken = append(d.woken, i)
	}
	d.plan.Verdicts[i].Do = Wake
	d.up[i] = d.Machines[i].Failed == 0
	d.nodes[i].Awake = true
}

// wakeForBound wakes sleeping machines that jobs are bound to.
func (d *decision) wakeForBound() {
	for i := range d.Machines {
		m := &d.Machines[i]
		switch {
		case m.Jobs == 0 || m.State != Asleep:
		case d.Now.Before(m.retry()):
			d.askAgain(m.retry())
		default:
			d.plan.Verdicts[i].Reason = Works
			d.plan.Verdicts[i].Owner = cmp.Or(d.plan.Verdicts[i].Owner, m.Owner)
			d.wake(i)
		}
	}
}

// count sums up the free and used resources.
func (d *decision) count() {
	for i := range d.nodes {
		if d.up[i] {
			d.used = d.used.Add(d.nodes[i].Capacity.Sub(d.nodes[i].Free))
			d.rises(i, 1)
		}
	}
}

// rises adds the free resources of a machine that is up, or subtracts them if by is -1.
func (d *decision) rises(i, by int) {
	if d.Machines[i].Closed {
		return
	}
	if free := d.nodes[i].Free; by > 0 {
		d.free = d.free.Add(free)
	} else {
		d.free = d.free.Sub(free)
	}
	if d.largest.Within(d.nodes[i].Free) {
		d.roomy += by
	}
}

// wakeForHeadroom wakes the machines with the lowest power per core until there is enough headroom.
func (d *decision) wakeForHeadroom() {
	for _, i := range d.best {
		m := &d.Machines[i]
		lacks, cramped := d.missingHeadroom()
		switch {
		case lacks == (sched.Resources{}) && !cramped:
			return
		case m.Closed, !d.sleeps(i), d.Now.Before(m.retry()),
			!d.helps(i, lacks) && (!cramped || !d.largest.Within(m.Capacity)):
			continue
		}
		d.plan.Verdicts[i].Reason, d.plan.Verdicts[i].For = ForHeadroom, ""
		if d.wake(i); d.up[i] {
			d.rises(i, 1)
		}
	}
}

// helps reports whether a machine provides any of the resources that are missing from the headroom.
func (d *decision) helps(i int, lacks sched.Resources) bool {
	has := d.Machines[i].Capacity
	return lacks.MilliCPU > 0 && has.MilliCPU > 0 || lacks.Memory > 0 && has.Memory > 0 ||
		lacks.GPU > 0 && has.GPU > 0 || lacks.MilliGPU > 0 && has.MilliGPU > 0
}

// missingHeadroom returns the resources missing from the headroom, and whether no machine that is up has capacity
// for the largest job.
func (d *decision) missingHeadroom() (lack sched.Resources, cramped bool) {
	if d.Policy.Headroom <= 0 {
		return sched.Resources{}, false
	}
	share := func(of int64) int64 { return int64(d.Policy.Headroom * float64(of)) }
	want := sched.Resources{
		MilliCPU: share(d.used.MilliCPU), Memory: share(d.used.Memory), GPU: share(d.used.GPU),
		MilliGPU: share(d.used.MilliGPU),
	}
	return want.Sub(d.free).Max(sched.Resources{}), d.roomy == 0 && d.largest != (sched.Resources{})
}

// rest puts machines to sleep that are not needed, starting with the highest power per core. Machines that are
// still booting do not replace them.
func (d *decision) rest() {
	for i := range d.up {
		if d.up[i] && d.Machines[i].State != Awake {
			d.rises(i, -1)
		}
	}
	for _, i := range slices.Backward(d.best) {
		m, v := &d.Machines[i], &d.plan.Verdicts[i]
		if m.State != Awake || m.Jobs > 0 || d.taken[i] {
			continue
		}
		if v.Reason, v.Until = d.keeps(i); v.Reason == Refused {
			v.For = m.Keep
		}
		if v.Reason == JustEmptied {
			d.askAgain(v.Until)
		}
		if v.Reason == Spare {
			v.Do, d.up[i] = Sleep, false
			if d.rises(i, -1); !m.Closed {
				d.awake[m.Zone]--
			}
		}
	}
}

// rationed is the multiple of the time that a machine must be empty before it is put to sleep, which is added for each
// time that it was put to sleep beyond half of the maximum number in 24 hours. Otherwise, a machine that is put to
// sleep at each of many short breaks would stay awake for the rest of the day.
const rationed = 4

// keeps returns the reason why an empty machine must remain awake, or [Spare] if it may sleep.
func (d *decision) keeps(i int) (why Reason, until time.Time) {
	m := &d.Machines[i]
	breakEven, saves := m.BreakEven()
	empty := max(breakEven, d.Policy.After)
	if d.Policy.MaxCycles > 0 {
		empty *= time.Duration(1 + rationed*max(m.Sleeps-d.Policy.MaxCycles/2, 0))
	}
	ripe := m.Since.Add(empty)
	switch {
	case m.Keep != "":
		return Refused, time.Time{}
	case !saves:
		return SavesNone, time.Time{}
	case d.Policy.MaxCycles > 0 && m.Sleeps >= d.Policy.MaxCycles:
		return Cycled, time.Time{}
	case d.Now.Before(ripe):
		return JustEmptied, ripe
	case m.Closed:
		return Spare, time.Time{}
	case d.awake[m.Zone] <= d.Policy.MinAwake:
		return MinAwake, time.Time{}
	}
	d.rises(i, -1)
	defer d.rises(i, 1)
	if lacks, cramped := d.missingHeadroom(); lacks != (sched.Resources{}) || cramped {
		return ForHeadroom, time.Time{}
	}
	return Spare, time.Time{}
}
