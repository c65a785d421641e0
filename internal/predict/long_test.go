package predict_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/workload"
)

var quantiles = []float64{0.1, 0.25, 0.5, 0.75, 0.9}

// published returns the jobs of a trace in the directory of real data next to the repository.
func published(t testing.TB, name string) []sched.Job {
	t.Helper()
	path := filepath.Join("../..", "..", "shared", "data", "workload", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("directory of real data is not available next to the repository: %v", err)
	}
	trace, err := workload.Load(path, "", time.Date(2022, 1, 3, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	return trace.Jobs
}

type namedLearner struct {
	name string
	new  func() predict.Learner
}

func learners() []namedLearner {
	return []namedLearner{
		{"groups", func() predict.Learner { return predict.NewGroups() }},
		{"survival", func() predict.Learner { return predict.NewSurvival() }},
		{"last-2", func() predict.Learner { return predict.NewLastTwo() }},
		{"EWMA 0.3", func() predict.Learner { return predict.NewMoving(0.3) }},
		{"mean by shape", func() predict.Learner { return predict.NewMean() }},
		{"queue mean", func() predict.Learner { return predict.NewQueueAverage() }},
		{"mean", func() predict.Learner { return predict.NewAverage() }},
	}
}

// TestAccuracyTable logs the accuracy of every learner for every trace.
func TestAccuracyTable(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("set KUBENERGY_LONG=1 to run this test, which takes one minute")
	}
	for _, name := range []string{
		"swf/hpc2n_first3171.swf.gz", "swf/NASA-iPSC-1993-3.1-cln.swf.gz", "gaia/pai_1k.csv.gz", "gaia/pai-100k.csv.gz",
		"gaia/azure-100k.csv.gz",
		"alibaba_2018_batch_cloudsimpy.csv.gz", "alibaba_openb_2023/openb_pod_list_default.csv.gz",
		"surf_lisa_2022_week_tasks.csv.gz",
	} {
		jobs := published(t, name)
		if len(jobs) > 40000 && strings.HasPrefix(name, "gaia") {
			jobs = jobs[:20000]
		}
		if strings.Contains(name, "alibaba_2018") {
			jobs = slices.DeleteFunc(jobs, func(j sched.Job) bool { // instances have equal run times
				return strings.Count(j.ID, "-") == 2 && !strings.HasSuffix(j.ID, "-0")
			})
		}
		t.Logf("%s: %d jobs", name, len(jobs))
		for _, l := range learners() {
			if l.name == "mean by shape" && strings.Contains(name, "alibaba_2018") {
				continue // it processes all running jobs at every end, which are thousands here
			}
			s := predict.Backtest(jobs, l.new(), quantiles, 100)
			t.Logf("| %-14s | %7.0f | %5.1f %% | %7.0f | %.3f |", l.name, s.MeanPinball(), 100*s.Coverage[4], s.Error,
				s.Accuracy)
		}
	}
}
