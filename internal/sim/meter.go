package sim

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// Live configures the meters of nodes as seen by strategies. The zero Live is an ideal meter that returns the
// current power of a node. Only strategies that use live power incur its cost.
type Live struct {
	Off    bool          // no meters
	Period time.Duration // readings are the mean power of the last whole period since the start; 0 for ideal readings
	MaxAge time.Duration // older readings are ignored; 0 for any age
}

// meters contains the meters of all nodes. The power of a node is constant between two changes, so the energy at
// the end of a period is exact, and it is computed only when read.
type meters struct {
	live  Live
	start time.Time
	use   *use
	nodes []meter
	of    []reserved // per job
}

// meter is the meter of one node: its energy since the start, now and at the ends of the last two whole periods.
type meter struct {
	at           time.Time
	power        energy.Watts
	energy       energy.Joules
	periods      int64 // number of whole periods until at
	last, before energy.Joules

	provisional energy.Watts // of jobs placed after the last period
}

// reserved is the expected power of a job, from the period of its placement on.
type reserved struct {
	power  energy.Watts
	period int64
}

// newMeters returns nil if the strategy does not use live power.
func newMeters(s *Scenario, strategy strategy.Strategy, u *use) *meters {
	reader, ok := strategy.(interface{ ReadsLive() bool })
	if !ok || !reader.ReadsLive() || s.Live.Off {
		return nil
	}
	m := &meters{
		live: s.Live, start: s.Start, use: u, nodes: make([]meter, len(s.Nodes)), of: make([]reserved, len(s.Jobs)),
	}
	for i := range m.nodes {
		m.nodes[i] = meter{at: s.Start, power: s.Nodes[i].Power()}
	}
	return m
}

// advance updates a meter to the given time.
func (m *meters) advance(i int, now time.Time) *meter {
	n := &m.nodes[i]
	if m.live.Period > 0 {
		if whole := int64(now.Sub(m.start) / m.live.Period); whole > n.periods {
			before := n.last
			if whole > n.periods+1 {
				before = n.until(m.start.Add(time.Duration(whole-1) * m.live.Period))
			}
			n.last, n.before = n.until(m.start.Add(time.Duration(whole)*m.live.Period)), before
			n.periods, n.provisional = whole, 0 // the new reading includes all placed jobs
		}
	}
	n.energy = n.until(now)
	n.at = now
	return n
}

// until returns the energy until t, which must not be before the last change.
func (n *meter) until(t time.Time) energy.Joules { return n.energy + n.power.For(t.Sub(n.at)) }

// read sets the live power of a node.
func (m *meters) read(i int, n *sched.Node, now time.Time) {
	if m == nil {
		return
	}
	meter := m.advance(i, now)
	if m.live.Period == 0 {
		n.Live, n.HasLive, n.Provisional = meter.power, true, 0
		return
	}
	age := now.Sub(m.start) - time.Duration(meter.periods)*m.live.Period
	n.HasLive = meter.periods > 0 && (m.live.MaxAge == 0 || age <= m.live.MaxAge)
	n.Live = energy.Watts(float64(meter.last-meter.before) / m.live.Period.Seconds())
	n.Provisional = meter.provisional
}

// place records that a job, as seen by strategies, is about to be placed on node i.
func (m *meters) place(i int, n *sched.Node, job int, j *sched.Job, now time.Time) {
	if m == nil {
		return
	}
	m.read(i, n, now)
	r := reserved{power: n.Added(j), period: m.nodes[i].periods}
	m.of[job] = r
	m.nodes[i].provisional += r.power
}

// end records that a job is about to leave node i.
func (m *meters) end(i, job int, now time.Time) {
	if m == nil {
		return
	}
	n := m.advance(i, now)
	if r := m.of[job]; r.period == n.periods {
		n.provisional -= r.power // no reading will include the job
	}
}

// changed updates the power of node i.
func (m *meters) changed(i int, n *sched.Node) {
	if m != nil {
		m.nodes[i].power = m.use.power(i, n)
	}
}
