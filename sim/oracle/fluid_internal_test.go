package oracle

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// drawCapacity draws jobs that compete for a few cores.
func drawCapacity(t *rapid.T) *Capacity {
	begin := time.Date(2022, 3, 1, 0, 0, 0, 0, time.UTC)
	values := rapid.SliceOfN(rapid.Float64Range(0, 900), 8, 30).Draw(t, "intensity")
	c, err := grid.NewSeries(begin, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	jobs := make([]sched.Job, rapid.IntRange(8, 15).Draw(t, "jobs"))
	for i := range jobs {
		jobs[i] = sched.Job{
			ID: strconv.Itoa(i), Submitted: begin.Add(time.Duration(rapid.IntRange(0, 4*3600).Draw(t, "submitted")) *
				time.Second),
			Duration:     time.Duration(rapid.IntRange(2*3600, 6*3600).Draw(t, "duration")) * time.Second,
			AllowedDelay: time.Duration(rapid.IntRange(6*3600, 24*3600).Draw(t, "delay")) * time.Second,
			Request:      sched.Resources{MilliCPU: rapid.Int64Range(1000, 4000).Draw(t, "cpu")},
		}
	}
	p, err := NewCapacity(c, rapid.Float64Range(4, 7).Draw(t, "cores"), jobs)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The flow is possible, and its dual has the same value: so nothing is cheaper. Where the flow finds no room for all,
// the jobs' demand exceeds what some set of steps offers, which no price can help.
func TestFluidProvesItself(t *testing.T) {
	overfull, priced := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawCapacity(t)
		flow, err := p.Fluid()
		if errors.Is(err, ErrOverfull) {
			overfull++
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		f := p.flow()
		loads := make([]float64, len(p.value))
		for i := range p.jobs {
			sum := 0.0
			for step, used := range f.Used(i) {
				at := slices.IndexFunc(p.wants[i], func(w want) bool { return w.step == step })
				if most := p.wants[i][at].most; used > most*(1+1e-9) {
					t.Fatalf("job %d uses %v of at most %v", i, used, most)
				}
				sum += used
				loads[step] += used
			}
			if !closeTo(sum, work(&p.jobs[i]), p.room()) {
				t.Fatalf("job %d gets %v of its %v core-seconds", i, sum, work(&p.jobs[i]))
			}
		}
		for k, load := range loads {
			if load > p.room()+1e-6 || !closeTo(load, f.Load[k], p.room()) {
				t.Fatalf("step %d is loaded with %v (counted %v) of %v", k, load, f.Load[k], p.room())
			}
			if flow.Prices[k] < 0 {
				t.Fatalf("step %d has the price %v", k, flow.Prices[k])
			}
		}
		if slices.Max(flow.Prices) > 0 {
			priced++
		}
		if dual := p.Dual(flow.Prices); !closeTo(dual, flow.Cost, 1+flow.Cost) {
			t.Fatalf("the flow costs %v, its dual is %v", flow.Cost, dual)
		}
	})
	if t.Logf("%d of the draws were overfull, in %d cores had a price", overfull, priced); overfull+priced < 20 {
		t.Error("in too few draws jobs are in each other's way")
	}
}
