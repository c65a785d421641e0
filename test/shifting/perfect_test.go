package shifting

import (
	"iter"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// inSample contains the run-time distributions of all jobs in each queue, including future ones, as in GAIA.
type inSample map[string]*sched.Runtimes

func newInSample(t testing.TB, jobs []trace) inSample {
	t.Helper()
	const step = time.Minute
	known := inSample{}
	for queue, long := range map[string]bool{"short": false, "long": true} {
		var longest time.Duration
		n := 0
		for _, j := range jobs {
			if (j.length >= longFrom) == long {
				longest, n = max(longest, j.length), n+1
			}
		}
		survival := make([]float64, longest/step+2)
		for i := range survival {
			for _, j := range jobs {
				if (j.length >= longFrom) == long && j.length > time.Duration(i)*step {
					survival[i]++
				}
			}
			survival[i] /= float64(n)
		}
		r, err := sched.NewRuntimes(step, survival)
		if err != nil {
			t.Fatal(err)
		}
		known[queue] = r
	}
	return known
}

func (inSample) Refresh(time.Time, iter.Seq2[*sched.Job, time.Duration]) {}
func (inSample) Every() time.Duration                                    { return time.Hour }
func (inSample) Ended(*sched.Job, time.Duration)                         {}
func (k inSample) Expect(j *sched.Job) {
	j.Runtimes = k[j.Queue]
	j.Duration = j.Runtimes.Mean()
}

// reported returns nil, so that the true run times are used.
func reported([]trace) predict.Learner { return nil }

// TestPerfectForecasts verifies the savings of the policies with perfect forecasts, as documented in science.md and
// shifting.md. With KUBENERGY_LONG=1, it uses all grids and every fourth start, which takes a minute. Otherwise it
// uses one week of one grid.
func TestPerfectForecasts(t *testing.T) {
	past := func([]trace) predict.Learner { return predict.NewSurvival() }
	sample := func(jobs []trace) predict.Learner { return newInSample(t, jobs) }
	p := plays{zones: zones[3:4], hours: []int{0}, model: "perfect", ahead: map[string]foresight{}}
	long := longRun()
	if long {
		p.zones, p.hours = zones, offsets(0, 2000)
	}
	for _, test := range []struct {
		when        string
		learner     func([]trace) predict.Learner
		least, most float64 // range relative to the optimal saving of the family, on all grids
		week        float64 // value for the single week
	}{
		{"lowest-slot", sample, 0.58, 0.66, 0.686},
		{"lowest-window", sample, 0.81, 0.88, 0.858},
		{"carbon-time", sample, 0.74, 0.81, 0.766},
		{"rolling", sample, 0.84, 0.89, 0.816},
		{"rolling", past, 0.82, 0.88, 0.734},
		{"rolling", reported, 1 - 1e-9, 1 + 1e-9, 1},
		{"ecovisor", sample, 0.76, 0.83, 0.791},
		{"residual", past, 0.865, 0.905, 0.88},
		{"residual", reported, 0.97, 1, 0.987},
		{"wait-awhile", reported, 1 - 1e-9, 1 + 1e-9, 1},
	} {
		p.when, p.learner = test.when, test.learner
		r := p.play(t)
		t.Logf("%-14s %v", test.when, r)
		if r.late > 0 {
			t.Errorf("policy %s: a job is %v late", test.when, r.late)
		}
		least, most := test.least, test.most
		if !long && test.week < 1 {
			const rounding = 0.002
			least, most = test.week-rounding, test.week+rounding
		}
		if eta := r.eta(); eta < least || eta > most {
			t.Errorf("policy %s achieves %.3f of the optimum of its family, want between %.3f and %.3f",
				test.when, eta, least,
				most)
		}
	}
}
