package sim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func compareEvents(a, b event) int {
	switch {
	case a.before(b):
		return -1
	case b.before(a):
		return 1
	}
	return 0
}

func TestEventHeapSorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h eventHeap
		var want []event
		for i := range rapid.IntRange(0, 200).Draw(t, "n") {
			e := event{
				at: rapid.Int64Range(0, 20).Draw(t, "at"), kind: eventKind(rapid.IntRange(0, 2).Draw(t, "kind")),
				job: int32(i),
			}
			h.push(e)
			want = append(want, e)
		}
		slices.SortFunc(want, compareEvents)
		for i, e := range want {
			if got := h.pop(); got != e {
				t.Fatalf("event %d = %+v, want %+v", i, got, e)
			}
		}
	})
}

// BenchmarkEventLoop measures the bare loop: pop the next event and push a later one, with 1,000 and 100,000
// pending events.
func BenchmarkEventLoop(b *testing.B) {
	for name, pending := range map[string]int{"pending=1000": 1000, "pending=100000": 100_000} {
		b.Run(name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			steps := make([]int64, 1<<12)
			for i := range steps {
				steps[i] = rng.Int64N(1e12)
			}
			var h eventHeap
			for i := range pending {
				h.push(event{at: steps[i%len(steps)], job: int32(i)})
			}
			for i := 0; b.Loop(); i++ {
				e := h.pop()
				e.at += steps[i%len(steps)]
				h.push(e)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
