package oracle

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// assigned maps job IDs to their places. For a place without a node, "energy" chooses the node.
type assigned map[string]sched.Place

func assignedBy(plan sched.Plan) assigned {
	of := assigned{}
	for i := range plan {
		of[plan[i].Job] = sched.Place{Node: plan[i].Node, Start: plan[i].Window.Start}
	}
	return of
}

// recorded returns the release times of the jobs in a result.
func recorded(r *sim.Result) assigned {
	of := assigned{}
	for i := range r.Outcomes {
		j := &r.Scenario.Jobs[i]
		of[j.ID] = sched.Place{Start: timeutil.Earlier(r.Outcomes[i].Released, j.LatestStart())}
	}
	return of
}

// script starts each job at its assigned place. If there is no capacity on that node, it places the job like
// "energy".
type script struct {
	*strategy.Greedy
	of assigned
}

// Symmetry implements an interface of package sim. Machines are not interchangeable.
func (*script) Symmetry(*sched.Policy) strategy.Symmetry { return strategy.Asymmetric }

// Plan implements [strategy.Strategy].
func (p *script) Plan(s *sched.Snapshot) sched.Plan {
	j := &s.Queue[0]
	assigned := p.of[j.ID]
	if !j.Released && assigned.Start.After(s.Now) {
		return sched.Plan{{Job: j.ID, Window: sched.Window{Start: assigned.Start, End: assigned.Start.Add(j.Duration)}}}
	}
	there := *s
	for i, n := range s.Nodes {
		if n.Name == assigned.Node {
			there.Nodes = s.Nodes[i : i+1]
		}
	}
	return p.Greedy.Plan(&there)
}

// Best searches for schedules with minimal emissions until stop returns 1 (the fraction of time used). All jobs are
// known in advance, and none is delayed longer than allowed. The result best follows the scenario, including its
// sleep rules. It is the best of the given results, of a plan made in advance (see [strategy.PlanAhead]), and of a
// search by simulated annealing: one start at a time is redrawn or shifted, the scenario is simulated, and
// improvements are kept. The result foreseen is the plan, or best if that is better, with machines that sleep
// whenever they are empty and are always awake in time. Both schedules are feasible, but not proven to be optimal.
func Best(ctx context.Context, s *sim.Scenario, from []*sim.Result, seed uint64, stop func() float64,
) (best, foreseen *sim.Result, err error) {
	placing, err := strategy.New("energy")
	if err != nil {
		return nil, nil, err
	}
	s = withinPolicy(s)
	c := search{ctx: ctx, s: s, placing: placing, end: timeutil.Later(s.Start, s.LastEnd())}
	const ahead = 0.3 // fraction of the time for the plan
	snapshot := &sched.Snapshot{Now: s.Start, Queue: s.Jobs, Sites: s.Sites, Nodes: sliceutil.Refs(s.Nodes)}
	asked := stop
	stop = func() float64 {
		if ctx.Err() != nil {
			return 1
		}
		return asked()
	}
	plan := strategy.PlanAhead(snapshot, seed, func() float64 { return stop() / ahead })
	scripts := append([]assigned{assignedBy(plan)}, sliceutil.Map(from, recorded)...)
	var at assigned
	for _, script := range scripts {
		played, err := c.play(s, script)
		if err != nil {
			return nil, nil, err
		}
		if best == nil || cost(played) < cost(best) {
			best, at = played, script
		}
	}
	if foreseen, err = c.play(awakeInTime(s), scripts[0]); err != nil {
		return nil, nil, err
	}
	if best, err = c.anneal(best, at, seed, func() float64 { return (stop() - ahead) / (1 - ahead) }); err != nil {
		return nil, nil, err
	}
	rested, err := c.play(awakeInTime(s), recorded(best))
	if err == nil && cost(rested) < cost(foreseen) {
		foreseen = rested
	}
	return best, foreseen, err
}

// search simulates schedules of a scenario until the last possible end of a job.
type search struct {
	ctx     context.Context
	s       *sim.Scenario
	placing *strategy.Greedy
	end     time.Time
}

func (c *search) play(s *sim.Scenario, of assigned) (*sim.Result, error) {
	r, err := sim.Run(c.ctx, s, "best found", &script{c.placing, of})
	if err == nil {
		err = r.AccountUntil(c.end)
	}
	return r, err
}

