package scenarios_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/test/kit"
)

// completion contains the mean and the 95th percentile of the time from submission to completion, in seconds.
type completion struct{ mean, p95 float64 }

func completionOf(r *sim.Result) completion {
	all := make([]float64, len(r.Outcomes))
	sum := 0.0
	for i := range r.Outcomes {
		all[i] = r.Outcomes[i].Finish.Sub(r.Scenario.Jobs[i].Submitted).Seconds()
		sum += all[i]
	}
	slices.Sort(all)
	return completion{mean: sum / float64(len(all)), p95: all[len(all)*95/100]}
}

// ecsched simulates a scenario with the ECSched trace and one of its strategies.
func ecsched(t *testing.T, name, strategyName string) completion {
	t.Helper()
	file, err := sim.ReadFile(filepath.Join("ecsched", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(file.Strategies, strategyName) {
		t.Fatalf("%s does not contain the strategy %s", name, strategyName)
	}
	scenario, err := file.Load()
	if err != nil {
		t.Fatal(err)
	}
	planner, err := strategy.New(strategyName)
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(context.Background(), scenario, strategyName, planner)
	if err != nil {
		t.Fatal(err)
	}
	c := completionOf(r)
	t.Logf("%-17s %-24s mean %7.1f s, p95 %6.0f s, makespan %6.0f s", name, strategyName, c.mean, c.p95,
		r.End.Sub(scenario.Start).Seconds())
	return c
}

// long is true if all cases are simulated, and not only those with published claims.
var long = os.Getenv("KUBENERGY_LONG") != ""

// TestECSched simulates the trace of ECSched. The expected values for ecsched-ml and ecsched-dp are the mean
// completion times that the authors published. The other values were measured by an independent replay of the same
// trace.
func TestECSched(t *testing.T) {
	kit.Data(t, "ecsched/ecsched_input_9549jobs.txt")
	for _, c := range []struct {
		scenario, strategy string
		want, within       float64
		onlyLong           bool
	}{
		{"authors", "ecsched-ml", 1368.18, 0.01, false},
		{"authors", "ecsched-dp", 1416.36, 0.01, false},
		{"authors-baseline", "ecsched-k8s+now/fifo", 1772.3, 0.01, true},
		{"baseline", "ecsched-k8s+now/fifo", 1227.4, 0.01, false},
		{"baseline", "balanced+now/fifo", 1224.0, 0.01, true},
	} {
		if c.onlyLong && !long {
			continue
		}
		got := ecsched(t, c.scenario, c.strategy)
		if math.Abs(got.mean/c.want-1) > c.within {
			t.Errorf("%s, %s: mean completion time is %.1f s, want %.1f s ± %v %%", c.scenario, c.strategy, got.mean,
				c.want, 100*c.within)
		}
	}
}

// TestECSchedLearned checks a strategy that predicts durations from completed jobs only and runs the shortest jobs
// first.
func TestECSchedLearned(t *testing.T) {
	kit.Data(t, "ecsched/ecsched_input_9549jobs.txt")
	if got := ecsched(t, "learned", "balanced+now/shortest"); got.mean > 1165 {
		t.Errorf("mean completion time is %.1f s, want at most 1165 s", got.mean)
	}
	if !long {
		return
	}
	for _, name := range []string{"learned-40", "learned-65"} {
		stock, own := ecsched(t, name, "ecsched-k8s+now/fifo"), ecsched(t, name, "balanced+now/shortest")
		if own.mean > 1.01*stock.mean {
			t.Errorf("%s: mean completion time %.1f s, %.1f s in order of arrival", name, own.mean, stock.mean)
		}
	}
}

// TestECSchedAging checks the order "aging", which clusters support, with known run times.
func TestECSchedAging(t *testing.T) {
	kit.Data(t, "ecsched/ecsched_input_9549jobs.txt")
	arrival, aging := ecsched(t, "order", "balanced+now/fifo"), ecsched(t, "order", "balanced+now/aging")
	if aging.mean > 0.85*arrival.mean {
		t.Errorf("mean completion time is %.1f s, want at least 15 %% below %.1f s in order of arrival", aging.mean,
			arrival.mean)
	}
}
