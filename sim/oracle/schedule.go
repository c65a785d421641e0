package oracle

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/grid"
)

// Schedule is when each job of a trace starts, on limited cores, in one piece and in time.
type Schedule struct {
	Cost   float64
	Starts []time.Time // by index of the jobs
}

// Schedule returns a schedule that is possible, as cheap as it finds one: its cost is an upper bound of the optimum.
// Jobs are placed one by one where they cost least with the given prices of cores added, which keep them off steps
// that others need; then each in turn is taken out and put back where it costs least; then small groups of neighbours
// are, drawn at random, so many times. The same seed gives the same schedule. It is an error that is [ErrOverfull] if
// it finds none, which does not prove that there is none.
func (p *Capacity) Schedule(prices []float64, rounds int, seed uint64) (*Schedule, error) {
	dear, err := p.priced(prices)
	if err != nil {
		return nil, err
	}
	plain, err := p.series()
	if err != nil {
		return nil, err
	}
	var best *planner
	for _, order := range p.orders() {
		plan := newPlanner(p)
		if plan.placeAll(dear, order) && (best == nil || plan.cost(plain) < best.cost(plain)) {
			best = plan
		}
	}
	if best == nil {
		return nil, fmt.Errorf("placing %d jobs on %v cores: %w", len(p.jobs), p.cores, ErrOverfull)
	}
	best.improve(plain)
	best.shake(plain, dear, rounds, seed)
	best.improve(plain)
	s := &Schedule{Cost: best.cost(plain), Starts: make([]time.Time, len(p.jobs))}
	for i := range s.Starts {
		s.Starts[i] = best.start[i]
	}
	return s, nil
}

// orders returns the orders in which jobs are placed: the largest first, the widest first, and those first that must
// start first.
func (p *Capacity) orders() [][]int {
	sorted := func(less func(a, b int) int) []int {
		order := make([]int, len(p.jobs))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, less)
		return order
	}
	return [][]int{
		sorted(func(a, b int) int { return cmp.Compare(work(&p.jobs[b]), work(&p.jobs[a])) }),
		sorted(func(a, b int) int { return cmp.Compare(width(&p.jobs[b]), width(&p.jobs[a])) }),
		sorted(func(a, b int) int { return p.jobs[a].LatestStart().Compare(p.jobs[b].LatestStart()) }),
	}
}

// planner places jobs on limited cores.
type planner struct {
	p      *Capacity
	start  []time.Time
	placed []bool
	times  []int64 // when the use of cores changes; in Unix nanoseconds
	level  []int64 // millicores in use from then on
	limit  int64

	candidates []candidate
}

// candidate is one start of a job.
type candidate struct {
	at   int64
	cost float64
}

func newPlanner(p *Capacity) *planner {
	return &planner{
		p: p, start: make([]time.Time, len(p.jobs)), placed: make([]bool, len(p.jobs)),
		times: []int64{p.start.UnixNano()}, level: []int64{0}, limit: millicores(p.cores),
	}
}

// millicores are whole ones, as requests are. It forgives the last digits: 1.001·1000 is not 1001 in binary.
func millicores(cores float64) int64 { return int64(math.Floor(cores*1000 + 1e-6)) }

// placeAll places jobs in an order. One that finds no place goes to the front of the next attempt.
func (l *planner) placeAll(c *grid.Series, order []int) bool {
	order = slices.Clone(order)
	const attempts = 40
	for range attempts {
		failed := -1
		for at, i := range order {
			if !l.insert(c, i) {
				failed = at
				break
			}
		}
		if failed < 0 {
			return true
		}
		first := order[failed]
		order = slices.Insert(slices.Delete(order, failed, failed+1), 0, first)
		*l = *newPlanner(l.p)
	}
	return false
}

// insert places a job where it costs least among the places that have room.
func (l *planner) insert(c *grid.Series, i int) bool {
	j := &l.p.jobs[i]
	first, last, length := j.Submitted, j.LatestStart(), j.Duration
	l.candidates = l.candidates[:0]
	consider := func(t time.Time) {
		l.candidates = append(l.candidates, candidate{t.UnixNano(), c.Integral(t, t.Add(length))})
	}
	consider(first)
	consider(last)
	for t := range c.Steps(first, last) {
		consider(t)
	}
	for t := range c.Steps(first.Add(length), last.Add(length)) {
		consider(t.Add(-length))
	}
	// Where it would be best if there was room, it may at least begin as another ends, or end as another begins.
	for k, _ := slices.BinarySearch(l.times, first.UnixNano()); k < len(l.times) && l.times[k] <= last.UnixNano(); k++ {
		consider(time.Unix(0, l.times[k]))
	}
	for k, _ := slices.BinarySearch(l.times, first.Add(length).UnixNano()); k < len(l.times) &&
		l.times[k] <= last.Add(length).UnixNano(); k++ {
		consider(time.Unix(0, l.times[k]).Add(-length))
	}
	slices.SortFunc(l.candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.at, b.at))
	})
	for _, s := range l.candidates {
		if l.fits(s.at, s.at+int64(length), j.Request.MilliCPU) {
			l.put(i, time.Unix(0, s.at).UTC())
			return true
		}
	}
	return false
}

