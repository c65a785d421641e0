package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sim"
)

// maxNodes is the maximum number of rows. If there are more nodes, each row is a kind of node.
const maxNodes = 40

// nodeRow contains the figures of a node, or of all nodes of a kind, in each slot.
type nodeRow struct {
	name  string
	nodes int
	cores float64
	cells []sim.Cell
}

// nodeRows returns the rows of a run in the order of its nodes, and the length of a slot. runs is the number of
// runs in the figure. Kinds beyond maxNodes are combined into one row.
func nodeRows(r *sim.Result, runs int) (rows []nodeRow, slot time.Duration) {
	at := make([]int, len(r.Scenario.Nodes)) // the row of each node
	for i := range at {
		n := &r.Scenario.Nodes[i]
		name := n.Name
		if len(at) > maxNodes {
			name = profileName(n)
		}
		is := func(row nodeRow) bool { return row.name == name }
		if !slices.ContainsFunc(rows, is) && len(rows) >= maxNodes {
			name = "others"
		}
		if !slices.ContainsFunc(rows, is) {
			rows = append(rows, nodeRow{name: name})
		}
		at[i] = slices.IndexFunc(rows, is)
		rows[at[i]].nodes++
		rows[at[i]].cores += float64(n.Capacity.MilliCPU) / 1000
	}
	most := min(60, max(12, 10000/max(1, runs*len(rows)))) // limits the size of the figure
	group := max(1, (len(r.Cells)+most-1)/most)
	for k := range rows {
		rows[k].cells = make([]sim.Cell, (len(r.Cells)+group-1)/group)
	}
	for s, cells := range r.Cells {
		for i, c := range cells {
			sum := &rows[at[i]].cells[s/group]
			sum.Energy += c.Energy
			sum.Carbon += c.Carbon
			sum.Cost += c.Cost
			sum.Busy += c.Busy
			sum.Asleep += c.Asleep
		}
	}
	return rows, time.Duration(group) * r.CellStep
}

// seconds returns the length of slot s of a run. The last slot ends with the run.
func seconds(r *sim.Result, slot time.Duration, s int) float64 {
	return max(1e-9, min(slot, r.Accounted.Sub(r.Scenario.Start)-time.Duration(s)*slot).Seconds())
}

// watts returns the mean power of one of the row's nodes in a slot.
func (row *nodeRow) watts(s int, seconds float64) float64 {
	return float64(row.cells[s].Energy) / seconds / float64(row.nodes)
}

// asleep returns the fraction of a slot during which the row's nodes slept.
func (row *nodeRow) asleep(s int, seconds float64) float64 {
	return row.cells[s].Asleep / seconds / float64(row.nodes)
}

// nodesFigure draws the power of every node over time, in a panel for each run.
func nodesFigure(results []*sim.Result) figure {
	start, end := period(results)
	names := runNames(results)
	title, what := "Mean power of each node including PUE, estimated (W)", "Node"
	if all := len(results[0].Scenario.Nodes); all > maxNodes {
		title = fmt.Sprintf("Mean power per node by kind, of %d nodes, including PUE, estimated (W)", all)
		what = "Kind"
	}
	maps := make([]heatmap, len(results))
	for i, r := range results {
		rows, slot := nodeRows(r, len(results))
		maps[i] = heatmap{title: names[i], what: what, slot: slot.Seconds()}
		for _, row := range rows {
			drawn := heatRow{name: row.name}
			for s := range row.cells {
				length := seconds(r, slot, s)
				drawn.cells = append(drawn.cells, heat{row.watts(s, length), row.asleep(s, length) >= 0.5})
			}
			maps[i].rows = append(maps[i].rows, drawn)
		}
	}
	return heatFigure(title, "asleep at least half of the time", start, end.Sub(start).Seconds(),
		runColumns(results), maps)
}

// runColumns returns the number of columns of panels. Runs with sleeping machines are next to those with machines
// that stay on.
func runColumns(results []*sim.Result) int {
	if sleepAndStay(results) || len(results) > 3 {
		return 2
	}
	return 1
}

// cellTable lists the data of nodesFigure, and the cost. The cells of a run add up to its totals.
func cellTable(results []*sim.Result) *Table {
	t := Sheet("strategy", "emptyNodes", "node", "nodes", "from", "until", "watts", "energyKWh", "emissionsKg", "cost",
		"adjustedCost", "utilisation", "asleep")
	for _, r := range results {
		rows, slot := nodeRows(r, len(results))
		for _, row := range rows {
			for s := range row.cells {
				c, length, from := &row.cells[s], seconds(r, slot, s), r.Scenario.Start.Add(time.Duration(s)*slot)
				t.Add(r.Strategy, emptyNodes(r), row.name, row.nodes, from,
					from.Add(time.Duration(length*float64(time.Second))), row.watts(s, length), c.Energy.KWh(),
					c.Carbon.Kg(), float64(c.Cost),
					adjustedCost(float64(c.Cost), float64(c.Carbon), r.Scenario.CarbonPrice),
					over(c.Busy, row.cores*length), row.asleep(s, length))
			}
		}
	}
	return t
}

// timeline lists the state of the cluster over time, as drawn by timelineFigure.
func timeline(results []*sim.Result) *Table {
	t := Sheet("strategy", "emptyNodes", "at", "watts", "idleWatts", "asleepWatts", "gramsPerKWh", "running", "queued",
		"held")
	for _, r := range results {
		for _, s := range r.Timeline {
			t.Add(r.Strategy, emptyNodes(r), s.Time, float64(s.Power), float64(s.Idle), float64(s.Asleep),
				float64(s.Intensity), s.Running, s.Queued, s.Held)
		}
	}
	return t
}
