package mincost

import "testing"

// TestAscentStopsWithinAStep checks that stop is called for every step, because a step over millions of pairs takes
// long.
func TestAscentStopsWithinAStep(t *testing.T) {
	p := Packing{
		Items: []Items{{Count: 9, Demand: []int64{1}, LeftOut: 100}}, Bins: []Bins{{Count: 2, Capacity: []int64{3}}},
		Cost: NewMatrix(1, 1),
	}
	p.Cost.Set(0, 0, 7)
	a, asked := newAscent(newDual(&p)), 0
	if a.walk(func() bool { asked++; return asked > 5 }) || a.walked != 5 {
		t.Errorf("performed %d steps, want 5", a.walked)
	}
	if !a.walk(func() bool { return false }) || a.walked != 5+ascentLook {
		t.Errorf("performed %d steps without a time limit", a.walked)
	}
}
