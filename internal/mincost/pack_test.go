package mincost_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/mincost"
	"github.com/kubenergy/kubenergy/internal/mincost/mincosttest"
)

func endless() bool { return false }

// drawPacking generates a few items and bins with one to three resources, so that not all items fit.
func drawPacking(t *rapid.T, classes, groups int) mincost.Packing {
	dims := rapid.IntRange(1, 3).Draw(t, "resources")
	amounts := func(label string, least, most int64) []int64 {
		return rapid.SliceOfN(rapid.Int64Range(least, most), dims, dims).Draw(t, label)
	}
	span := rapid.SampledFrom([]int64{1, 10, 1000, mincost.MaxCost}).Draw(t, "span")
	var p mincost.Packing
	for range rapid.IntRange(0, classes).Draw(t, "classes") {
		p.Items = append(p.Items, mincost.Items{
			Count: rapid.Int64Range(0, 3).Draw(t, "count"), Demand: amounts("demand", 0, 9),
			LeftOut: rapid.SampledFrom([]int64{-1, 0, span / 2, 8 * span}).Draw(t, "left out"),
		})
	}
	for range rapid.IntRange(0, groups).Draw(t, "groups") {
		p.Bins = append(p.Bins, mincost.Bins{
			Count: rapid.Int64Range(0, 2).Draw(t, "bins"), Capacity: amounts("capacity", 0, 20),
			Opening: rapid.SampledFrom([]int64{0, span / 3, span}).Draw(t, "opening"),
		})
	}
	p.Cost = mincost.NewMatrix(len(p.Items), len(p.Bins))
	for i := range p.Cost.Cost {
		if rapid.IntRange(0, 4).Draw(t, "exists") > 0 {
			p.Cost.Cost[i] = rapid.Int64Range(-span, span).Draw(t, "cost")
		}
	}
	if rapid.Bool().Draw(t, "devices") {
		p.Room = func(group int, held []mincost.Held) bool { // at most two classes per bin
			return len(held) <= 2
		}
	}
	return p
}

// cheapest evaluates every placement of the items starting at the given class, in partially filled bins.
func cheapest(p *mincost.Packing, class int, left int64, held []map[int]int64, group []int) float64 {
	if class == len(p.Items) {
		cost := 0.0
		for k, h := range held {
			if len(h) > 0 {
				cost += float64(p.Bins[group[k]].Opening)
			}
		}
		return cost
	}
	if left == 0 {
		next := int64(0)
		if class+1 < len(p.Items) {
			next = p.Items[class+1].Count
		}
		return cheapest(p, class+1, next, held, group)
	}
	least := float64(p.Items[class].LeftOut) + cheapest(p, class, left-1, held, group)
	for k := range held {
		cost := p.Cost.Cost[class*p.Cost.Cols+group[k]]
		if cost == mincost.Missing {
			continue
		}
		held[k][class]++
		if roomy(p, group[k], held[k]) {
			least = min(least, float64(cost)+cheapest(p, class, left-1, held, group))
		}
		if held[k][class]--; held[k][class] == 0 {
			delete(held[k], class)
		}
	}
	return least
}

func roomy(p *mincost.Packing, group int, held map[int]int64) bool {
	var list []mincost.Held
	used := make([]int64, len(p.Bins[group].Capacity))
	for class := range p.Items {
		if n := held[class]; n > 0 {
			list = append(list, mincost.Held{Class: class, Count: n})
			for k, d := range p.Items[class].Demand {
				used[k] += n * d
			}
		}
	}
	for k, u := range used {
		if u > p.Bins[group].Capacity[k] {
			return false
		}
	}
	return p.Room == nil || p.Room(group, list)
}

// TestPackIsBoundedByTheOptimum checks that a packing is a valid placement and that the optimum is between its
// bound and its cost.
func TestPackIsBoundedByTheOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPacking(t, 3, 2)
		a, err := mincost.Pack(p, endless)
		if err != nil {
			t.Fatal(err)
		}
		if err := mincosttest.Certify(&p, a); err != nil {
			t.Fatal(err)
		}
		var group []int
		var held []map[int]int64
		for j := range p.Bins {
			for range p.Bins[j].Count {
				group = append(group, j)
				held = append(held, map[int]int64{})
			}
		}
		first := int64(0)
		if len(p.Items) > 0 {
			first = p.Items[0].Count
		}
		if best := cheapest(&p, 0, first, held, group); float64(a.Bound) > best || float64(a.Cost) < best {
			t.Fatalf("optimum = %v, want a value between %d and %d", best, a.Bound, a.Cost)
		}
	})
}

