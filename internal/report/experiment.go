package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// ExperimentTrial is an arm of an experiment, which is one contestant in one round.
type ExperimentTrial struct {
	Contestant string
	Round, Arm int // from 1; arms are numbered in execution order
	Start      time.Time
	Seconds    float64
	Values     map[string]float64 // by metric; unknown metrics are absent
	Others     float64            // fraction of this machine's CPU time used by unrelated programs
	Overrun    float64            // mean time in seconds by which simulated Jobs exceeded their run time
	Samples    []ExperimentSample
}

// ExperimentSample is a sample of an arm. Unknown values are zero.
type ExperimentSample struct {
	Seconds          float64 // since the start of the arm's measurement
	Watts            float64 // of all nodes
	Cores, Scheduler float64 // used by pods, and by the contestant
	Pods, Requests   int     // ready pods; requests answered since the last sample
	P50, P99         float64 // latency of these requests in milliseconds
}

// ExperimentMetrics lists the metrics of an arm in display order.
var ExperimentMetrics = []string{
	"energyJoules", "emissionsGrams", "schedulerCPUSeconds", "meanBusyCores", "schedulingP50Ms", "schedulingP99Ms",
	"startP50Ms", "startP99Ms", "requestP50Ms", "requestP99Ms", "requestsFailedShare", "podsPending", "jobsFinished",
	"makespanSeconds", "cpuEnergyCorrelation",
}

// Experiment contains the results of an experiment.
type Experiment struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	Baseline   string          `json:"baseline"`
	Rounds     int             `json:"rounds"`
	NotValid   []string        `json:"notValid,omitempty"`  // reasons why no figure is valid
	NotJudged  []string        `json:"notJudged,omitempty"` // other reasons why differences are not judged
	Rows       []ExperimentRow `json:"rows"`
	Notes      []string        `json:"notes"`

	contestants []string
	trials      []ExperimentTrial
	mark        string // suffix of all contestants if the figures are not valid
}

// ExperimentRow contains one metric of a contestant.
type ExperimentRow struct {
	Contestant string   `json:"contestant"`
	Metric     string   `json:"metric"`
	Arms       int      `json:"arms"` // number of arms with a known value
	Mean       Interval `json:"mean"`
	// Difference is the mean difference from the baseline within rounds, as a fraction of the baseline's mean. It
	// is nil for the baseline itself, and if the baseline's mean is zero or unknown.
	Difference *Interval `json:"difference,omitempty"`
	// Differs is true if the difference is significant at the 95 % level, corrected for the number of comparisons
	// in the report (Bonferroni).
	Differs bool `json:"differs"`

	pairs []float64 // differences by round
}

// MinRounds is the minimum number of rounds needed to judge differences.
const MinRounds = 3

// NewExperiment aggregates arms. contestants are in display order, and the first one is the baseline. notValid are the
// reasons why the machine was too busy for valid figures.
func NewExperiment(name string, contestants []string, trials []ExperimentTrial, notValid, notes []string) *Experiment {
	e := &Experiment{
		APIVersion: "kubenergy.io/v1alpha1", Kind: "ExperimentReport", Name: name, Baseline: contestants[0],
		NotValid: notValid, contestants: contestants, trials: trials,
	}
	for i := range trials {
		e.Rounds = max(e.Rounds, trials[i].Round)
	}
	if e.Rounds < MinRounds {
		e.NotJudged = append(e.NotJudged, fmt.Sprintf("the experiment has %s, and judging differences requires %d",
			humanize.Count(e.Rounds, "round"), MinRounds))
	}
	compared := 0.0
	for _, c := range contestants {
		for _, m := range ExperimentMetrics {
			if row := e.row(c, m); row.Arms > 0 {
				e.Rows = append(e.Rows, row)
				if row.Difference != nil {
					compared++
				}
			}
		}
	}
	for i := range e.Rows {
		if r := &e.Rows[i]; r.Difference != nil && len(e.NotJudged)+len(e.NotValid) == 0 {
			all := MeanOf(r.pairs, 0.05/compared)
			r.Differs = *all.Low > 0 || *all.High < 0
		}
	}
	unknown := slices.DeleteFunc(slices.Clone(contestants), func(c string) bool {
		return e.row(c, "schedulerCPUSeconds").Arms > 0
	})
	if len(unknown) > 0 {
		e.Notes = append(e.Notes, "The CPU time of "+strings.Join(unknown, ", ")+" is unknown and not included "+
			"in modelled energy.")
	}
	for _, why := range e.NotValid {
		e.mark = " (not valid)"
		e.Notes = append(e.Notes, "NOT VALID: "+why+".")
	}
	for _, why := range e.NotJudged {
		e.Notes = append(e.Notes, "Not judged: "+why+".")
	}
	e.Notes = append(append(e.Notes, notes...), "Intervals are 95 % by Student's t. Those of differences are over "+
		"pairs of arms of one round. Differences are marked if they are significant at 95 % for all of them jointly.")
	return e
}

