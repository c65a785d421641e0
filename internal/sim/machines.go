package sim

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// SleepRules say how machines sleep whose power profiles give a boot time.
type SleepRules struct {
	sleep.Policy
	BootFailures float64 // share of boots that fail, and have to be done again
}

// Sleep is how machines slept in a run.
type Sleep struct {
	Boots       int           // of machines that were asleep, the failed ones included
	FailedBoots int           //
	BootEnergy  energy.Joules // that they took, at the sites' meters
	BootTime    time.Duration // and the time, of all machines together
	Asleep      time.Duration // machine time
	MaxCycles   int           // how often one machine was sent to sleep within 24 hours, at most
}

// PowerChange is when a machine was sent to sleep, began to boot, or was awake.
type PowerChange struct {
	Node  string
	At    time.Time
	State sleep.State // Asleep of one that boots: that failed
}

// machines puts those to sleep that nothing needs, and wakes them, as [sleep.Decide] says. A nil *machines has none
// that take time to boot: they sleep whenever they are empty.
type machines struct {
	snapshot sleep.Snapshot
	node     []int         // by index of snapshot.Machines: the node
	of       []int         // and the reverse; -1: it takes no time to boot
	horizon  time.Duration // how far ahead planned work may need a machine
	boots    []uint64      // by machine: how often it booted
	slept    [][]int64     // by machine: when it was sent to sleep
	planned  eventHeap     // jobs that are held, by when they are to start; some may have started since
	asked    int64         // when the next decision is due; 0: none is
	recent   [2]sched.Resources
	hour     int64         // of recent[0]; recent[1] is the hour before
	played   time.Time     // the last instant
	asleep   time.Duration // of machines that woke again, until then
}

// newMachines returns nil where no machine takes time to boot.
func newMachines(s *Scenario, nodes []sched.Node) *machines {
	if !slices.ContainsFunc(nodes, func(n sched.Node) bool { return boots(&n) }) {
		return nil
	}
	m := &machines{of: make([]int, len(nodes))}
	for i := range nodes {
		m.of[i] = -1
		if boots(&nodes[i]) {
			m.node = append(m.node, i)
		}
	}
	slices.SortFunc(m.node, func(a, b int) int { return cmp.Compare(nodes[a].Name, nodes[b].Name) })
	m.snapshot = sleep.Snapshot{Policy: s.Sleep.Policy, Machines: make([]sleep.Machine, len(m.node))}
	for k, i := range m.node {
		n := &nodes[i]
		m.of[i] = k
		m.snapshot.Machines[k] = sleep.Machine{
			Name: n.Name, Zone: n.Site.Name, Labels: n.Labels, Capacity: n.Capacity, Profile: n.Profile,
			Speed: n.Speed, PUE: n.Facility(), State: sleep.Awake, Since: s.Start,
		}
		m.horizon = max(m.horizon, m.snapshot.Machines[k].Horizon(&s.Sleep.Policy))
		n.Awake = true
	}
	m.boots, m.slept = make([]uint64, len(m.node)), make([][]int64, len(m.node))
	return m
}

func boots(n *sched.Node) bool { return n.Profile.BootSeconds > 0 && n.Profile.Sleeps() }

// emptied notes that the last job has left node i.
func (m *machines) emptied(i int, now time.Time) {
	if m != nil && m.of[i] >= 0 {
		m.snapshot.Machines[m.of[i]].Since = now
	}
}

// began notes what a job that starts asks for.
func (m *machines) began(r sched.Resources, at int64) {
	if m == nil {
		return
	}
	if hour := at / int64(time.Hour); hour != m.hour {
		m.recent[1] = sched.Resources{}
		if hour == m.hour+1 {
			m.recent[1] = m.recent[0]
		}
		m.hour, m.recent[0] = hour, sched.Resources{}
	}
	m.recent[0] = m.recent[0].Max(r)
}

