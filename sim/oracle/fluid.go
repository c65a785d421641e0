package oracle

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kubenergy/kubenergy/sched"
)

// Flow is the least that jobs can cost on cores that may be shared out at will: in every step a job uses up to all of
// the cores it asks for, any part of them, for any part of the time.
type Flow struct {
	Cost   float64
	Prices []float64 // of a core in each step, with which its dual has that very cost: the proof that it is the least
}

// Fluid returns the least cost of a fluid schedule, see [sched.Fluid]. No schedule that starts jobs in one piece, or
// suspends them, on the same cores and in time costs less, since each of them is a fluid one too.
func (p *Capacity) Fluid() (*Flow, error) {
	f := p.flow()
	total, placed, cost := 0.0, 0.0, 0.0
	for i := range p.jobs {
		total += work(&p.jobs[i])
	}
	for k, load := range f.Load {
		placed += load
		cost += load * p.value[k]
	}
	if !closeTo(placed, total, total) {
		return nil, fmt.Errorf("%.4g of %.4g core-hours find no room: %w", (total-placed)/3600, total/3600, ErrOverfull)
	}
	return &Flow{Cost: cost, Prices: f.Prices()}, nil
}

// flow shares all cores out, in core-seconds.
func (p *Capacity) flow() *sched.Fluid {
	f := sched.NewFluid(p.value, slices.Repeat([]float64{p.room()}, len(p.value)))
	for i := range p.jobs {
		f.Add(work(&p.jobs[i]))
		for _, w := range p.wants[i] {
			f.Allow(w.step, w.most)
		}
	}
	f.Solve(func() bool { return false })
	return f
}

// Dual returns the least cost of a fluid schedule with the cores of each step sold at a price instead of being
// limited, less what they are sold for. For prices of 0 or more it is never above the cost of any schedule in time;
// for the prices of [Capacity.Fluid] it is that cost.
func (p *Capacity) Dual(prices []float64) float64 {
	total := 0.0
	var arcs []want
	for i := range p.jobs {
		arcs = append(arcs[:0], p.wants[i]...)
		slices.SortStableFunc(arcs, func(a, b want) int {
			return cmp.Compare(p.value[a.step]+prices[a.step], p.value[b.step]+prices[b.step])
		})
		left := work(&p.jobs[i])
		for _, a := range arcs {
			use := min(left, a.most)
			total += use * (p.value[a.step] + prices[a.step])
			if left -= use; left <= 0 {
				break
			}
		}
	}
	for _, price := range prices {
		total -= price * p.room()
	}
	return total
}
