package report_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/report"
)

// trialsOf returns the arms of two contestants. Rounds differ by a large amount, and within each round b exceeds a
// by above.
func trialsOf(rounds int, seed uint64, above float64) (trials []report.ExperimentTrial) {
	r := rand.New(rand.NewPCG(seed, 1))
	for round := range rounds {
		level := 1000 + 300*r.NormFloat64()
		for k, name := range []string{"a", "b"} {
			t := report.ExperimentTrial{
				Contestant: name, Round: round + 1, Arm: 2*round + k + 1, Seconds: 60,
				Values: map[string]float64{"energyJoules": level + float64(k)*above + 5*r.NormFloat64()},
			}
			for s := range 5 {
				t.Samples = append(t.Samples, report.ExperimentSample{
					Seconds: float64(s + 1), Watts: 10 + float64(s), Cores: float64(s), Pods: 1, P99: 3,
				})
			}
			trials = append(trials, t)
		}
	}
	return trials
}

func experimentOf(trials []report.ExperimentTrial, notValid ...string) *report.Experiment {
	return report.NewExperiment("test", []string{"a", "b"}, trials, notValid, []string{"Energy is modelled."})
}

func rowOf(t *testing.T, e *report.Experiment, contestant, metric string) *report.ExperimentRow {
	t.Helper()
	i := slices.IndexFunc(e.Rows, func(r report.ExperimentRow) bool {
		return r.Contestant == contestant && r.Metric == metric
	})
	if i < 0 {
		t.Fatalf("%s has no %s", contestant, metric)
	}
	return &e.Rows[i]
}

// Pairs of one round differ by far less than rounds do, and contestants are compared by pairs.
func TestExperimentComparesPairs(t *testing.T) {
	e := experimentOf(trialsOf(6, 1, 40))
	r := rowOf(t, e, "b", "energyJoules")
	if d := r.Difference; !r.Differs || d.Value < 0.02 || d.Value > 0.06 || *d.Low <= 0 {
		t.Errorf("%+v, %+v", r, d)
	}
	if m := r.Mean; *m.High-*m.Low < 100 {
		t.Errorf("the interval of the mean is too narrow: %v to %v", *m.Low, *m.High)
	}
	if base := rowOf(t, e, "a", "energyJoules"); base.Difference != nil || base.Differs {
		t.Errorf("the baseline has a difference from itself: %+v", base)
	}
}

// Out of 100 experiments with equal contestants, about 5 may find a difference.
func TestExperimentFindsNoDifferenceWhereThereIsNone(t *testing.T) {
	found := 0
	for seed := range uint64(200) {
		if rowOf(t, experimentOf(trialsOf(3, seed, 0)), "b", "energyJoules").Differs {
			found++
		}
	}
	if found > 20 {
		t.Errorf("%d of 200 experiments with equal contestants found a difference", found)
	}
}

// Figures are not valid on a busy machine, and differences are not judged with too few rounds.
func TestExperimentIsNotJudged(t *testing.T) {
	busy := experimentOf(trialsOf(6, 1, 400), "other programs used the machine")
	few := experimentOf(trialsOf(2, 1, 400))
	for name, e := range map[string]*report.Experiment{"NOT VALID: other programs": busy, "Not judged: ": few} {
		text := e.Text(false, false)
		if rowOf(t, e, "b", "energyJoules").Differs || !strings.Contains(text, name) {
			t.Errorf("%s: differences are judged:\n%s", name, text)
		}
		if marked := strings.Contains(text, "b (not valid)"); marked != (e == busy) {
			t.Errorf("%s: figures marked: %v:\n%s", name, marked, text)
		}
	}
}

// Metrics of a contestant are shown even if they are unknown for the baseline, such as the CPU of a cluster's own
// scheduler.
func TestExperimentShowsWhatTheBaselineLacks(t *testing.T) {
	trials := trialsOf(3, 1, 0)
	for i := range trials {
		if trials[i].Contestant == "b" {
			trials[i].Values["schedulerCPUSeconds"] = 2
		}
	}
	if r := rowOf(t, experimentOf(trials), "b", "schedulerCPUSeconds"); r.Mean.Value != 2 || r.Arms != 3 || r.Difference != nil {
		t.Errorf("%+v", r)
	}
}

func TestWriteExperimentDir(t *testing.T) {
	dir := t.TempDir()
	trials := trialsOf(3, 1, 40)
	written, err := report.WriteExperimentDir(dir, experimentOf(trials), "kubenergy experiment", "v1",
		map[string]any{"kernel": "6.1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"arms.csv": "arm,round,contestant,start,seconds", "samples.csv": "\n6,b,5,14,4,0,1,0,0,3\n",
		"experiment.csv": "b,energyJoules,3", "report.html": "Energy is modelled.", "manifest.json": "kernel",
		"over-time.svg": "Busy cores", "cpu-energy.png": "PNG", "differences.svg": "schedulerCPUSeconds",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Contains(text, []byte(want)) || !slices.Contains(written, filepath.Join(dir, name)) {
			t.Errorf("%s does not contain %q: %v", name, want, err)
		}
	}
}