// willStart notes when a job that is held is to start, and has machines decided on when that comes near.
func (e *engine) willStart(now time.Time, job int, at int64) {
	m := e.machines
	if m == nil {
		return
	}
	m.planned.push(event{at: at, kind: release, job: int32(job)})
	if near := at - int64(m.horizon); near > e.since(now) {
		e.events.push(event{at: near, kind: power})
	}
}

// decideSleep sends machines to sleep and wakes them.
func (e *engine) decideSleep(now time.Time, at int64) error {
	m := e.machines
	if m == nil {
		return nil
	}
	m.played = now
	s := &m.snapshot
	s.Now, s.Largest = now, m.recent[0].Max(m.recent[1])
	for k, i := range m.node {
		machine, n := &s.Machines[k], &e.nodes[i]
		machine.Free, machine.Jobs = n.Free, n.Jobs
		machine.Sleeps = m.cycles(k, at)
	}
	s.Needs = e.needs(s.Needs[:0], at)
	plan := sleep.Decide(s)
	for k := range plan.Verdicts {
		var err error
		switch plan.Verdicts[k].Do {
		case sleep.Sleep:
			err = e.switchMachine(now, k, sleep.Asleep)
		case sleep.Wake:
			s.Machines[k].Woken, s.Machines[k].WokenFor = now, plan.Verdicts[k].Owner
			err = e.switchMachine(now, k, sleep.Booting)
			e.events.push(event{at: at + int64(s.Machines[k].BootTime()), kind: booted, job: int32(m.node[k])})
		}
		if err != nil {
			return err
		}
	}
	if next := e.since(plan.Next); !plan.Next.IsZero() && (m.asked <= at || next < m.asked) {
		m.asked = next
		e.events.push(event{at: next, kind: power})
	}
	return nil
}

// cycles returns how often a machine was sent to sleep in the last 24 hours.
func (m *machines) cycles(k int, at int64) int {
	slept := m.slept[k]
	first, _ := slices.BinarySearch(slept, at-int64(24*time.Hour)+1)
	return len(slept) - first
}

// maxNeeds is for how many waiting jobs machines are looked for at once: they come up long before the rest is served.
const maxNeeds = 256

// needs collects the jobs that fit nowhere, and those that are planned to start soon.
func (e *engine) needs(needs []sleep.Need, at int64) []sleep.Need {
	m := e.machines
	binder, binds := e.strategy.(interface {
		Bound(s *sched.Snapshot, j *sched.Job) []string
	})
	add := func(job int, start time.Time, machines ...string) {
		j := &e.scenario.Jobs[job]
		sites := j.Sites
		if binds {
			sites = binder.Bound(&e.snapshot, j)
		}
		if len(machines) == 0 {
			machines = m.at(sites)
		}
		needs = append(needs, sleep.Need{
			Job: j.ID, Owner: j.Owner, At: start, Request: j.Request, Selector: j.Selector, Duration: j.Duration,
			Machines: machines,
		})
	}
	waiting := 0 // none is looked at where none can be helped
	if slices.ContainsFunc(m.snapshot.Machines, func(m sleep.Machine) bool { return m.State != sleep.Awake }) {
		waiting = maxNeeds
	}
	e.batchNeeds(at, waiting, add)
	if e.backfill != nil {
		for _, job := range e.backfill.jobs[:min(len(e.backfill.jobs), waiting)] {
			add(int(job), time.Time{})
		}
	}
	e.waiting.each(waiting, func(job int) { add(job, time.Time{}) })
	for len(m.planned) > 0 && m.planned[0].at <= at {
		m.planned.pop()
	}
	m.planned.until(at+int64(m.horizon), func(ev event) {
		if e.backfill != nil && e.backfill.held[ev.job].at != ev.at {
			return // it was put off anew, or has started
		}
		add(int(ev.job), e.scenario.Start.Add(time.Duration(ev.at)))
	})
	return needs
}