// anneal improves the best schedule by changing one start at a time.
func (c *search) anneal(best *sim.Result, at assigned, seed uint64, stop func() float64) (*sim.Result, error) {
	fixed := func(j *sched.Job) bool { return !j.LatestStart().After(j.Submitted) }
	movable := slices.DeleteFunc(sliceutil.Refs(c.s.Jobs), fixed)
	if len(movable) == 0 {
		return best, nil
	}
	const warm = 1e-4 // accepted increase of a step at the beginning, relative to the emissions
	r := rand.New(rand.NewPCG(seed, uint64(len(movable))))
	present := cost(best)
	for spent := stop(); spent < 1; spent = stop() {
		j := movable[r.IntN(len(movable))]
		previous := at[j.ID]
		at[j.ID] = sched.Place{Start: drawn(r, j, previous.Start)}
		played, err := c.play(c.s, at)
		if err != nil {
			return nil, err
		}
		worse := (cost(played) - present) / max(present, math.SmallestNonzeroFloat64)
		if worse > 0 && r.Float64() >= math.Exp(-worse/(warm*(1-spent)+1e-12)) {
			at[j.ID] = previous
			continue
		}
		if present = cost(played); present < cost(best) {
			best = played
		}
	}
	return best, nil
}

// cost returns the emissions of a schedule, with a large penalty for jobs that are delayed longer than allowed.
func cost(r *sim.Result) float64 {
	late := time.Duration(0)
	for i := range r.Outcomes {
		late += max(0, r.Outcomes[i].Overdue(&r.Scenario.Jobs[i]))
	}
	return float64(r.Carbon) * (1 + late.Hours())
}

// drawn returns another start of a job: either random, or close to the previous one.
func drawn(r *rand.Rand, j *sched.Job, previous time.Time) time.Time {
	const grain, near = 5 * time.Minute, 12
	if r.IntN(2) == 0 {
		return j.Submitted.Add(time.Duration(r.Int64N(int64(j.LatestStart().Sub(j.Submitted)/grain)+1)) * grain)
	}
	shift := time.Duration(1+r.IntN(near)) * grain * time.Duration(1-2*r.IntN(2))
	return timeutil.Later(j.Submitted, timeutil.Earlier(previous.Add(shift), j.LatestStart()))
}

// awakeInTime returns a copy of the scenario with machines that boot immediately.
func awakeInTime(s *sim.Scenario) *sim.Scenario {
	same := *s
	same.Nodes = slices.Clone(s.Nodes)
	for i := range same.Nodes {
		same.Nodes[i].Profile = new(*same.Nodes[i].Profile)
		same.Nodes[i].Profile.BootSeconds = 0
	}
	return &same
}

// withinPolicy returns the scenario with allowed delays limited by its policy.
func withinPolicy(s *sim.Scenario) *sim.Scenario {
	if s.Policy.MaxDelay == 0 {
		return s
	}
	within := *s
	within.Jobs = slices.Clone(s.Jobs)
	for i := range within.Jobs {
		within.Jobs[i].AllowedDelay = s.Policy.AllowedDelay(&within.Jobs[i])
	}
	return &within
}

// pool contains the machines of a site in the relaxed problem of the bound.
type pool struct {
	site   *sched.Site
	steps  []step    // power per core above sleep power
	prices []float64 // of a core-second, by step of the intensity
	load   []float64 // excess of requested over offered core-seconds
	mean   float64   // mean of the initial prices
}

type step struct{ cores, watts float64 }

