package plugin

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/sched"
)

func TestRank(t *testing.T) {
	for _, tc := range []struct {
		name  string
		costs []float64 // of nodes named a, b, c, …
		want  []int64   // nil: not comparable
	}{
		{"one", []float64{7}, []int64{100}},
		{"in proportion", []float64{30, 10, 20}, []int64{0, 100, 49}},
		{"a hair's breadth apart", []float64{10 + 1e-9, 10, 20}, []int64{98, 100, 0}},
		{"ties", []float64{20, 10, 10}, []int64{0, 100, 99}},
		{"all alike", []float64{10, 10}, []int64{100, 99}},
		{"negative", []float64{-10, -20}, []int64{0, 100}},
		{"none", nil, nil},
		{"NaN", []float64{1, math.NaN()}, nil},
		{"infinite", []float64{1, math.Inf(1)}, nil},
		{"too far apart", []float64{-math.MaxFloat64, math.MaxFloat64}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nodes := make([]*sched.Node, len(tc.costs))
			for i := range nodes {
				nodes[i] = &sched.Node{Name: string(rune('a' + i))}
			}
			scores := make([]int64, len(nodes))
			if ok := rank(nodes, tc.costs, scores); ok != (tc.want != nil) {
				t.Fatalf("ok is %v", ok)
			}
			if tc.want == nil {
				return
			}
			if diff := cmp.Diff(tc.want, scores); diff != "" {
				t.Error(diff)
			}
		})
	}
}
