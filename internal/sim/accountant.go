package sim

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// accountant integrates the power of every node over time. The power of a node is constant between two changes of
// its jobs, and signals are integrated exactly, so the totals have no discretisation error. It uses the true
// signals, regardless of the forecasts given to strategies.
type accountant struct {
	start time.Time
	use   *use
	sites []*sched.Site // per node
	since []time.Time   // per node: end of the accounted time
	total Totals
	nodes []energy.Joules
	bins  []bin
	cells [][]Cell // per interval of CellStep, and node
	step  time.Duration
}

// bin is one interval of the timeline.
type bin struct {
	energy energy.Joules
	carbon energy.Grams
	parts  parts
}

// parts contains the amounts or fractions of energy that machines draw while idle and while asleep.
type parts struct{ idle, asleep float64 }

// partsOf returns the fractions of the power of a node that it would draw without jobs, and that it draws while
// asleep.
func partsOf(n *sched.Node, power energy.Watts) parts {
	switch {
	case power <= 0:
		return parts{}
	case n.Asleep():
		return parts{asleep: 1}
	}
	bare := *n
	bare.Free, bare.Jobs, bare.Awake = n.Capacity, 0, true
	return parts{idle: min(1, float64(bare.Power()/power))}
}

// perCell is the number of timeline intervals in a [Cell]. The values per node can be coarser.
const perCell = 5

func newAccountant(start time.Time, nodes []sched.Node, u *use, step time.Duration) *accountant {
	a := &accountant{
		start: start, use: u, sites: make([]*sched.Site, len(nodes)), since: make([]time.Time, len(nodes)),
		nodes: make([]energy.Joules, len(nodes)), step: step,
	}
	for i := range a.since {
		a.since[i], a.sites[i] = start, nodes[i].Site
	}
	return a
}

// bookUntil adds the energy of node i until t to the totals. It must be called before the node changes.
func (a *accountant) bookUntil(i int, n *sched.Node, t time.Time) error {
	if !t.After(a.since[i]) {
		return nil
	}
	power, site := a.use.power(i, n), a.sites[i]
	window := sched.Window{Start: a.since[i], End: t}
	a.since[i] = t
	for _, signal := range [2]*grid.Series{site.Carbon.Series, site.Price.Series} {
		if signal != nil && !signal.Covers(window.Start, window.End) {
			return fmt.Errorf("%sthe signal covers %s to %s, but the run reaches %s: start earlier, provide a longer "+
				"series, or shorten the trace with --jobs, or with jobs below workload",
				site.Heading(), signal.Start().Format(time.RFC3339), signal.End().Format(time.RFC3339),
				window.End.Format(time.RFC3339))
		}
	}
	e, shares := site.Account(power, 0, window), partsOf(n, power)
	a.book(i, e)
	// In most cases the window is within one interval.
	if k := window.Start.Sub(a.start) / a.step; !t.After(a.start.Add((k + 1) * a.step)) {
		a.bin(i, n, window, e, shares)
		return nil
	}
	a.chart(i, n, power, shares, window)
	return nil
}

// wake records the energy of waking node i at t and returns it.
func (a *accountant) wake(i int, n *sched.Node, t time.Time) energy.Joules {
	if n.Profile.WakeUp == 0 {
		return 0
	}
	w := sched.Window{Start: t, End: t}
	e := a.sites[i].Account(0, n.Profile.WakeUp, w)
	a.book(i, e)
	a.bin(i, n, w, e, parts{})
	return e.Energy
}

func (a *accountant) book(i int, e sched.Estimate) {
	a.nodes[i] += e.Energy
	a.total.Energy += e.Energy
	a.total.Carbon += e.Carbon
	a.total.Cost += e.Cost
}

// chart distributes a window over the bins of the timeline.
func (a *accountant) chart(i int, n *sched.Node, power energy.Watts, shares parts, w sched.Window) {
	for w.Start.Before(w.End) {
		k := w.Start.Sub(a.start) / a.step
		part := sched.Window{Start: w.Start, End: a.start.Add((k + 1) * a.step)}
		part.End = timeutil.Earlier(part.End, w.End)
		a.bin(i, n, part, a.sites[i].Account(power, 0, part), shares)
		w.Start = part.End
	}
}

// bin adds the energy of node i to the timeline interval that contains the window, and to the node's own interval.
func (a *accountant) bin(i int, n *sched.Node, w sched.Window, e sched.Estimate, shares parts) {
	k := int(w.Start.Sub(a.start) / a.step)
	for len(a.bins) <= k {
		a.bins = append(a.bins, bin{})
	}
	a.bins[k].energy += e.Energy
	a.bins[k].carbon += e.Carbon
	a.bins[k].parts.idle += shares.idle * float64(e.Energy)
	a.bins[k].parts.asleep += shares.asleep * float64(e.Energy)
	for len(a.cells) <= k/perCell {
		a.cells = append(a.cells, make([]Cell, len(a.nodes)))
	}
	c := &a.cells[k/perCell][i]
	c.Energy += e.Energy
	c.Carbon += e.Carbon
	c.Cost += e.Cost
	switch length := w.End.Sub(w.Start).Seconds(); {
	case n.Asleep():
		c.Asleep += length
	case n.Jobs > 0:
		c.Busy += float64(n.Capacity.MilliCPU-n.Free.MilliCPU) / 1000 * length
	}
}
