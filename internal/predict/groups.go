package predict

import (
	"iter"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// groupKey identifies a group of jobs. A zero field matches all jobs.
type groupKey struct {
	owner string
	class requestClass
}

// requestClass contains the properties that similar jobs share at submission.
type requestClass struct {
	request sched.Resources
	queue   string
	kind    string
}

// Levels of groups, from the widest to the narrowest.
const (
	levelAll = iota
	levelClass
	levelOwner
	levelOwnerClass
	levels
)

// groupsOf returns the groups of j by level. If the owner of j is unknown, it omits the levels with an owner.
func groupsOf(j *sched.Job) iter.Seq2[int, groupKey] {
	return func(yield func(int, groupKey) bool) {
		for level := range levels {
			if level >= levelOwner && j.Owner == "" || !yield(level, keyOf(j, level)) {
				return
			}
		}
	}
}

// of returns the value of a key in a map, and creates it if it does not exist.
func of[K comparable, V any](all map[K]*V, key K) *V {
	v := all[key]
	if v == nil {
		v = new(V)
		all[key] = v
	}
	return v
}

// keyOf returns the group of j at a level.
func keyOf(j *sched.Job, level int) groupKey {
	var key groupKey
	if level == levelClass || level == levelOwnerClass {
		key.class = requestClass{request: j.Request, queue: j.Queue, kind: j.Class}
	}
	if level >= levelOwner {
		key.owner = j.Owner
	}
	return key
}

// keeps is the factor that reduces the weight of a run time for each later one in its group. The work of a single
// owner changes more over time than the work of all owners. With these values about 30 jobs of an owner are
// remembered; with 10 jobs, the loss is 2 % higher on HPC2N and the same on NASA iPSC. shrinkage is the number of
// run times of a group that have the same weight as the next wider group.
var (
	keeps     = [levels]float64{levelAll: 0.999, levelClass: 0.998, levelOwner: 0.97, levelOwnerClass: 0.8}
	shrinkage = [levels]float64{levelAll: 2, levelClass: 4, levelOwner: 0.97, levelOwnerClass: 0.8}
)

// Parameters for calibrating the predicted quantiles. The calibration starts with a number of evenly distributed
// outcomes, and the weight of each outcome is reduced by a factor for every later one.
const (
	calibrationBins  = 50
	calibrationPrior = 20
	calibrationKeep  = 0.999
)

// Groups predicts a distribution of the run time of a job from the run times of similar jobs: jobs of the same
// owner and request class, of the owner, of the class, and all jobs. A group with few observations relies more on
// the wider groups. The distribution of a group is a mixture of its own histogram and the distribution of the next
// wider group, with the weights n/(n+k) and k/(n+k), where n is the number of observed run times and older ones
// count less.
//
// Predictions are calibrated with the actual run times. For example, if fewer than nine out of ten run times are
// below the 90 % quantile, the quantiles are moved until nine are. Unfinished jobs are ignored, so quantiles are
// too short while the long jobs of a new owner are unfinished.
type Groups struct {
	groups   [levels]map[groupKey]*histogram
	prior    [binCount]float64
	edges    []float64
	outcomes [calibrationBins]float64     // number of run times per predicted quantile
	adjusted [calibrationBins + 1]float64 // calibrated fraction at the edges of the bins

	seen     int // number of run times
	round    int // number of Refresh calls
	current  map[groupKey]*expectation
	reported map[string]*[binCount + 1]float64 // by job: the first prediction
}

// expectation is the prediction for a group of jobs. It is valid until another job of the group, of its owner or of
// its class finishes.
type expectation struct {
	round, seen int
	below       *[binCount + 1]float64 // predicted fraction of run times below each edge
	adjusted    [binCount + 1]float64  // calibrated fraction
	runtimes    *sched.Runtimes
	foreseen    *sched.Runtimes // without rare run times
}

// NewGroups returns a learner without observations.
func NewGroups() *Groups {
	g := &Groups{edges: binEdges(), current: map[groupKey]*expectation{}, reported: map[string]*[binCount + 1]float64{}}
	for level := range g.groups {
		g.groups[level] = map[groupKey]*histogram{}
	}
	for i := range g.prior {
		g.prior[i] = logUniform(fromSeconds(g.edges[i])) - logUniform(fromSeconds(g.edges[i+1]))
	}
	for i := range g.outcomes {
		g.outcomes[i] = calibrationPrior / float64(calibrationBins)
	}
	g.adjust()
	return g
}

func fromSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Every implements [Learner].
func (g *Groups) Every() time.Duration { return time.Hour }

// Refresh implements [Learner]. It invalidates the distributions of all groups, including those without newly
// finished jobs.
func (g *Groups) Refresh(time.Time, iter.Seq2[*sched.Job, time.Duration]) { g.round++ }

// Ended implements [Learner].
func (g *Groups) Ended(j *sched.Job, ran time.Duration) {
	bin := binOf(ran)
	below := g.reported[j.ID]
	if below == nil {
		below = g.below(j)
	}
	delete(g.reported, j.ID)
	g.learn((below[bin] + below[bin+1]) / 2)
	g.seen++
	for level, key := range groupsOf(j) {
		h := of(g.groups[level], key)
		h.add(bin, keeps[level])
		h.last = g.seen
	}
}

// learn records the predicted quantile of an actual run time.
func (g *Groups) learn(share float64) {
	for i := range g.outcomes {
		g.outcomes[i] *= calibrationKeep
		g.outcomes[i] += (1 - calibrationKeep) * calibrationPrior / calibrationBins // the prior does not age
	}
	g.outcomes[min(calibrationBins-1, int(share*calibrationBins))]++
	g.adjust()
}

// adjust updates the calibration of the predicted quantiles.
func (g *Groups) adjust() {
	total := 0.0
	for _, n := range g.outcomes {
		total += n
	}
	below := 0.0
	for i, n := range g.outcomes {
		below += n
		g.adjusted[i+1] = below / total
	}
}

// came returns the calibrated fraction for a predicted fraction.
func (g *Groups) came(share float64) float64 {
	at := share * calibrationBins
	i := min(calibrationBins-1, int(at))
	return g.adjusted[i] + (at-float64(i))*(g.adjusted[i+1]-g.adjusted[i])
}

// below returns the predicted fraction of run times of j below each edge.
func (g *Groups) below(j *sched.Job) *[binCount + 1]float64 {
	p := g.prior
	for level, key := range groupsOf(j) {
		if h := g.groups[level][key]; h != nil {
			h.mix(&p, shrinkage[level])
		}
	}
	var below [binCount + 1]float64
	for i, share := range p {
		below[i+1] = min(1, below[i]+share)
	}
	below[binCount] = 1 // compensates rounding errors of the sum
	return &below
}

// maxCurrent limits the number of predictions that are kept.
const maxCurrent = 4096

// expect returns the prediction for the group of j.
func (g *Groups) expect(j *sched.Job) *expectation {
	seen := 0
	for level, key := range groupsOf(j) {
		if h := g.groups[level][key]; h != nil && level != levelAll {
			seen += h.seen
		}
	}
	key := keyOf(j, levelOwnerClass)
	e := g.current[key]
	if e == nil || e.round != g.round || e.seen != seen {
		e = &expectation{round: g.round, seen: seen, below: g.below(j)}
		for i, share := range e.below {
			e.adjusted[i] = g.came(share)
		}
		if len(g.current) >= maxCurrent {
			clear(g.current) // requests may be arbitrary
		}
		g.current[key] = e
	}
	return e
}

// Expect implements [Learner]. Jobs of one group share their Runtimes until the group is updated.
func (g *Groups) Expect(j *sched.Job) {
	e := g.expect(j)
	if e.runtimes == nil {
		e.runtimes = g.runtimes(&e.adjusted, survivalStep, survivalBins)
	}
	if g.reported[j.ID] == nil {
		g.reported[j.ID] = e.below
	}
	j.Runtimes, j.Duration = e.runtimes, e.runtimes.Mean()
}

// runtimes converts a distribution to equal steps. Jobs that run longer are assumed to finish in the last step.
func (g *Groups) runtimes(below *[binCount + 1]float64, step time.Duration, steps int) *sched.Runtimes {
	survival := make([]float64, steps+1)
	bin := 0
	for b := range survival {
		at := float64(b) * step.Seconds()
		for bin < binCount-1 && g.edges[bin+1] <= at {
			bin++
		}
		within := min(1, (at-g.edges[bin])/(g.edges[bin+1]-g.edges[bin]))
		survival[b] = max(0, 1-below[bin]-within*(below[bin+1]-below[bin]))
		if b > 0 {
			survival[b] = min(survival[b], survival[b-1])
		}
	}
	runtimes, err := sched.NewRuntimes(step, survival)
	if err != nil {
		panic(err) // the values start with 1 and do not increase
	}
	return runtimes
}