// batchNeeds adds those of a queue that is planned as a whole: what waits, and what is to start soon on a machine.
func (e *engine) batchNeeds(at int64, waiting int, add func(job int, start time.Time, machines ...string)) {
	b := e.batch
	if b == nil {
		return
	}
	for k, job := range b.jobs[:min(b.tried, waiting)] {
		if !b.kept[k] {
			add(int(job), time.Time{})
		}
	}
	for k, job := range b.jobs {
		if !b.kept[k] || b.queue[k].Place.Node == "" {
			continue
		}
		if place := b.queue[k].Place; e.since(place.Start) <= at+int64(e.machines.horizon) {
			add(int(job), place.Start, place.Node)
		}
	}
}

// at returns the names of the machines at some sites; of no sites none, which means all machines.
func (m *machines) at(sites []string) (names []string) {
	for k := range m.snapshot.Machines {
		if slices.Contains(sites, m.snapshot.Machines[k].Zone) {
			names = append(names, m.snapshot.Machines[k].Name)
		}
	}
	return names
}

// switchMachine changes the state of a machine.
func (e *engine) switchMachine(now time.Time, k int, to sleep.State) error {
	m := e.machines
	i, machine, slept := m.node[k], &m.snapshot.Machines[k], &e.result.Sleep
	if err := e.account.bookUntil(i, &e.nodes[i], now); err != nil {
		return err
	}
	switch to {
	case sleep.Booting:
		m.asleep += now.Sub(machine.Since)
		slept.BootEnergy += e.account.wake(i, &e.nodes[i], now)
		slept.BootTime += machine.BootTime()
		slept.Boots++
	case sleep.Awake:
		machine.Failed = 0
		e.candidates.change(i, func(n *sched.Node) { n.Free, n.Awake = n.Free.Add(n.Capacity), true })
		e.meters.changed(i, &e.nodes[i])
		e.freed = append(e.freed, i)
	case sleep.Asleep:
		if machine.State == sleep.Booting { // it draws as much as asleep, beside what the boot took
			machine.Failed++
			slept.FailedBoots++
			break
		}
		at := e.since(now)
		m.slept[k] = append(m.slept[k], at)
		slept.MaxCycles = max(slept.MaxCycles, m.cycles(k, at))
		e.candidates.change(i, func(n *sched.Node) { n.Free, n.Awake = n.Free.Sub(n.Capacity), false })
		e.meters.changed(i, &e.nodes[i])
	}
	machine.State, machine.Since = to, now
	e.result.Power = append(e.result.Power, PowerChange{Node: machine.Name, At: now, State: to})
	return nil
}

// boot ends the boot of node i, which may have failed.
func (e *engine) boot(now time.Time, i int) error {
	k := e.machines.of[i]
	e.machines.boots[k]++
	if e.scenario.BootFails(e.nodes[i].Name, e.machines.boots[k]) {
		return e.switchMachine(now, k, sleep.Asleep)
	}
	return e.switchMachine(now, k, sleep.Awake)
}

// BootFails reports whether a boot of a node fails, its first if boot is 1. It depends on the seed, the node and how
// often it booted alone, so strategies have the same luck.
func (s *Scenario) BootFails(node string, boot uint64) bool {
	h := fnv.New64a()
	h.Write([]byte(node))
	return rand.New(rand.NewPCG(s.Policy.Seed^h.Sum64(), boot)).Float64() < s.Sleep.BootFailures
}

// over reports whether nothing is left to do but to let machines sleep.
func (e *engine) over() bool {
	return e.machines != nil && e.arrived == len(e.arrivals) && e.running == 0 && e.held == 0 &&
		e.waiting.length == 0 && (e.batch == nil || len(e.batch.jobs) == 0) &&
		(e.backfill == nil || len(e.backfill.jobs) == 0)
}

// sleptUntil returns for how long machines have slept in all.
func (m *machines) sleptUntil(t time.Time) time.Duration {
	if m == nil {
		return 0
	}
	all := m.asleep
	for k := range m.snapshot.Machines {
		if machine := &m.snapshot.Machines[k]; machine.State == sleep.Asleep {
			all += t.Sub(machine.Since)
		}
	}
	return all
}
