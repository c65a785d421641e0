package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// ExperimentTrial is an arm of an experiment: one contestant in one round.
type ExperimentTrial struct {
	Contestant string             `json:"contestant"`
	Round      int                `json:"round"` // from 1
	Arm        int                `json:"arm"`   // from 1, in the order in which they were run
	Start      time.Time          `json:"start"`
	Seconds    float64            `json:"seconds"`
	Values     map[string]float64 `json:"values"` // by metric; what is not known is absent
	// Others is the share of this machine's processors that programs which are no part of the experiment used.
	Others  float64            `json:"otherPrograms"`
	Samples []ExperimentSample `json:"samples"`
}

// ExperimentSample is a moment of an arm. What is not known is 0.
type ExperimentSample struct {
	Seconds   float64 `json:"seconds"` // since the arm's measurement began
	Watts     float64 `json:"watts"`   // of all nodes
	Cores     float64 `json:"busyCores"`
	Scheduler float64 `json:"schedulerCores"`
	Pods      int     `json:"pods"` // that are ready
	Requests  int     `json:"requests"`
	P50       float64 `json:"requestP50Ms"`
	P99       float64 `json:"requestP99Ms"`
}

// ExperimentMetrics are what is measured of an arm, in the order in which they are shown.
var ExperimentMetrics = []string{
	"energyJoules", "emissionsGrams", "schedulerCPUSeconds", "meanBusyCores", "schedulingP50Ms", "schedulingP99Ms",
	"startP50Ms", "startP99Ms", "requestP50Ms", "requestP99Ms", "requestsFailedShare", "podsPending", "jobsFinished",
	"makespanSeconds", "cpuEnergyCorrelation",
}

// Experiment is what an experiment has shown.
type Experiment struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	Baseline   string          `json:"baseline"`
	Rounds     int             `json:"rounds"`
	NotJudged  []string        `json:"notJudged,omitempty"` // why not
	Rows       []ExperimentRow `json:"rows"`
	Notes      []string        `json:"notes"`

	contestants []string
	trials      []ExperimentTrial
}

// ExperimentRow is a metric of a contestant.
type ExperimentRow struct {
	Contestant string   `json:"contestant"`
	Metric     string   `json:"metric"`
	Arms       int      `json:"arms"`
	Mean       Interval `json:"mean"`
	// Difference is the mean difference from the baseline within rounds, as a share of the baseline's mean. It is
	// absent for the baseline, and where that mean is 0.
	Difference *Interval `json:"difference,omitempty"`
	// Differs: the interval would not hold 0 either if it were wide enough to hold all true differences of the report
	// at once in 95 of 100 experiments.
	Differs bool `json:"differs"`
}

// LeastRounds is from how many rounds on differences are judged.
const LeastRounds = 3

// ExperimentManifest says what an experiment was made with.
type ExperimentManifest struct {
	APIVersion  string            `json:"apiVersion"`
	Kind        string            `json:"kind"`
	Program     string            `json:"program"`
	Go          string            `json:"go"`
	Platform    string            `json:"platform"`
	Kernel      string            `json:"kernel"`
	CPUs        int               `json:"cpus"`
	CommandLine []string          `json:"commandLine"`
	File        string            `json:"fileSHA256"`
	Target      string            `json:"target"`
	Kubernetes  string            `json:"kubernetes"`
	Meter       string            `json:"meter"`
	Seed        uint64            `json:"seed"`
	Faster      float64           `json:"faster"`
	Order       []string          `json:"order"`
	Programs    map[string]string `json:"programsSHA256"` // of contestants that ran as processes of this machine
	LoadBefore  string            `json:"loadAverageBefore"`
	LoadAfter   string            `json:"loadAverageAfter"`
	Began       time.Time         `json:"began"`
	Ended       time.Time         `json:"ended"`
}

// NewExperiment sums arms up. contestants are in the order in which they are shown.
func NewExperiment(name, baseline string, contestants []string, trials []ExperimentTrial,
	notJudged, notes []string,
) *Experiment {
	e := &Experiment{
		APIVersion: "kubenergy.io/v1alpha1", Kind: "ExperimentReport", Name: name, Baseline: baseline,
		NotJudged: notJudged, contestants: contestants, trials: trials,
	}
	for i := range trials {
		e.Rounds = max(e.Rounds, trials[i].Round)
	}
	if e.Rounds < LeastRounds {
		e.NotJudged = append(e.NotJudged, fmt.Sprintf("it has %s, and differences are judged from %d on",
			Plural(e.Rounds, "round", "rounds"), LeastRounds))
	}
	compared := 0
	for _, c := range contestants {
		for _, m := range ExperimentMetrics {
			if row, ok := e.row(c, m); ok {
				e.Rows = append(e.Rows, row)
				if row.Difference != nil {
					compared++
				}
			}
		}
	}
	for i := range e.Rows {
		r := &e.Rows[i]
		if r.Difference != nil && len(e.NotJudged) == 0 {
			all := e.difference(r.Contestant, r.Metric, 0.05/float64(compared))
			r.Differs = *all.Low > 0 || *all.High < 0
		}
	}
	e.Notes = append(notes, "Means and differences have intervals of 95 % by Student's t, differences over pairs of "+
		"arms of one round. A difference is marked where it would count at 95 % for all differences of this report "+
		"together.")
	return e
}

// values returns a metric of a contestant and, of the same rounds, of the baseline.
func (e *Experiment) values(contestant, metric string) (own, base []float64) {
	byRound := map[int]map[string]float64{}
	for i := range e.trials {
		t := &e.trials[i]
		if v, ok := t.Values[metric]; ok && finite(v) {
			if byRound[t.Round] == nil {
				byRound[t.Round] = map[string]float64{}
			}
			byRound[t.Round][t.Contestant] = v
		}
	}
	for round := range e.Rounds {
		v, ok := byRound[round+1][contestant]
		b, paired := byRound[round+1][e.Baseline]
		if ok && paired {
			own, base = append(own, v), append(base, b)
		}
	}
	return own, base
}

