package sched

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// TestSavingIsTheReasons checks that Saving of the start chosen by "window" equals the saving in its reason, and
// that no other start saves more.
func TestSavingIsTheReasons(t *testing.T) {
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	held := 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		values := make([]float64, 48)
		for i := range values {
			values[i] = 50 + 500*random.Float64()
		}
		series, err := grid.NewSeries(begin, 30*time.Minute, values)
		if err != nil {
			t.Fatal(err)
		}
		j := Job{
			ID: "j", Submitted: begin, AllowedDelay: time.Duration(random.IntN(10)) * time.Hour,
			Duration: time.Duration(1+random.IntN(200)) * time.Minute, Request: Resources{MilliCPU: 1000},
		}
		s := &Snapshot{
			Now: begin.Add(time.Minute), Queue: []Job{j},
			Sites: []*Site{{Name: "here", Carbon: grid.Signal{Series: series}}},
		}
		w, reason := cheapestWindow(s, &j)
		if reason.Kind != CheaperLater {
			continue
		}
		held++
		best, carbon, ok := s.Saving(&j, w.Start)
		if !ok || math.Abs(best-reason.Saving) > 1e-9 || math.Abs(float64(carbon-reason.Carbon)) > 1e-9 {
			t.Fatalf("seed %d: Saving() of the chosen start = %v, %v, %v, want %v, %v",
				seed, best, carbon, ok, reason.Saving, reason.Carbon)
		}
		for range 50 {
			start := s.Now.Add(time.Duration(random.Int64N(int64(j.LatestStart().Sub(s.Now)))))
			if other, _, ok := s.Saving(&j, start); !ok || other > best+1e-9 {
				t.Fatalf("seed %d: Saving(%v) = %v, %v, but the chosen start saves %v", seed, start, other, ok, best)
			}
		}
		if _, _, ok := s.Saving(&j, begin.Add(48*time.Hour)); ok {
			t.Fatalf("seed %d: Saving() succeeded beyond the end of the forecast", seed)
		}
	}
	if held < 100 {
		t.Errorf("only %d of 200 jobs were held", held)
	}
}
