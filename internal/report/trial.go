package report

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// The families of strategies. Each family is compared with its own optimum, because strategies that may suspend
// running jobs can save more.
const (
	NonPreemptive = "non-preemptive"
	Interruptible = "interruptible"
	Elastic       = "elastic" // may also choose the number of replicas of elastic jobs
)

// Trial is one run of a comparison: one strategy in one zone from one start. A results directory contains trials,
// one per line, and a report is computed only from its trials.
type Trial struct {
	TrialName
	Counts

	Accounted  time.Time `json:"accounted"` // end of the accounted period; see [Trial.Extend]
	Jobs       int       `json:"jobs"`
	Priced     bool      `json:"priced"`
	MeanWait   float64   `json:"meanWaitSeconds"` // time between submission and finish without running
	P95Wait    float64   `json:"p95WaitSeconds"`
	Turnaround float64   `json:"meanTurnaroundSeconds"`
	// minimum emissions of any schedule of a family, by family; unknown families are absent
	Optima map[string]float64 `json:"optimumGramsCO2e,omitempty"`

	Suspensions int           `json:"suspensions"`
	Lost        time.Duration `json:"lost"`          // nanoseconds of repeated work
	Day         *Day          `json:"day,omitempty"` // of trials that are drawn
}

// Counts contains the figures of a trial that are added up over trials.
type Counts struct {
	Consumption

	// jobs that were delayed longer than allowed by holds, suspensions and repeated work
	Violations int `json:"delayViolations"`
	// jobs that were delayed longer than allowed only by the work repeated after their last suspension; not
	// included in delayViolations
	Tolerated int `json:"tolerated"`
	Unplaced  int `json:"unplacedJobs"`
	// of sleeping machines
	Boots         int     `json:"boots,omitempty"`
	FailedBoots   int     `json:"failedBoots,omitempty"`
	BootEnergyKWh float64 `json:"bootEnergyKWh,omitempty"`
}

func (c *Counts) add(of *Counts) {
	c.Consumption.add(&of.Consumption)
	c.Violations += of.Violations
	c.Tolerated += of.Tolerated
	c.Unplaced += of.Unplaced
	c.Boots += of.Boots
	c.FailedBoots += of.FailedBoots
	c.BootEnergyKWh += of.BootEnergyKWh
}

// Consumption is the consumption of all nodes over a time.
type Consumption struct {
	Sums
	NodeEnergy map[string]float64 `json:"nodeEnergyKWh"` // by power profile
}

func (c *Consumption) add(of *Consumption) {
	c.EnergyKWh += of.EnergyKWh
	c.Grams += of.Grams
	c.Cost += of.Cost
	for name, kWh := range of.NodeEnergy {
		c.NodeEnergy[name] += kWh
	}
}

// Variant is a strategy with its forecast, restart cost and other settings. It identifies a row of the comparison.
type Variant struct {
	Strategy string `json:"strategy"`
	Forecast string `json:"forecast,omitempty"` // empty if the strategy uses no forecast
	// nanoseconds of work that are repeated at each resume
	RestartCost time.Duration `json:"restartCost,omitempty"`
	StayOn      bool          `json:"stayOn,omitempty"` // machines that can sleep stayed on
}

// TrialName identifies a trial. It contains no results.
type TrialName struct {
	Variant
	Zone       string    `json:"zone"`
	Start      time.Time `json:"start"`
	StartIndex int       `json:"startIndex"`
	Seed       uint64    `json:"seed"`
	Family     string    `json:"family"`
}

// Day contains the data of one day of a trial, in equal steps.
type Day struct {
	Start     time.Time     `json:"start"`
	Step      time.Duration `json:"step"`
	Intensity []float64     `json:"carbonIntensity"` // in gCO2e/kWh
	Cores     []float64     `json:"cores"`           // of running jobs
}

// Name returns the trial without its results.
func (t *Trial) Name() Trial { return Trial{TrialName: t.TrialName} }

// TakeFigures copies the results of a run with the same inputs. The run may have a different name, such as another
// index of its start or another short name of its strategy.
func (t *Trial) TakeFigures(of *Trial) {
	name := t.TrialName
	*t = *of
	t.TrialName = name
}

