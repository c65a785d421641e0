package predict_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// someJob returns a finished job of one of 20 owners and its run time, which depends on the owner and the request.
func someJob(r *rand.Rand) (*sched.Job, time.Duration) {
	owner, cpu := r.IntN(20), int64(1+r.IntN(2))
	ran := time.Duration(float64(time.Duration(owner+1)*time.Duration(cpu)*10*time.Minute) * (0.8 + 0.4*r.Float64()))
	return &sched.Job{Owner: fmt.Sprint("o", owner), Request: sched.Resources{MilliCPU: 1000 * cpu}}, ran
}

// TestStateIsComplete verifies that a learner that is stored and restored at random points makes exactly the same
// predictions as one that is not.
func TestStateIsComplete(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 1))
	whole, parts := predict.NewGroups(), predict.NewGroups()
	for range 2000 {
		j, ran := someJob(r)
		whole.Ended(j, ran)
		parts.Ended(j, ran)
		if r.IntN(20) == 0 {
			text, err := json.Marshal(parts.State(1000))
			if err != nil {
				t.Fatal(err)
			}
			var s predict.State
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
			if parts, err = predict.Restore(&s); err != nil {
				t.Fatal(err)
			}
		}
		want, n := whole.Foresee(j)
		got, m := parts.Foresee(j)
		if n != m || !reflect.DeepEqual(want, got) {
			t.Fatalf("%d runs: the restored learner predicts %v from %d runs, want %v from %d", n, got, m, want, n)
		}
	}
	if a, b := whole.State(1000), parts.State(1000); !reflect.DeepEqual(a, b) {
		t.Error("states differ")
	}
}

func TestForesee(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 2))
	g := predict.NewGroups()
	for range 1000 {
		g.Ended(someJob(r))
	}
	known := &sched.Job{Owner: "o3", Request: sched.Resources{MilliCPU: 1000}} // 32 to 48 minutes
	runtimes, seen := g.Foresee(known)
	if seen < 20 || runtimes.Mean() < 35*time.Minute || runtimes.Mean() > 50*time.Minute {
		t.Errorf("mean %v from %d runs, want about 40 minutes", runtimes.Mean(), seen)
	}
	if low, high := runtimes.Quantile(0.1), runtimes.Quantile(0.9); low < 25*time.Minute || high > 75*time.Minute {
		t.Errorf("most runs take %v to %v, want about 32 to 48 minutes", low, high)
	}
	for range 10 {
		g.Ended(&sched.Job{Owner: "short"}, time.Minute)
	}
	if short, _ := g.Foresee(&sched.Job{Owner: "short"}); short.Quantile(0.1) < 40*time.Second ||
		short.Quantile(0.9) > 2*time.Minute || short.Mean() > 3*time.Minute {
		t.Errorf("after runs of a minute, most take %v to %v, with a mean of %v", short.Quantile(0.1), short.Quantile(0.9),
			short.Mean())
	}
	for n := range predict.Enough {
		stranger := &sched.Job{Owner: "stranger"}
		if runtimes, seen := g.Foresee(stranger); runtimes != nil || seen != n {
			t.Errorf("%v from %d runs, want none from %d", runtimes, seen, n)
		}
		g.Ended(stranger, time.Hour)
	}
	if s := g.State(5); len(s.Groups) != 1+3+5+5 { // three requests
		t.Errorf("the state contains %d groups", len(s.Groups))
	}
}

// TestManyRuns verifies that the state remains valid and small after many runs with outliers, and that skewed run times
// are not cut off.
func TestManyRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 6))
	g, j := predict.NewGroups(), &sched.Job{Owner: "o"}
	for i := range 20_000 {
		ran := time.Minute
		if i%4 == 0 {
			ran = 5 * time.Hour
		}
		g.Ended(j, time.Duration(float64(ran)*(1+r.ExpFloat64()/20)))
	}
	s := g.State(10)
	if _, err := predict.Restore(&s); err != nil {
		t.Fatal(err)
	}
	if runtimes, _ := g.Foresee(j); runtimes.Quantile(0.9) < 4*time.Hour || runtimes.Mean() < time.Hour {
		t.Errorf("one in ten runs exceeds %v, mean %v", runtimes.Quantile(0.9), runtimes.Mean())
	}
	for i := range s.Groups {
		if n := len(s.Groups[i].Bins); n > 120 {
			t.Errorf("level %d has %d bins", s.Groups[i].Level, n)
		}
	}
}

func TestInvalidStates(t *testing.T) {
	g := predict.NewGroups()
	g.Ended(&sched.Job{Owner: "o"}, time.Hour)
	for name, change := range map[string]func(*predict.State){
		"too few outcomes": func(s *predict.State) { s.Outcomes = s.Outcomes[1:] },
		"negative outcome": func(s *predict.State) { s.Outcomes[3] = -1 },
		"level":            func(s *predict.State) { s.Groups[0].Level = 4 },
		"no runs":          func(s *predict.State) { s.Groups[0].Seen = 0 },
		"later than all":   func(s *predict.State) { s.Groups[0].Last = 2 },
		"no unit":          func(s *predict.State) { s.Groups[0].Unit = 0 },
		"no bins":          func(s *predict.State) { s.Groups[0].Bins, s.Groups[0].Weights = nil, nil },
		"missing weight":   func(s *predict.State) { s.Groups[0].Weights = nil },
		"bin out of range": func(s *predict.State) { s.Groups[0].Bins[0] = 320 },
		"bins not in order": func(s *predict.State) {
			s.Groups[0].Bins, s.Groups[0].Weights = []int32{3, 3}, []float64{1, 1}
		},
	} {
		s := g.State(10)
		if _, err := predict.Restore(&s); err != nil {
			t.Fatal(err)
		}
		change(&s)
		if _, err := predict.Restore(&s); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