func (e *Experiment) row(contestant, metric string) (ExperimentRow, bool) {
	own, _ := e.values(contestant, metric)
	if len(own) == 0 {
		return ExperimentRow{}, false
	}
	row := ExperimentRow{Contestant: contestant, Metric: metric, Arms: len(own), Mean: meanOf(own, 0.05)}
	if contestant != e.Baseline && len(own) > 1 {
		row.Difference = e.difference(contestant, metric, 0.05)
	}
	return row, true
}

func (e *Experiment) difference(contestant, metric string, beyond float64) *Interval {
	own, base := e.values(contestant, metric)
	scale := math.Abs(stat.Mean(base, nil))
	if scale == 0 {
		return nil
	}
	for i := range own {
		own[i] = (own[i] - base[i]) / scale
	}
	return new(meanOf(own, beyond))
}

// meanOf is a mean and an interval that misses the true one in a share of all experiments.
func meanOf(values []float64, beyond float64) Interval {
	mean, deviation := stat.MeanStdDev(values, nil)
	if len(values) < 2 {
		return Interval{Value: mean}
	}
	n := float64(len(values))
	half := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(1-beyond/2) * deviation / math.Sqrt(n)
	return Interval{mean, new(mean - half), new(mean + half)}
}

// Correlation is that of two series, Pearson's; ok is false where one of them never changes.
func Correlation(a, b []float64) (r float64, ok bool) {
	if len(a) < 3 {
		return 0, false
	}
	r = stat.Correlation(a, b, nil)
	return r, finite(r)
}

// Quantile interpolates between values in any order; it is 0 where there are none.
func Quantile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return between(slices.Sorted(slices.Values(values)), p)
}

func (e *Experiment) title() string {
	judged := ""
	if len(e.NotJudged) > 0 {
		judged = " (not judged)"
	}
	return fmt.Sprintf("%s: %s in %s, against %s%s", e.Name, strings.Join(e.contestants, ", "),
		Plural(e.Rounds, "round", "rounds"), e.Baseline, judged)
}

func (e *Experiment) notes() (all []string) {
	for _, why := range e.NotJudged {
		all = append(all, "Not judged: "+why+".")
	}
	return append(all, e.Notes...)
}

func (e *Experiment) table() *Table {
	t := &Table{Columns: []Column{
		{Name: "Contestant", Field: "contestant", Words: true},
		{Name: "Metric", Field: "metric", Words: true},
		{Name: "Arms", Field: "arms", Wide: true},
		{Name: "Mean", Field: "mean", Show: Significant},
		{Name: "from", Field: "meanLow", Show: Significant},
		{Name: "to", Field: "meanHigh", Show: Significant},
		{Name: "Difference", Field: "difference", Show: percent},
		{Name: "from", Field: "differenceLow", Show: percent},
		{Name: "to", Field: "differenceHigh", Show: percent},
		{Name: "Differs", Field: "differs"},
	}}
	for i := range e.Rows {
		r := &e.Rows[i]
		d, value, differs := &Interval{}, (*float64)(nil), ""
		if r.Difference != nil {
			d, value = r.Difference, &r.Difference.Value
		}
		if r.Differs {
			differs = "yes"
		}
		t.Add(r.Contestant, r.Metric, r.Arms, r.Mean.Value, r.Mean.Low, r.Mean.High, value, d.Low, d.High, differs)
	}
	return t
}

// Text implements [Document].
func (e *Experiment) Text(wide, colours bool) string {
	return e.title() + "\n" + e.table().Framed(wide, colours) + "\n" + strings.Join(e.notes(), "\n") + "\n"
}

// CSV writes a row for each metric of each contestant.
func (e *Experiment) CSV(w io.Writer) error { return e.table().CSV(w) }

// trialTable has a row for each arm.
func (e *Experiment) trialTable() *Table {
	t := Sheet(append([]string{"arm", "round", "contestant", "start", "seconds", "otherPrograms"},
		ExperimentMetrics...)...)
	for i := range e.trials {
		trial := &e.trials[i]
		cells := []any{trial.Arm, trial.Round, trial.Contestant, trial.Start, trial.Seconds, trial.Others}
		for _, m := range ExperimentMetrics {
			var cell any // empty where it is not known
			if v, ok := trial.Values[m]; ok {
				cell = v
			}
			cells = append(cells, cell)
		}
		t.Add(cells...)
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
func WriteExperimentDir(dir string, e *Experiment, m *ExperimentManifest) (paths []string, err error) {
	files := map[string][]byte{}
	page := page{
		Title: e.title(), Notes: e.notes(), Command: strings.Join(m.CommandLine, " "), Program: m.Program,
		Tables: []*shown{e.table().shown(true)},
	}
	figures := e.figures()
	for i := range figures {
		svg, err := figures[i].into(files)
		if err != nil {
			return nil, err
		}
		page.Figures = append(page.Figures, pageFigure{figures[i].caption, inPage(svg)})
	}
	return writeAll(dir, files, map[string]func(io.Writer) error{
		"report.html":     func(w io.Writer) error { return pageTemplate.Execute(w, &page) },
		"experiment.json": func(w io.Writer) error { return WriteJSON(w, e) },
		"experiment.csv":  e.CSV,
		"arms.csv":        e.trialTable().CSV,
		"samples.csv":     e.sampleTable().CSV,
		"manifest.json":   func(w io.Writer) error { return WriteJSON(w, m) },
	})
}
