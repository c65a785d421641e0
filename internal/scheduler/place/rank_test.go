package place

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	fwk "k8s.io/kube-scheduler/framework"
)

func scoresOf(r *ranking) (scores []int64) {
	for i := range r.names {
		scores = append(scores, r.score(i))
	}
	return scores
}

func TestRank(t *testing.T) {
	for _, tc := range []struct {
		name  string
		costs []float64 // costs of the nodes a, b, c, …
		want  []int64   // nil if the costs are not comparable
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
			var r ranking
			r.begin(len(tc.costs))
			for i := range tc.costs {
				r.single(i, string(rune('a'+i)))
			}
			if ok := r.rank(tc.costs); ok != (tc.want != nil) {
				t.Fatalf("ok is %v", ok)
			}
			if tc.want == nil {
				return
			}
			if diff := cmp.Diff(tc.want, scoresOf(&r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRankOfGroups verifies that the first node by name in the cheapest groups has the best score, and that the
// other nodes of these groups have the second-best.
func TestRankOfGroups(t *testing.T) {
	var r ranking
	r.begin(5)
	r.names, r.group, r.first = []string{"e", "d", "c", "b", "a"}, []int32{0, 1, 1, 1, 2}, []int32{0, 3, 4}
	if !r.rank([]float64{20, 10, 15}) {
		t.Fatal("not comparable")
	}
	if diff := cmp.Diff([]int64{0, 99, 99, 100, 49}, scoresOf(&r)); diff != "" {
		t.Error(diff)
	}
}

// TestFillGoesByName verifies that scores are assigned by name, because kube-scheduler guarantees neither the order
// nor the completeness of the nodes.
func TestFillGoesByName(t *testing.T) {
	var r ranking
	r.begin(3)
	for i, name := range []string{"a", "b", "c"} {
		r.single(i, name)
	}
	if !r.rank([]float64{10, 20, 30}) {
		t.Fatal("not comparable")
	}
	scores := fwk.NodeScoreList{{Name: "c"}, {Name: "b"}, {Name: "x"}, {Name: "a"}, {Name: "b"}}
	r.fill(scores)
	if diff := cmp.Diff(fwk.NodeScoreList{
		{Name: "c"}, {Name: "b", Score: 49}, {Name: "x"}, {Name: "a", Score: 100}, {Name: "b", Score: 49},
	}, scores); diff != "" {
		t.Error(diff)
	}
}
