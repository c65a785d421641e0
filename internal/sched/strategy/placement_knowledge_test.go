package strategy_test

import (
	"cmp"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// TestThesisOrdersItsMachines compares the order of machines with both versions of the scheduler of the hybrid
// thesis, for its own knowledge base and for every class, weight and state of the machines.
//
//	v1: w·rate/best rate + (1 − w)·(rate/watts)/best (rate/watts)
//	v2: the same, but 0 for a node with more than its idle power
func TestThesisOrdersItsMachines(t *testing.T) {
	text, err := os.ReadFile("../../../../shared/data/power/hybrid_thesis_knowledge_base.yaml")
	if err != nil {
		t.Skip("shared data directory is not available: ", err)
	}
	byClass, warnings, err := hardware.ReadKnowledgeBase(text)
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	machines := []string{"tvpc", "dgoh-wyze", "rpi"}
	// Simulated meter readings: idle, or a fraction of the measured additional power.
	for _, load := range [][]float64{nil, {0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1}, {0.04, 0.4, 0.4}} {
		for _, class := range []string{"training", "inference", "sequential", hardware.OnGPU("training")} {
			s := &sched.Snapshot{}
			for i, name := range machines {
				n := &sched.Node{Name: name, Benchmarks: map[string]energy.Benchmark{}}
				if b, ok := byClass[class][name]; ok {
					n.Benchmarks[class] = b
					if load != nil {
						n.Live, n.HasLive = b.Idle+energy.Watts(load[i])*(b.Power-b.Idle), true
					}
				}
				s.Nodes = append(s.Nodes, n)
			}
			for _, w := range []float64{0, 0.25, 0.5, 0.75, 1} {
				job := &sched.Job{Class: class, PerformanceWeight: w, HasPerformanceWeight: true}
				for _, version := range []struct {
					name string
					load []float64
				}{{"profile", nil}, {"hybrid-idle", load}} {
					costs, ok := costsOf(t, version.name, s, job)
					if !ok {
						t.Fatalf("%s: no opinion on class %s", version.name, class)
					}
					got := order(machines, func(i int) float64 { return 1 - costs[i] })
					want := order(machines, thesisScore(byClass[class], machines, w, version.load))
					if got != want {
						t.Errorf("%s, %s, weight %v, load %v: got %s, want %s", version.name, class, w, load, got, want)
					}
				}
			}
		}
	}
	// Expected values read from the file: the PC is the fastest, and the thin client does the most work per joule.
	for w, want := range map[float64]string{1: "tvpc > dgoh-wyze > rpi", 0: "dgoh-wyze > tvpc > rpi"} {
		if got := order(machines, thesisScore(byClass["training"], machines, w, nil)); got != want {
			t.Errorf("training with weight %v: got %s, want %s", w, got, want)
		}
	}
}

// order returns the machines from the best score to the worst. Scores that differ by less than 1e-5 are considered
// equal, because the score of a busy machine is 0 in the thesis.
func order(names []string, score func(i int) float64) string {
	var at []int
	for i := range names {
		at = append(at, i)
	}
	rounded := func(i int) float64 { return math.Round(1e5 * score(i)) }
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(rounded(b), rounded(a)) })
	var out strings.Builder
	out.WriteString(names[at[0]])
	for k := 1; k < len(at); k++ {
		sign := " > "
		if rounded(at[k]) == rounded(at[k-1]) {
			sign = " = "
		}
		out.WriteString(sign + names[at[k]])
	}
	return out.String()
}

func thesisScore(of map[string]energy.Benchmark, machines []string, w float64, load []float64) func(i int) float64 {
	var rate, efficiency float64
	for _, name := range machines {
		if b, ok := of[name]; ok {
			rate, efficiency = max(rate, b.Rate), max(efficiency, b.Rate/float64(b.Power))
		}
	}
	return func(i int) float64 {
		b, known := of[machines[i]]
		span := float64(b.Power - b.Idle)
		if !known || load != nil && span*load[i] > min(5, span/2) {
			return 0
		}
		return w*b.Rate/rate + (1-w)*b.Rate/float64(b.Power)/efficiency
	}
}
