package oracle

import (
	"cmp"
	"fmt"
	"slices"
)

// Flow is the least that jobs can cost on cores that may be shared out at will: in every step a job uses up to all of
// the cores it asks for, any part of them, for any part of the time.
type Flow struct {
	Cost   float64
	Prices []float64 // of a core in each step, with which its dual has that very cost: the proof that it is the least
}

// Fluid returns the least cost of a fluid schedule. No schedule that starts jobs in one piece, or suspends them, on the
// same cores and in time costs less, since each of them is a fluid one too.
//
// It is a transportation problem from jobs to steps in core-seconds, and solved exactly. Its costs are those of steps
// alone, whichever job uses them, so the loads of steps that can be reached form a polymatroid, and greed is optimal:
// step by step, the cheapest first, as much flow is sent through it as can be without taking any from the steps
// before, along augmenting paths that move jobs about.
func (p *Capacity) Fluid() (*Flow, error) {
	f := newFlow(p)
	for _, k := range f.byValue {
		for f.augment(k) {
		}
	}
	total, placed, cost := 0.0, 0.0, 0.0
	for i := range p.jobs {
		total += work(&p.jobs[i])
	}
	for k, load := range f.load {
		placed += load
		cost += load * p.value[k]
	}
	if !closeTo(placed, total, total) {
		return nil, fmt.Errorf("%.4g of %.4g core-hours find no room: %w", (total-placed)/3600, total/3600, ErrOverfull)
	}
	return &Flow{Cost: cost, Prices: f.prices()}, nil
}

// flow is a state of the transportation problem.
type flow struct {
	p       *Capacity
	byValue []int     // steps, the cheapest first
	left    []float64 // by job: what is not placed yet
	load    []float64 // by step
	users   [][]user  // by step: who may use it
	used    [][]float64
	least   float64 // what is less is rounding

	round   int
	seen    []int // by job: round in which it was reached last
	reached []int // and by step
	from    []hop // by job: how it is reached
	queue   []int
}

// user is one arc: a job, and which of its wants.
type user struct{ job, arc int }

// hop says that a job frees a step by moving on to another: arcs of its own.
type hop struct{ step, arc, previous int }

func newFlow(p *Capacity) *flow {
	f := &flow{
		p: p, byValue: make([]int, len(p.value)), left: make([]float64, len(p.jobs)),
		load:  make([]float64, len(p.value)),
		users: make([][]user, len(p.value)), used: make([][]float64, len(p.jobs)), seen: make([]int, len(p.jobs)),
		from:  make([]hop, len(p.jobs)),
		least: 1e-12 * p.room(), reached: make([]int, len(p.value)),
	}
	for k := range f.byValue {
		f.byValue[k] = k
	}
	slices.SortStableFunc(f.byValue, func(a, b int) int { return cmp.Compare(p.value[a], p.value[b]) })
	for i := range p.jobs {
		f.left[i] = work(&p.jobs[i])
		f.used[i] = make([]float64, len(p.wants[i]))
		for arc, w := range p.wants[i] {
			f.users[w.step] = append(f.users[w.step], user{i, arc})
		}
	}
	return f
}

// augment sends more flow through step k, and reports whether there was any. It searches back from the step: a job that
// can use more of it either has work left, or gives up a part of another step, which a further job then takes.
func (f *flow) augment(k int) bool {
	if f.p.room()-f.load[k] <= f.least {
		return false
	}
	f.round++
	f.queue = f.queue[:0]
	f.reach(k, -1)
	for head := 0; head < len(f.queue); head++ {
		job := f.queue[head]
		if f.left[job] > f.least {
			f.send(k, job)
			return true
		}
		for arc, w := range f.p.wants[job] {
			if f.used[job][arc] > f.least {
				f.reach(w.step, head)
			}
		}
	}
	return false
}

// reach notes all jobs that could use more of a step that the job at the given place of the queue would free.
func (f *flow) reach(step, previous int) {
	if f.reached[step] == f.round {
		return
	}
	f.reached[step] = f.round
	for _, u := range f.users[step] {
		if f.seen[u.job] == f.round || f.p.wants[u.job][u.arc].most-f.used[u.job][u.arc] <= f.least {
			continue
		}
		f.seen[u.job] = f.round
		f.from[u.job] = hop{step: step, arc: u.arc, previous: previous}
		f.queue = append(f.queue, u.job)
	}
}

// send moves as much as possible along the path that ends with work left of a job.
func (f *flow) send(k, last int) {
	amount := min(f.left[last], f.p.room()-f.load[k])
	f.walk(last, func(takes, gives *float64, most float64) {
		amount = min(amount, most-*takes)
		if gives != nil {
			amount = min(amount, *gives)
		}
	})
	f.walk(last, func(takes, gives *float64, _ float64) {
		*takes += amount
		if gives != nil {
			*gives -= amount
		}
	})
	f.left[last] -= amount
	f.load[k] += amount
}

// walk visits a path from the job that has work left to the step that takes more: what each job takes more of a step,
// up to most, and what the job before it gives up of that step.
func (f *flow) walk(last int, visit func(takes, gives *float64, most float64)) {
	for job := last; ; {
		h := f.from[job]
		takes, most := &f.used[job][h.arc], f.p.wants[job][h.arc].most
		if h.previous < 0 {
			visit(takes, nil, most)
			return
		}
		before := f.queue[h.previous]
		visit(takes, &f.used[before][f.arc(before, h.step)], most)
		job = before
	}
}

// arc returns which of its wants a job has of a step: they are of consecutive steps.
func (f *flow) arc(job, step int) int { return step - f.p.wants[job][0].step }

// prices returns the dual of an optimal flow. A step is worth the dearest step that work in it could be moved from,
// or its own value if that is more; the difference is the price of its cores. Work can be moved from step k to step l
// if a job uses k and could use more of l.
func (f *flow) prices() []float64 {
	worth := make([]float64, len(f.p.value))
	known := make([]bool, len(f.p.value))
	visited := make([]bool, len(f.p.jobs))
	for _, k := range slices.Backward(f.byValue) {
		if known[k] {
			continue
		}
		known[k], worth[k] = true, f.p.value[k]
		queue := []int{k}
		for head := 0; head < len(queue); head++ {
			for _, u := range f.users[queue[head]] {
				if visited[u.job] || f.used[u.job][u.arc] <= f.least {
					continue
				}
				visited[u.job] = true
				for arc, w := range f.p.wants[u.job] {
					if !known[w.step] && w.most-f.used[u.job][arc] > f.least {
						known[w.step], worth[w.step] = true, f.p.value[k]
						queue = append(queue, w.step)
					}
				}
			}
		}
	}
	prices := worth
	for k := range prices {
		prices[k] -= f.p.value[k]
	}
	return prices
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
