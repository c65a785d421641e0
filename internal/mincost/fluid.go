package mincost

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// Fluid shares room in steps of time out among jobs: in every step a job uses up to all that it may, any part of it. No
// schedule of the same jobs in the same steps costs less. Room and work have one unit, which is for the caller to
// choose.
//
// It is a transportation problem from jobs to steps, and solved exactly. Its costs are those of steps alone, whichever
// job uses them, so the loads of steps that can be reached form a polymatroid, and greed is optimal: step by step, the
// cheapest first, as much flow is sent through it as can be without taking any from the steps before, along augmenting
// paths that move jobs about.
type Fluid struct {
	Load []float64 // by step
	Left []float64 // by job, what is not placed

	values, rooms []float64 // by step: what a unit of work costs, and how much there is room for
	byValue       []int     // steps, the cheapest first
	arcs          [][]arc   // by job
	using         [][]int   // and which of them it uses, or used once
	users         [][]user  // by step: who may use it
	Least         float64   // what is less is rounding

	round   int
	seen    []int // by job: round in which it was reached last; settled: whatever is to come
	reached []int // and by step
	from    []hop // by job: how it is reached
	queue   []int
}

// arc is how much of a step a job may use, and how much it does.
type arc struct {
	step       int
	most, used float64
}

// user is a job, and which of its arcs.
type user struct{ job, arc int }

// hop says by which of its arcs a job takes more of a step, and by which of its own the job before it in the queue
// frees that.
type hop struct{ takes, previous, frees int }

// NewFluid returns steps that no job uses, by what a unit of work costs there and how much there is room for. It keeps
// both.
func NewFluid(values, rooms []float64) *Fluid {
	f := &Fluid{
		Load: make([]float64, len(values)), values: values, rooms: rooms, byValue: make([]int, len(values)),
		users: make([][]user, len(values)), reached: make([]int, len(values)),
	}
	for k := range values {
		f.byValue[k] = k
		f.Least = max(f.Least, 1e-12*rooms[k])
	}
	slices.SortStableFunc(f.byValue, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	return f
}

// Add adds a job with so much work.
func (f *Fluid) Add(work float64) {
	f.Left = append(f.Left, work)
	f.arcs, f.using = append(f.arcs, nil), append(f.using, nil)
	f.seen, f.from = append(f.seen, 0), append(f.from, hop{})
}

// Allow lets the job that was added last use up to so much of a step.
func (f *Fluid) Allow(step int, most float64) {
	job := len(f.arcs) - 1
	f.users[step] = append(f.users[step], user{job, len(f.arcs[job])})
	f.arcs[job] = append(f.arcs[job], arc{step: step, most: most})
}

// Solve finds the least cost, unless it is told to stop before.
func (f *Fluid) Solve(stop func() bool) {
	for _, k := range f.byValue {
		for f.augment(k) {
			if stop() {
				return
			}
		}
	}
}

// Enlarge gives steps more room, before what is left is solved as well. Nothing that is placed moves for that to dearer
// steps, so what comes of it may not be the least.
func (f *Fluid) Enlarge(rooms []float64) {
	f.rooms = rooms
	clear(f.seen)
}

// Used returns the steps that a job uses, in the order in which they were allowed, and how much it does.
func (f *Fluid) Used(job int) iter.Seq2[int, float64] {
	return func(yield func(int, float64) bool) {
		for _, a := range f.arcs[job] {
			if a.used > f.Least && !yield(a.step, a.used) {
				return
			}
		}
	}
}

// augment sends more flow through step k, and reports whether there was any. It searches back from the step: a job that
// can use more of it either has work left, or gives up a part of another step, which a further job then takes.
func (f *Fluid) augment(k int) bool {
	if f.rooms[k]-f.Load[k] <= f.Least {
		return false
	}
	f.round++
	f.queue = f.queue[:0]
	f.reach(k, -1, 0)
	for head := 0; head < len(f.queue); head++ {
		job := f.queue[head]
		if f.Left[job] > f.Least {
			f.send(k, job)
			return true
		}
		for _, i := range f.using[job] {
			if a := &f.arcs[job][i]; a.used > f.Least {
				f.reach(a.step, head, i)
			}
		}
	}
	for _, job := range f.queue { // nothing that is left can be moved here, nor will be
		f.seen[job] = settled
	}
	return false
}

const settled = math.MaxInt

// reach notes all jobs that could use more of a step, which the job at the given place of the queue would free by one
// of its arcs.
func (f *Fluid) reach(step, previous, frees int) {
	if f.reached[step] == f.round {
		return
	}
	f.reached[step] = f.round
	for _, u := range f.users[step] {
		a := &f.arcs[u.job][u.arc]
		if f.seen[u.job] >= f.round || a.most-a.used <= f.Least {
			continue
		}
		f.seen[u.job] = f.round
		f.from[u.job] = hop{u.arc, previous, frees}
		f.queue = append(f.queue, u.job)
	}
}

// send moves as much as possible along the path that ends with work left of a job.
func (f *Fluid) send(k, last int) {
	amount := min(f.Left[last], f.rooms[k]-f.Load[k])
	f.walk(last, func(job, takes int, frees *arc) {
		a := &f.arcs[job][takes]
		amount = min(amount, a.most-a.used)
		if frees != nil {
			amount = min(amount, frees.used)
		}
	})
	f.walk(last, func(job, takes int, frees *arc) {
		if !slices.Contains(f.using[job], takes) {
			f.using[job] = append(f.using[job], takes)
		}
		f.arcs[job][takes].used += amount
		if frees != nil {
			frees.used -= amount
		}
	})
	f.Left[last] -= amount
	f.Load[k] += amount
}

// walk visits a path from the job that has work left to the step that takes more: the arc by which each job takes more,
// and that by which the job before it frees as much of the same step.
func (f *Fluid) walk(last int, visit func(job, takes int, frees *arc)) {
	for job := last; ; {
		h := f.from[job]
		if h.previous < 0 {
			visit(job, h.takes, nil)
			return
		}
		before := f.queue[h.previous]
		visit(job, h.takes, &f.arcs[before][h.frees])
		job = before
	}
}

// NeverStop is the stop function of callers without a time limit.
func NeverStop() bool { return false }
