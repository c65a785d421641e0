package mincost

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Fluid distributes the capacity of time steps to jobs with divisible work. In every step a job uses any amount up
// to its limit. The result has the minimum cost among all schedules of the same jobs in the same steps. Capacity
// and work are measured in the same unit, chosen by the caller.
//
// The problem is a transportation problem from jobs to steps, and it is solved exactly. The cost of a step does not
// depend on the job, so the feasible loads of the steps form a polymatroid and a greedy algorithm is optimal: for
// each step in order of increasing cost, as much flow as possible is sent through it without reducing the flow of
// previous steps, along augmenting paths that move jobs between steps.
type Fluid struct {
	Load []float64 // by step
	Left []float64 // by job: work that is not placed

	values, rooms []float64 // by step: cost per unit of work, and capacity
	byValue       []int     // steps, cheapest first
	arcs          [][]arc   // by job
	using         [][]int   // by job: arcs in use now or previously
	users         [][]user  // by step: jobs that may use it
	Least         float64   // smaller amounts are considered rounding errors

	round   int
	seen    []int // by job: round in which it was last reached, or settled
	reached []int // likewise by step
	from    []hop // by job: previous hop on the path
	queue   []int
}

// arc contains the maximum and the actual use of a step by a job.
type arc struct {
	step       int
	most, used float64
}

// user identifies a job and one of its arcs.
type user struct{ job, arc int }

// hop identifies the arc on which a job uses more of a step, the position of the previous job in the queue, and the
// arc of that job that is freed.
type hop struct{ takes, previous, frees int }

// NewFluid returns a problem without jobs, for steps with the given cost per unit of work and the given capacity.
// It retains both slices.
func NewFluid(values, rooms []float64) *Fluid {
	f := &Fluid{
		Load: make([]float64, len(values)), values: values, rooms: rooms,
		byValue: sliceutil.Order(len(values), func(a, b int) int { return cmp.Compare(values[a], values[b]) }),
		users:   make([][]user, len(values)), reached: make([]int, len(values)),
	}
	for k := range values {
		f.Least = max(f.Least, 1e-12*rooms[k])
	}
	return f
}

// Add adds a job with the given amount of work.
func (f *Fluid) Add(work float64) {
	f.Left = append(f.Left, work)
	f.arcs, f.using = append(f.arcs, nil), append(f.using, nil)
	f.seen, f.from = append(f.seen, 0), append(f.from, hop{})
}

// Allow permits the job added last to use up to the given amount of a step.
func (f *Fluid) Allow(step int, most float64) {
	job := len(f.arcs) - 1
	f.users[step] = append(f.users[step], user{job, len(f.arcs[job])})
	f.arcs[job] = append(f.arcs[job], arc{step: step, most: most})
}

// Solve computes the schedule with the minimum cost, unless stop returns true before it is complete.
func (f *Fluid) Solve(stop func() bool) {
	for _, k := range f.byValue {
		for f.augment(k) {
			if stop() {
				return
			}
		}
	}
}

// Enlarge replaces the capacities of the steps, so that remaining work can be placed by another call to Solve. Work
// that is already placed is not moved to more expensive steps, so the result may not be optimal.
func (f *Fluid) Enlarge(rooms []float64) {
	f.rooms = rooms
	clear(f.seen)
}

// Used returns the steps used by a job and the amounts, in the order in which the steps were allowed.
func (f *Fluid) Used(job int) iter.Seq2[int, float64] {
	return func(yield func(int, float64) bool) {
		for _, a := range f.arcs[job] {
			if a.used > f.Least && !yield(a.step, a.used) {
				return
			}
		}
	}
}

// augment sends more flow through step k, and reports whether this was possible. It searches backwards from the
// step: a job that can use more of it either has remaining work, or frees a part of another step for a further job.
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
	for _, job := range f.queue { // their work cannot be moved any more, now or later
		f.seen[job] = settled
	}
	return false
}

const settled = math.MaxInt

// reach adds all jobs to the queue that could use more of a step if the job at the given position of the queue
// frees it by one of its arcs.
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

// send sends as much flow as possible along the path that ends at a job with remaining work.
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

// walk visits the path from the job with remaining work to the step. For each job it passes the arc with increased
// use, and the arc of the previous job that frees the same amount of this step.
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