// fits reports whether so many millicores are free from one instant to another.
func (l *planner) fits(from, to, millicores int64) bool {
	k, exact := slices.BinarySearch(l.times, from)
	if !exact {
		k--
	}
	for ; k < len(l.times) && l.times[k] < to; k++ {
		if l.level[k]+millicores > l.limit {
			return false
		}
	}
	return true
}

func (l *planner) put(i int, start time.Time) {
	l.start[i], l.placed[i] = start, true
	l.use(i, l.p.jobs[i].Request.MilliCPU)
}

func (l *planner) remove(i int) {
	l.placed[i] = false
	l.use(i, -l.p.jobs[i].Request.MilliCPU)
}

// use adds millicores for the time that job i runs.
func (l *planner) use(i int, millicores int64) {
	begin := l.split(l.start[i].UnixNano())
	end := l.split(l.start[i].Add(l.p.jobs[i].Duration).UnixNano())
	for k := begin; k < end; k++ {
		l.level[k] += millicores
	}
	l.join(end)
	l.join(begin)
}

// split makes an instant one at which the use may change, and returns its position.
func (l *planner) split(t int64) int {
	k, exact := slices.BinarySearch(l.times, t)
	if !exact {
		l.times = slices.Insert(l.times, k, t)
		l.level = slices.Insert(l.level, k, l.level[k-1])
	}
	return k
}

// join forgets an instant at which nothing changes.
func (l *planner) join(k int) {
	if k > 0 && l.level[k] == l.level[k-1] {
		l.times, l.level = slices.Delete(l.times, k, k+1), slices.Delete(l.level, k, k+1)
	}
}

// cost returns what the placed jobs cost.
func (l *planner) cost(c *grid.Series) float64 {
	total := 0.0
	for i := range l.p.jobs {
		if l.placed[i] {
			total += l.costOf(c, i)
		}
	}
	return total
}

func (l *planner) costOf(c *grid.Series, i int) float64 {
	j := &l.p.jobs[i]
	return width(j) * c.Integral(l.start[i], l.start[i].Add(j.Duration))
}

// improve takes out each job in turn and puts it where it costs least, until hardly anything gets cheaper. Its old
// place is free, so it always finds one, and none dearer than that.
func (l *planner) improve(c *grid.Series) {
	const enough = 1e-5 // of the cost
	for {
		before := l.cost(c)
		for i := range l.p.jobs {
			was, cost := l.start[i], l.costOf(c, i)
			l.remove(i)
			if !l.insert(c, i) || l.costOf(c, i) > cost { // the latter by rounding alone
				if l.placed[i] {
					l.remove(i)
				}
				l.put(i, was)
			}
		}
		if l.cost(c) >= before*(1-enough) {
			return
		}
	}
}

// shake takes out groups of jobs that run at about the same time, puts them back in another order, and keeps what is
// cheaper.
func (l *planner) shake(c, dear *grid.Series, rounds int, seed uint64) {
	r := rand.New(rand.NewPCG(seed, uint64(len(l.p.jobs))))
	for range rounds {
		group := l.neighbours(r)
		starts := make([]time.Time, len(group))
		before := 0.0
		for n, i := range group {
			starts[n] = l.start[i]
			before += l.costOf(c, i)
		}
		for _, i := range group {
			l.remove(i)
		}
		prices := c
		if r.IntN(2) == 0 {
			prices = dear
		}
		after, ok := 0.0, true
		for _, n := range r.Perm(len(group)) {
			if ok = l.insert(prices, group[n]); !ok {
				break
			}
			after += l.costOf(c, group[n])
		}
		if ok && after <= before {
			continue
		}
		for _, i := range group {
			if l.placed[i] {
				l.remove(i)
			}
		}
		for n, i := range group {
			l.put(i, starts[n])
		}
	}
}

// neighbours draws a job and some of those that could run when it does.
func (l *planner) neighbours(r *rand.Rand) []int {
	const most = 12
	centre := r.IntN(len(l.p.jobs))
	from, to := l.p.jobs[centre].Submitted, deadline(&l.p.jobs[centre])
	group := []int{centre}
	offset := r.IntN(len(l.p.jobs))
	for n := range l.p.jobs {
		i := (n + offset) % len(l.p.jobs)
		if end := l.start[i].Add(l.p.jobs[i].Duration); i != centre && l.start[i].Before(to) && end.After(from) {
			if group = append(group, i); len(group) == most {
				break
			}
		}
	}
	return group
}
