package report

import (
	"bytes"
	"encoding/csv"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// rowsOf returns the rows of a table's CSV by column name, with numbers as float64.
func rowsOf(t *testing.T, table *Table) (rows []map[string]any) {
	t.Helper()
	var b bytes.Buffer
	if err := table.CSV(&b); err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, cells := range all[1:] {
		row := map[string]any{}
		for i, cell := range cells {
			row[all[0][i]] = cell
			if v, err := strconv.ParseFloat(cell, 64); err == nil {
				row[all[0][i]] = v
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// oneNode returns a scenario with a node of 10 cores that draws 100 to 300 W, and 10 W asleep, with a PUE of 1.2,
// at 300 g and 0.25 per kWh. The carbon price is 100 per tonne.
func oneNode(t *testing.T, values ...float64) *sim.Scenario {
	t.Helper()
	start := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	carbon, err := grid.NewSeries(start, 10*time.Minute, values)
	if err != nil {
		t.Fatal(err)
	}
	price, err := grid.Constant(start, 24*time.Hour, 0.25)
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{
		Name: "home", Zone: "DE", PUE: 1.2, Carbon: grid.Signal{Series: carbon}, Price: grid.Signal{Series: price},
	}
	capacity := sched.Resources{MilliCPU: 10000, Memory: 1 << 30}
	return &sim.Scenario{Start: start, Sites: []*sched.Site{site}, CarbonPrice: 100, Nodes: []sched.Node{{
		Name: "n", Site: site, Capacity: capacity, Free: capacity, Profile: &energy.Profile{Idle: 100, Max: 300, Sleep: 10},
	}}}
}

func add(s *sim.Scenario, id string, after, duration, delay time.Duration) {
	s.Jobs = append(s.Jobs, sched.Job{
		ID: id, Submitted: s.Start.Add(after), Duration: duration, AllowedDelay: delay,
		Request: sched.Resources{MilliCPU: 5000},
	})
}

var nearly = cmpopts.EquateApprox(1e-9, 1e-12)

// The node sleeps for five minutes at 12 W, and runs a job for ten minutes at 240 W, including PUE.
func TestCellsByHand(t *testing.T) {
	s := oneNode(t, 300, 300, 300)
	add(s, "a", 5*time.Minute, 10*time.Minute, 0)
	row := func(from, until string, watts, kWh, kg, cost, adjusted, used, asleep float64) map[string]any {
		return map[string]any{
			"strategy": "energy", "emptyNodes": "sleep", "node": "n", "nodes": 1., "from": "2026-06-01T00:" + from + "Z",
			"until": "2026-06-01T00:" + until + "Z", "watts": watts, "energyKWh": kWh, "emissionsKg": kg, "cost": cost,
			"adjustedCost": adjusted, "utilisation": used, "asleep": asleep,
		}
	}
	want := []map[string]any{
		row("00:00", "05:00", 12, 0.001, 0.0003, 0.00025, 0.00028, 0, 1),
		row("05:00", "10:00", 240, 0.02, 0.006, 0.005, 0.0056, 0.5, 0),
		row("10:00", "15:00", 240, 0.02, 0.006, 0.005, 0.0056, 0.5, 0),
	}
	if diff := cmp.Diff(want, rowsOf(t, cellTable(plotRuns(t, s, "energy"))), nearly); diff != "" {
		t.Errorf("nodes.csv (-want +got):\n%s", diff)
	}
}

// The rows of nodes add up to the totals of the run, for single nodes, for kinds of nodes, and for too many kinds.
func TestCellsSumToTheRun(t *testing.T) {
	for _, sites := range []string{"a", "abcd", "abcde"} {
		var all []*sched.Site
		for _, name := range sites {
			all = append(all, &sched.Site{Name: string(name), Zone: "DE", PUE: 1.3})
		}
		s := plotScenario(t, 300, all...)
		s.CarbonPrice = 80
		if sites == "abcde" {
			s.Nodes[0].Profile.Name = "kind"
			s.Nodes[49].Profile = s.Nodes[0].Profile
		}
		for _, r := range plotRuns(t, s, "least-allocated", "carbon+window") {
			sums, names := map[string]float64{}, map[string]bool{}
			var busy float64
			for _, row := range rowsOf(t, cellTable([]*sim.Result{r})) {
				for _, name := range []string{"energyKWh", "emissionsKg", "cost", "adjustedCost"} {
					sums[name] += row[name].(float64)
				}
				names[row["node"].(string)] = true
				from, _ := time.Parse(time.RFC3339, row["from"].(string))
				until, _ := time.Parse(time.RFC3339, row["until"].(string))
				busy += row["utilisation"].(float64) * until.Sub(from).Seconds() * 16 * row["nodes"].(float64)
			}
			run := summarise(r)
			want := map[string]float64{
				"energyKWh": run.EnergyKWh, "emissionsKg": run.EmissionsKg, "cost": 0, "adjustedCost": *run.AdjustedCost,
			}
			if diff := cmp.Diff(want, sums, nearly); diff != "" {
				t.Errorf("%s at %s (-run +sums of cells):\n%s", r.Strategy, sites, diff)
			}
			if math.Abs(busy-r.BusyCPU) > 1e-6*busy {
				t.Errorf("%s at %s: cells have %v core-seconds, want %v as in the run", r.Strategy, sites, busy, r.BusyCPU)
			}
			if want := map[string]int{"a": 10, "abcd": 40, "abcde": 41}[sites]; len(names) != want {
				t.Errorf("%s at %s: got %d rows, want %d", r.Strategy, sites, len(names), want)
			}
		}
	}
}

// The grid is clean from the tenth minute on, so that jobs that may wait are held until then.
func TestHoldsByHand(t *testing.T) {
	s := oneNode(t, 500, 100, 100, 100, 600, 600, 600, 600, 600)
	add(s, "waits", time.Minute, 20*time.Minute, 30*time.Minute)
	add(s, "urgent", 0, 5*time.Minute, 0)
	want := []map[string]any{{
		"strategy": "energy+window", "emptyNodes": "sleep", "job": "waits", "submitted": "2026-06-01T00:01:00Z",
		"released": "2026-06-01T00:10:00Z", "started": "2026-06-01T00:10:00Z", "finished": "2026-06-01T00:30:00Z",
		"latestStart": "2026-06-01T00:31:00Z", "finishBy": "", "heldSeconds": 540.,
	}}
	results := plotRuns(t, s, "energy", "energy+window")
	if diff := cmp.Diff(want, rowsOf(t, holdTable(results))); diff != "" {
		t.Errorf("holds.csv (-want +got):\n%s", diff)
	}
	for i := range 80 {
		add(s, "w"+strconv.Itoa(i), time.Duration(i)*time.Second, time.Minute, 20*time.Minute)
	}
	for strategy, want := range map[string]string{
		"energy": "no job was held", "energy+window": "holds.csv has 21 more",
	} {
		files := svgs(plotRuns(t, s, strategy))
		if !strings.Contains(string(files["holds.svg"]), want) {
			t.Errorf("%s: holds.svg does not contain %q", strategy, want)
		}
	}
}

// A long run is limited to the week with the most holds, and bars end with the week.
func TestHoldsOfALongRun(t *testing.T) {
	s, day := oneNode(t, 300), 24*time.Hour
	r := &sim.Result{Strategy: "energy+window", Scenario: s, Accounted: s.Start.Add(90 * day)}
	for _, at := range []time.Duration{2 * day, 29 * day, 30 * day, 35 * day, 37 * day, 60 * day} {
		add(s, "d"+strconv.Itoa(int(at/day)), at+12*time.Hour, 3*day, 2*day)
	}
	add(s, "also", 30*day, time.Hour, 20*day)
	for i, j := range s.Jobs {
		start := j.Submitted.Add(6 * time.Hour)
		r.Outcomes = append(r.Outcomes, sim.Outcome{
			Job: i, Hold: &sched.Decision{}, Released: start, Start: start, Finish: start.Add(j.Duration),
			Placed: sim.Placed{Node: "n"},
		})
	}
	f := holdsFigure([]*sim.Result{r})
	const want = "The longest holds in the week with the most holds, from 2026-06-29, in order of submission. " +
		"holds.csv has 4 more."
	p := f.plots[0][0]
	if f.keys[0][0].name != want || p.X.Max != 7*day.Seconds() || p.Y.Min != 0.5-3 {
		t.Errorf("title %q, %v s, rows until %v, want %q, a week and 3 rows", f.keys[0][0].name, p.X.Max, p.Y.Min, want)
	}
}
