package mincost

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawFluid generates jobs that compete for steps, and returns them with their work.
func drawFluid(t *rapid.T) (f *Fluid, works []float64) {
	steps := rapid.IntRange(14, 30).Draw(t, "steps")
	amounts := func(least, most float64, label string) []float64 {
		return rapid.SliceOfN(rapid.Float64Range(least, most), steps, steps).Draw(t, label)
	}
	f = NewFluid(amounts(0, 900, "values"), amounts(1, 7, "rooms"))
	for range rapid.IntRange(8, 15).Draw(t, "jobs") {
		work := rapid.Float64Range(1, 5).Draw(t, "work")
		works = append(works, work)
		f.Add(work)
		most := rapid.Float64Range(1, 4).Draw(t, "most")
		first := rapid.IntRange(0, 6).Draw(t, "first")
		for k := first; k < min(steps, first+rapid.IntRange(6, 24).Draw(t, "window")); k++ {
			f.Allow(k, most)
		}
	}
	f.Solve(NeverStop)
	return f, works
}

// TestFluidProvesItself checks that the flow is feasible and that its dual has the same value, so that it is
// optimal. If not all work can be placed, the demand exceeds the capacity of a set of steps regardless of prices.
func TestFluidProvesItself(t *testing.T) {
	overfull, priced := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		f, works := drawFluid(t)
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*(1+math.Abs(a)) }
		cost, left := 0.0, 0.0
		loads := make([]float64, len(f.values))
		for i, work := range works {
			sum := f.Left[i]
			for step, used := range f.Used(i) {
				sum += used
				loads[step] += used
				cost += used * f.values[step]
			}
			for _, a := range f.arcs[i] {
				if a.used < -f.Least || a.used > a.most+f.Least {
					t.Fatalf("job %d uses %v, want at most %v", i, a.used, a.most)
				}
			}
			if left += f.Left[i]; !near(sum, work) {
				t.Fatalf("placed and remaining work of job %d = %v, want %v", i, sum, work)
			}
		}
		prices := f.prices()
		for k, load := range loads {
			if load > f.rooms[k]+1e-9 || !near(load, f.Load[k]) {
				t.Fatalf("load of step %d = %v (recorded %v), want at most %v", k, load, f.Load[k], f.rooms[k])
			}
			if prices[k] < 0 {
				t.Fatalf("step %d has a negative price of %v", k, prices[k])
			}
		}
		if left > 1e-9 {
			overfull++
			return
		}
		if slices.Max(prices) > 0 {
			priced++
		}
		if dual := f.dual(works, prices); !near(cost, dual) {
			t.Fatalf("cost of the flow = %v, but cost of the dual = %v", cost, dual)
		}
	})
	if t.Logf("%d cases exceeded the capacity, %d cases had a positive price", overfull, priced); overfull == 0 || priced < 20 {
		t.Error("too few cases with jobs that compete for capacity")
	}
}

// dual returns the minimum cost if the capacity of each step is sold at a price instead of being limited, minus the
// proceeds. For non-negative prices it never exceeds the cost of any schedule.
func (f *Fluid) dual(works, prices []float64) (total float64) {
	for i, left := range works {
		arcs := slices.Clone(f.arcs[i])
		slices.SortStableFunc(arcs, func(a, b arc) int {
			return cmp.Compare(f.values[a.step]+prices[a.step], f.values[b.step]+prices[b.step])
		})
		for _, a := range arcs {
			use := min(left, a.most)
			total += use * (f.values[a.step] + prices[a.step])
			left -= use
		}
	}
	for k, price := range prices {
		total -= price * f.rooms[k]
	}
	return total
}

// prices returns the dual values of the solution, per unit of capacity of each step. The value of a step is the
// cost of the most expensive step from which work could be moved into it, or its own cost if that is higher. The
// difference to its own cost is the price of its capacity. Work can be moved from step k to step l if a job uses k
// and could use more of l.
func (f *Fluid) prices() []float64 {
	prices := make([]float64, len(f.values))
	known := make([]bool, len(f.values))
	visited := make([]bool, len(f.arcs))
	for _, k := range slices.Backward(f.byValue) {
		if known[k] {
			continue
		}
		known[k] = true
		queue := []int{k}
		for head := 0; head < len(queue); head++ {
			for _, u := range f.users[queue[head]] {
				if visited[u.job] || f.arcs[u.job][u.arc].used <= f.Least {
					continue
				}
				visited[u.job] = true
				for _, a := range f.arcs[u.job] {
					if !known[a.step] && a.most-a.used > f.Least {
						known[a.step], prices[a.step] = true, f.values[k]-f.values[a.step]
						queue = append(queue, a.step)
					}
				}
			}
		}
	}
	return prices
}
