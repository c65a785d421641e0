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

// SleepRules configures the sleep of machines with a boot time in their power profiles.
type SleepRules struct {
	sleep.Policy
	BootFailures float64 // fraction of boots that fail and must be repeated
}

// Sleep contains statistics about sleeping machines in a run.
type Sleep struct {
	Boots       int // of sleeping machines, including failed boots
	FailedBoots int
	BootEnergy  energy.Joules // consumed by boots, at the sites' meters
	BootTime    time.Duration // total boot time of all machines
	Asleep      time.Duration // total over all machines
	MaxCycles   int           // maximum number of times that one machine was put to sleep within 24 hours
}

// PowerChange records that a machine was put to sleep, started to boot, or became awake.
type PowerChange struct {
	Node  string
	At    time.Time
	State sleep.State // Asleep after Booting means that the boot failed
}

// machines puts unused machines to sleep and wakes them according to [sleep.Decide]. A nil *machines means that no
// machine takes time to boot, and machines sleep whenever they are empty.
type machines struct {
	snapshot sleep.Snapshot
	node     []int         // per index of snapshot.Machines: index of the node
	of       []int         // the inverse; -1 for nodes without a boot time
	horizon  time.Duration // maximum time before planned work at which a machine may be needed
	boots    []uint64      // per machine: number of boots
	slept    [][]int64     // per machine: times at which it was put to sleep
	planned  eventHeap     // planned starts of held jobs; some may have started since
	asked    int64         // time of the next decision; 0 if none is scheduled
	recent   [2]sched.Resources
	hour     int64         // hour of recent[0]; recent[1] is for the hour before
	played   time.Time     // time of the last decision
	asleep   time.Duration // total sleep time of completed sleeps
}

// newMachines returns nil if no machine takes time to boot.
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

// emptied records that the last job has left node i.
func (m *machines) emptied(i int, now time.Time) {
	if m != nil && m.of[i] >= 0 {
		m.snapshot.Machines[m.of[i]].Since = now
	}
}

// began records the request of a job that starts.
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

// willStart records the planned start of a held job and schedules a decision on machines before that time.
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

// decideSleep puts machines to sleep and wakes them.
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

// cycles returns how many times a machine was put to sleep in the last 24 hours.
func (m *machines) cycles(k int, at int64) int {
	slept := m.slept[k]
	first, _ := slices.BinarySearch(slept, at-int64(24*time.Hour)+1)
	return len(slept) - first
}

// maxNeeds limits the number of waiting jobs considered in one decision. The machines for them boot long before the
// remaining jobs are due.
const maxNeeds = 256

// needs collects the jobs that do not fit on any node, and jobs that are planned to start soon.
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
	waiting := 0 // waiting jobs are ignored if no machine could be woken
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
			return // it was held again or has started
		}
		add(int(ev.job), e.scenario.Start.Add(time.Duration(ev.at)))
	})
	return needs
}

// batchNeeds adds the needs of a queue that is planned as a whole: the waiting jobs, and the jobs planned to start
// soon on a machine.
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

// at returns the names of the machines at the given sites. Without sites it returns none, which means all machines.
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
		if machine.State == sleep.Booting { // a failed boot draws as much as sleep, in addition to the boot energy
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

// boot completes the boot of node i, which may have failed.
func (e *engine) boot(now time.Time, i int) error {
	k := e.machines.of[i]
	e.machines.boots[k]++
	if e.scenario.BootFails(e.nodes[i].Name, e.machines.boots[k]) {
		return e.switchMachine(now, k, sleep.Asleep)
	}
	return e.switchMachine(now, k, sleep.Awake)
}

// BootFails reports whether a boot of a node fails; boot is 1 for the first one. The result depends only on the
// seed, the node and the number of the boot, so it is the same for all strategies.
func (s *Scenario) BootFails(node string, boot uint64) bool {
	h := fnv.New64a()
	h.Write([]byte(node))
	return rand.New(rand.NewPCG(s.Policy.Seed^h.Sum64(), boot)).Float64() < s.Sleep.BootFailures
}

// over reports whether the only remaining action is to put machines to sleep.
func (e *engine) over() bool {
	return e.machines != nil && e.arrived == len(e.arrivals) && e.running == 0 && e.held == 0 &&
		e.waiting.length == 0 && (e.batch == nil || len(e.batch.jobs) == 0) &&
		(e.backfill == nil || len(e.backfill.jobs) == 0)
}

// sleptUntil returns the total sleep time of all machines.
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