// Bound returns a lower bound for the emissions of all schedules that do not delay any job longer than allowed and
// run each job without interruption, and the emissions of the machines if all of them sleep. It relaxes the
// problem: cores can be divided arbitrarily between machines, which only draw the power per core at their most
// efficient load. It is a Lagrangian bound over the cores in each step of the intensity; the prices are found in
// the given number of subgradient rounds.
func Bound(s *sim.Scenario, rounds int) (least, asleep energy.Grams, err error) {
	s = withinPolicy(s)
	end := timeutil.Later(s.Start, s.LastEnd())
	if slices.ContainsFunc(s.Jobs, func(j sched.Job) bool { return j.PUE != 0 }) {
		return 0, 0, errors.New("a job has its own PUE")
	}
	var pools []*pool
	for _, site := range s.Sites {
		if site.Carbon.Series == nil || !site.Carbon.Series.Covers(s.Start, end) {
			return 0, 0, errors.New("the intensity does not cover the latest end of all jobs")
		}
		if s.Start.Sub(site.Carbon.Series.Start())%site.Carbon.Series.Step() != 0 {
			return 0, 0, errors.New("the scenario starts between two values of the intensity")
		}
		pools = append(pools, &pool{site: site})
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Speed != 0 && n.Speed != 1 {
			return 0, 0, errors.New("nodes have different speeds")
		}
		p := pools[slices.Index(s.Sites, n.Site)]
		cores := float64(n.Capacity.MilliCPU) / 1000
		bare, watts := n.Profile.Bare(), math.Inf(1)
		perCore := func(u float64) float64 { return float64(bare.Power(u)-n.Profile.Sleep) / (u * cores) }
		const grain = 1000
		for u := 1; u <= grain; u++ {
			watts = min(watts, perCore(float64(u)/grain))
		}
		for _, point := range bare.Curve { // power is linear between two points
			if point.Utilisation > 0 {
				watts = min(watts, perCore(point.Utilisation))
			}
		}
		p.steps = append(p.steps, step{cores, max(watts, 0) * n.Facility()})
		sleeps := n.Profile.Sleep * energy.Watts(n.Facility())
		asleep += energy.Grams(float64(sleeps) * n.Site.Carbon.Series.Integral(s.Start, end) / energy.JoulesPerKWh)
	}
	b := &bound{s: s, pools: pools, end: end}
	return asleep + energy.Grams(b.climb(rounds)/energy.JoulesPerKWh), asleep, b.err
}

type bound struct {
	s     *sim.Scenario
	pools []*pool
	end   time.Time
	err   error
}

// climb returns the best value of the dual that it finds.
func (b *bound) climb(rounds int) (best float64) {
	for _, p := range b.pools {
		series := p.site.Carbon.Series
		n := int(b.end.Sub(b.s.Start)/series.Step()) + 2
		p.prices, p.load = make([]float64, n), make([]float64, n)
		mean := 0.0
		for _, st := range p.steps {
			mean += st.watts / float64(len(p.steps))
		}
		for k := range p.prices {
			p.prices[k] = mean * series.At(timeutil.Earlier(b.at(p, k), series.End().Add(-1)))
			p.mean += p.prices[k] / float64(n)
		}
	}
	scale := 0.3
	for round := range rounds {
		value := b.value()
		if value > best {
			best = value
		} else if round%10 == 9 {
			scale *= 0.8
		}
		for _, p := range b.pools {
			room := 0.0
			for _, st := range p.steps {
				room += st.cores
			}
			for k := range p.prices {
				p.prices[k] = max(0, p.prices[k]+scale*p.mean*p.load[k]/(room*p.site.Carbon.Series.Step().Seconds()))
			}
		}
	}
	return best
}

func (b *bound) at(p *pool, k int) time.Time {
	return b.s.Start.Add(time.Duration(k) * p.site.Carbon.Series.Step())
}

// value returns the dual at the current prices, and sets load to the excess demand of each step.
func (b *bound) value() (total float64) {
	prices := make([]*grid.Series, len(b.pools))
	for i, p := range b.pools {
		c, length := p.site.Carbon.Series, p.site.Carbon.Series.Step().Seconds()
		for k, price := range p.prices {
			p.load[k] = 0
			intensity := c.At(timeutil.Earlier(b.at(p, k), c.End().Add(-1)))
			for _, st := range p.steps {
				if gain := price - intensity*st.watts; gain > 0 {
					total -= gain * st.cores * length
					p.load[k] -= st.cores * length
				}
			}
		}
		var err error
		if prices[i], err = grid.NewSeries(b.s.Start, c.Step(), p.prices); err != nil {
			b.err = err
			return 0
		}
	}
	for i := range b.s.Jobs {
		j := &b.s.Jobs[i]
		least, where, when := math.Inf(1), 0, time.Time{}
		for k, p := range b.pools {
			if start, cost := NonPreemptive(prices[k], j); j.MayRunAt(p.site) && cost < least {
				least, where, when = cost, k, start
			}
		}
		total += least * width(j)
		p := b.pools[where]
		length := p.site.Carbon.Series.Step()
		for k := int(when.Sub(b.s.Start) / length); k < len(p.load) && b.at(p, k).Before(when.Add(j.Duration)); k++ {
			from, to := timeutil.Later(when, b.at(p, k)), timeutil.Earlier(when.Add(j.Duration), b.at(p, k+1))
			p.load[k] += width(j) * to.Sub(from).Seconds()
		}
	}
	return total
}