// NewTail returns the consumption of nodes without jobs between two times: the end of a trial, and the end of the
// longest trial with the same zone, start and seed.
func NewTail(nodes []sched.Node, from, until time.Time) (*Consumption, error) {
	t := &Consumption{NodeEnergy: map[string]float64{}}
	for i := range nodes {
		n := &nodes[i]
		if n.Profile.Sleep == 0 {
			continue
		}
		for _, signal := range [...]*grid.Series{n.Site.Carbon.Series, n.Site.Price.Series} {
			if signal != nil && !signal.Covers(from, until) {
				return nil, fmt.Errorf("%sno signal covers %s to %s", n.Site.Heading(), from.Format(time.RFC3339),
					until.Format(time.RFC3339))
			}
		}
		e := n.Site.Account(n.Profile.Sleep, 0, sched.Window{Start: from, End: until})
		t.Sums.add(&e)
		t.NodeEnergy[profileName(n)] += e.Energy.KWh()
	}
	return t, nil
}

// Extend adds the consumption of empty nodes after the trial, so that all trials of a cell are charged for the same
// period.
func (t *Trial) Extend(tail *Consumption) {
	t.NodeEnergy = maps.Clone(t.NodeEnergy) // it may be shared with the stored trial
	t.Consumption.add(tail)
}

func profileName(n *sched.Node) string { return cmp.Or(n.Profile.Name, n.Name) }

// ID returns a description of the trial for people.
func (t *Trial) ID() string {
	id := fmt.Sprintf("%s in %s from %s", t.Strategy, t.Zone, t.Start.UTC().Format(time.RFC3339))
	if t.Forecast != "" {
		id += ", forecast " + t.Forecast
	}
	if t.RestartCost > 0 {
		id += fmt.Sprintf(", restart cost %v", t.RestartCost)
	}
	if t.StayOn {
		id += ", machines stay on"
	}
	return id
}

// Measure sets the results of the trial. It does not change the name.
func (t *Trial) Measure(r *sim.Result) {
	run := summarise(r)
	t.Accounted = r.Accounted.UTC()
	t.Jobs, t.EnergyKWh, t.Grams, t.Cost, t.Priced = run.Jobs, run.EnergyKWh, float64(r.Carbon), run.Cost, run.Priced
	t.MeanWait, t.P95Wait, t.Turnaround = run.MeanWaitSeconds, run.P95WaitSeconds, run.MeanCompletionSeconds
	t.Suspensions, t.Violations, t.Tolerated = run.Suspensions, run.DelayViolations, run.Tolerated
	t.Unplaced = run.UnplacedJobs
	t.Boots, t.FailedBoots, t.BootEnergyKWh = r.Sleep.Boots, r.Sleep.FailedBoots, r.Sleep.BootEnergy.KWh()
	for i := range r.Outcomes {
		t.Lost += r.Outcomes[i].Lost
	}
	t.NodeEnergy = map[string]float64{}
	for i := range r.Scenario.Nodes {
		t.NodeEnergy[profileName(&r.Scenario.Nodes[i])] += r.NodeEnergy[i].KWh()
	}
}

// NewDay returns the data of one day of a run. The carbon intensity of the day must be known.
func NewDay(r *sim.Result, from time.Time) *Day {
	const step, steps = 15 * time.Minute, 96
	series := r.Scenario.Sites[0].Carbon.Series
	d := &Day{Start: from.UTC(), Step: step, Intensity: make([]float64, steps), Cores: make([]float64, steps)}
	for k := range d.Intensity {
		begin := from.Add(time.Duration(k) * step)
		d.Intensity[k] = series.Mean(begin, begin.Add(step))
	}
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		if o.Placed.Node == "" {
			continue
		}
		j := &r.Scenario.Jobs[i]
		for k, w := range o.Windows() {
			sized := *j
			if o.Replicas != nil {
				sized = j.On(o.Replicas[k])
			}
			d.add(w, float64(sized.Request.MilliCPU)/1000)
		}
	}
	return d
}

// add adds cores that are busy during a window.
func (d *Day) add(w sched.Window, cores float64) {
	first := max(0, int(w.Start.Sub(d.Start)/d.Step))
	for k := first; k < len(d.Cores); k++ {
		begin := d.Start.Add(time.Duration(k) * d.Step)
		if !w.End.After(begin) {
			return
		}
		shared := min(w.End.Sub(begin), d.Step) - max(0, w.Start.Sub(begin))
		d.Cores[k] += cores * max(0, shared).Seconds() / d.Step.Seconds()
	}
}