func (e *Experiment) row(contestant, metric string) ExperimentRow {
	row := ExperimentRow{Contestant: contestant, Metric: metric}
	var all []float64
	var base float64
	for round := range e.Rounds {
		v, known := e.value(contestant, metric, round+1)
		b, paired := e.value(e.Baseline, metric, round+1)
		if known {
			all = append(all, v)
		}
		if known && paired {
			row.pairs, base = append(row.pairs, v-b), base+b
		}
	}
	if row.Arms = len(all); row.Arms > 0 {
		row.Mean = MeanOf(all, 0.05)
	}
	if n := len(row.pairs); contestant != e.Baseline && n > 1 && base != 0 {
		floats.Scale(float64(n)/math.Abs(base), row.pairs)
		row.Difference = new(MeanOf(row.pairs, 0.05))
	}
	return row
}

func (e *Experiment) value(contestant, metric string, round int) (v float64, ok bool) {
	for i := range e.trials {
		if t := &e.trials[i]; t.Contestant == contestant && t.Round == round {
			v, ok = t.Values[metric]
		}
	}
	return v, ok && finite(v)
}

// MeanOf returns the mean and its confidence interval by Student's t. beyond is the probability that the interval
// does not contain the true mean.
func MeanOf(values []float64, beyond float64) Interval {
	mean, deviation := stat.MeanStdDev(values, nil)
	n := float64(len(values))
	if n < 2 {
		return Interval{Value: mean}
	}
	half := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(1-beyond/2) * deviation / math.Sqrt(n)
	return Interval{mean, new(mean - half), new(mean + half)}
}

func (e *Experiment) title() string {
	judged := e.mark
	if judged == "" && len(e.NotJudged) > 0 {
		judged = " (not judged)"
	}
	return fmt.Sprintf("%s: %s in %s, against %s%s", e.Name, strings.Join(e.contestants, ", "),
		humanize.Count(e.Rounds, "round"), e.Baseline, judged)
}

func (e *Experiment) table() *Table {
	t := &Table{Columns: []Column{
		{Name: "Contestant", Field: "contestant", Words: true},
		{Name: "Metric", Field: "metric", Words: true},
		{Name: "Arms", Field: "arms"},
		{Name: "Mean", Field: "mean", Show: humanize.Significant},
		{Name: "from", Field: "meanLow", Show: humanize.Significant},
		{Name: "to", Field: "meanHigh", Show: humanize.Significant},
		{Name: "Difference", Field: "difference", Show: percent},
		{Name: "from", Field: "differenceLow", Show: percent},
		{Name: "to", Field: "differenceHigh", Show: percent},
		{Name: "Differs", Field: "differs"},
	}}
	for _, r := range e.Rows {
		cells := []any{
			r.Contestant + e.mark, r.Metric, r.Arms, r.Mean.Value, r.Mean.Low, r.Mean.High, nil, nil, nil, nil,
		}
		if d := r.Difference; d != nil {
			cells[6], cells[7], cells[8] = d.Value, d.Low, d.High
		}
		if r.Differs {
			cells[9] = "yes"
		}
		t.Add(cells...)
	}
	return t
}

// Text implements [Document].
func (e *Experiment) Text(wide, colours bool) string {
	return e.title() + "\n" + e.table().Framed(wide, colours) + "\n" + strings.Join(e.Notes, "\n") + "\n"
}

// trialTable returns a table with one row per arm.
func (e *Experiment) trialTable() *Table {
	columns := []string{"arm", "round", "contestant", "start", "seconds", "otherPrograms", "overrun"}
	t := Sheet(append(columns, ExperimentMetrics...)...)
	for _, r := range e.trials {
		cells := []any{r.Arm, r.Round, r.Contestant, r.Start, r.Seconds, r.Others, r.Overrun}
		values := sliceutil.Map(ExperimentMetrics, func(m string) any { return entry(r.Values, m) })
		t.Add(append(cells, values...)...)
	}
	return t
}

func (e *Experiment) sampleTable() *Table {
	t := Sheet("arm", "contestant", "seconds", "watts", "busyCores", "schedulerCores", "pods", "requests",
		"requestP50Ms", "requestP99Ms")
	for i := range e.trials {
		for _, s := range e.trials[i].Samples {
			t.Add(e.trials[i].Arm, e.trials[i].Contestant, s.Seconds, s.Watts, s.Cores, s.Scheduler, s.Pods, s.Requests,
				s.P50, s.P99)
		}
	}
	return t
}

// WriteExperimentDir writes the report, its page and figures, all arms and samples, and the manifest into dir.
func WriteExperimentDir(dir string, e *Experiment, command, program string, manifest any) (paths []string, err error) {
	p := &page{Title: e.title(), Notes: e.Notes, Command: command, Program: program}
	return p.write(dir, e.figures(), []*Table{e.table()}, map[string]func(io.Writer) error{
		"experiment.json": func(w io.Writer) error { return WriteJSON(w, e) },
		"experiment.csv":  e.table().CSV,
		"arms.csv":        e.trialTable().CSV,
		"samples.csv":     e.sampleTable().CSV,
		"manifest.json":   func(w io.Writer) error { return WriteJSON(w, manifest) },
	})
}