// TestPackStops checks that the placement is valid and reproducible whenever the time is up.
func TestPackStops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPacking(t, 8, 5)
		limit := rapid.IntRange(0, 60).Draw(t, "questions")
		pack := func() *mincost.Packed {
			asked := 0
			a, err := mincost.Pack(p, func() bool { asked++; return asked > limit })
			if err != nil {
				t.Fatal(err)
			}
			if asked > limit+1 || a.Whole != (asked <= limit) {
				t.Fatalf("stop was called %d times with a limit of %d: Whole = %v", asked, limit, a.Whole)
			}
			return a
		}
		a := pack()
		if err := mincosttest.Certify(&p, a); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, pack()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestPackOpensFewBins checks that items are concentrated in few bins because each bin has an opening cost, and
// that the bound includes this cost.
func TestPackOpensFewBins(t *testing.T) {
	p := mincost.Packing{
		Items: []mincost.Items{{Count: 40, Demand: []int64{1, 2}, LeftOut: 1000}},
		Bins: []mincost.Bins{
			{Count: 20, Capacity: []int64{10, 100}, Opening: 50}, {Count: 20, Capacity: []int64{10, 16}, Opening: 50},
		},
		Cost: mincost.NewMatrix(1, 2),
	}
	p.Cost.Set(0, 0, 3)
	p.Cost.Set(0, 1, 3)
	a, err := mincost.Pack(p, endless)
	if err != nil || a.Cost != 40*3+4*50 || a.Gap() > 0.01 {
		t.Errorf("cost = %d with a bound of %d, error = %v", a.Cost, a.Bound, err)
	}
}

func TestPackRefuses(t *testing.T) {
	one := func(change func(p *mincost.Packing)) error {
		p := mincost.Packing{
			Items: []mincost.Items{{Count: 1, Demand: []int64{1}}},
			Bins:  []mincost.Bins{{Count: 1, Capacity: []int64{1}}}, Cost: mincost.NewMatrix(1, 1),
		}
		p.Cost.Set(0, 0, 1)
		change(&p)
		_, err := mincost.Pack(p, endless)
		return err
	}
	if err := one(func(*mincost.Packing) {}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(p *mincost.Packing){
		"negative demand":            func(p *mincost.Packing) { p.Items[0].Demand[0] = -1 },
		"excessive total":            func(p *mincost.Packing) { p.Items[0].Count, p.Items[0].LeftOut = 1<<30, 1<<40 },
		"excessive cost of omission": func(p *mincost.Packing) { p.Items[0].LeftOut = math.MaxInt64 },
		"excessive capacity":         func(p *mincost.Packing) { p.Bins[0].Capacity[0] = 1 << 60 },
	} {
		if one(change) == nil {
			t.Errorf("%s: Pack() accepted an invalid packing", name)
		}
	}
}

func TestCertifyPackedRefuses(t *testing.T) {
	one := func(change func(p *mincost.Packing, a *mincost.Packed)) error {
		p := mincost.Packing{
			Items: []mincost.Items{
				{Count: 3, Demand: []int64{2}, LeftOut: 90}, {Count: 1, Demand: []int64{1}, LeftOut: 90},
			},
			Bins: []mincost.Bins{{Count: 2, Capacity: []int64{4}, Opening: 5}}, Cost: mincost.NewMatrix(2, 1),
		}
		p.Cost.Set(0, 0, 7)
		a, err := mincost.Pack(p, endless)
		if err != nil || a.Cost != 3*7+2*5+90 {
			t.Fatalf("unexpected packing: %+v, %v", a, err)
		}
		change(&p, a)
		return mincosttest.Certify(&p, a)
	}
	if err := one(func(*mincost.Packing, *mincost.Packed) {}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(p *mincost.Packing, a *mincost.Packed){
		"wrong cost":                  func(_ *mincost.Packing, a *mincost.Packed) { a.Cost-- },
		"bound above the cost":        func(_ *mincost.Packing, a *mincost.Packed) { a.Bound = a.Cost + 1 },
		"missing bin":                 func(_ *mincost.Packing, a *mincost.Packed) { a.Bins = a.Bins[:1] },
		"additional bin":              func(_ *mincost.Packing, a *mincost.Packed) { a.Bins = append(a.Bins, nil) },
		"more items than exist":       func(_ *mincost.Packing, a *mincost.Packed) { a.Bins[1][0].Count = 2 },
		"negative number of items":    func(_ *mincost.Packing, a *mincost.Packed) { a.Bins[1][0].Count = -1 },
		"invalid class":               func(_ *mincost.Packing, a *mincost.Packed) { a.Bins[0][0].Class = 2 },
		"class that is not permitted": func(_ *mincost.Packing, a *mincost.Packed) { a.Bins[0][0].Class = 1 },
		"exceeded capacity":           func(p *mincost.Packing, _ *mincost.Packed) { p.Bins[0].Capacity[0] = 3 },
		"bin rejected by Room": func(p *mincost.Packing, _ *mincost.Packed) {
			p.Room = func(int, []mincost.Held) bool { return false }
		},
		"packing of different size": func(p *mincost.Packing, _ *mincost.Packed) { p.Items = p.Items[:1] },
	} {
		if one(change) == nil {
			t.Errorf("%s: Certify() accepted an invalid packing", name)
		}
	}
}
