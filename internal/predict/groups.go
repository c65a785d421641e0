package predict

import (
	"iter"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// groupKey names a group of jobs. A part that is zero is of all.
type groupKey struct {
	owner string
	class requestClass
}

// requestClass is what jobs of one kind have in common when they are submitted.
type requestClass struct {
	request sched.Resources
	queue   string
	kind    string
}

// The levels of groups, from the widest to the narrowest.
const (
	levelAll = iota
	levelClass
	levelOwner
	levelOwnerClass
	levels
)

// groupsOf returns the groups of j by their levels; where j says nothing of its owner, not those that are about one.
func groupsOf(j *sched.Job) iter.Seq2[int, groupKey] {
	return func(yield func(int, groupKey) bool) {
		for level := range levels {
			if level >= levelOwner && j.Owner == "" || !yield(level, keyOf(j, level)) {
				return
			}
		}
	}
}

// of returns what a map has under a key, which is made where there is nothing yet.
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

// A run time keeps this share of its weight for each one that comes after it in its group: an owner's work changes,
// that of all owners together much less. An owner is remembered for some 30 jobs; with 10, the loss is 2 % higher on
// HPC2N and the same on NASA iPSC. shrinkage is how many run times of a group outweigh the wider ones.
var (
	keeps     = [levels]float64{levelAll: 0.999, levelClass: 0.998, levelOwner: 0.97, levelOwnerClass: 0.8}
	shrinkage = [levels]float64{levelAll: 2, levelClass: 4, levelOwner: 0.97, levelOwnerClass: 0.8}
)

// Of how the shares that were predicted came out: so many outcomes, evenly spread, are taken for granted, and of what
// follows each keeps so much of its weight for every later one.
const (
	calibrationBins  = 50
	calibrationPrior = 20
	calibrationKeep  = 0.999
)

// Groups predicts how long a job runs, with quantiles, from what its likes ran before it: those of the same owner and
// request class, the owner's, the class's and all, each one leaning on the wider ones where it has seen little. The
// distribution of a group is a mixture of its own histogram and that of the next wider group with the weights n/(n+k)
// and k/(n+k), of which n are the run times that it has seen, the older ones counting less.
//
// Predictions are compared with what came: where fewer than nine of ten run times lie below the 90 % quantile, the
// quantiles move until nine do. Jobs that still run count for nothing, so quantiles come out short while the long
// jobs of a new owner have not ended.
type Groups struct {
	groups   [levels]map[groupKey]*histogram
	prior    [binCount]float64
	edges    []float64
	outcomes [calibrationBins]float64     // how many run times came out at each share of what was predicted for them
	adjusted [calibrationBins + 1]float64 // share of them at the beginning of each, and at the end of the last

	round    int // of Refresh
	current  map[groupKey]*expectation
	reported map[string]*[binCount + 1]float64 // by job: what was first expected of it
}

// expectation is what is known of one group of jobs. It holds until another job of the group, of its owner or of its
// class ends.
type expectation struct {
	round, seen int
	below       *[binCount + 1]float64 // share of run times below each edge, as histograms say it
	adjusted    [binCount + 1]float64  // and as it came out of such
	runtimes    *sched.Runtimes
}

// NewGroups returns a learner that has not seen any job.
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

// Refresh implements [Learner]. It makes the distributions anew of groups in which no job has ended.
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
	for level, key := range groupsOf(j) {
		of(g.groups[level], key).add(bin, keeps[level])
	}
}

// learn counts which share of a prediction lay below what came.
func (g *Groups) learn(share float64) {
	for i := range g.outcomes {
		g.outcomes[i] *= calibrationKeep
		g.outcomes[i] += (1 - calibrationKeep) * calibrationPrior / calibrationBins // the prior does not age
	}
	g.outcomes[min(calibrationBins-1, int(share*calibrationBins))]++
	g.adjust()
}

// adjust works out which share of what comes lies below each share of what is predicted.
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

// came returns which share of what comes lies below a share of what is predicted.
func (g *Groups) came(share float64) float64 {
	at := share * calibrationBins
	i := min(calibrationBins-1, int(at))
	return g.adjusted[i] + (at-float64(i))*(g.adjusted[i+1]-g.adjusted[i])
}

// below returns which share of what is expected of j lies below each edge.
func (g *Groups) below(j *sched.Job) *[binCount + 1]float64 {
	p := g.prior
	for level, key := range groupsOf(j) {
		of(g.groups[level], key).mix(&p, shrinkage[level])
	}
	var below [binCount + 1]float64
	for i, share := range p {
		below[i+1] = min(1, below[i]+share)
	}
	below[binCount] = 1 // sums of shares differ from it in their last digits
	return &below
}

// expect returns what is known of the likes of j.
func (g *Groups) expect(j *sched.Job) *expectation {
	seen := 0
	for level, key := range groupsOf(j) {
		if level != levelAll {
			seen += of(g.groups[level], key).seen
		}
	}
	key := keyOf(j, levelOwnerClass)
	e := g.current[key]
	if e == nil || e.round != g.round || e.seen != seen {
		e = &expectation{round: g.round, seen: seen, below: g.below(j)}
		for i, share := range e.below {
			e.adjusted[i] = g.came(share)
		}
		g.current[key] = e
	}
	return e
}

// Expect implements [Learner]. Jobs of one group share their Runtimes until something is learnt of it.
func (g *Groups) Expect(j *sched.Job) {
	e := g.expect(j)
	if e.runtimes == nil {
		e.runtimes = g.runtimes(&e.adjusted)
	}
	if g.reported[j.ID] == nil {
		g.reported[j.ID] = e.below
	}
	j.Runtimes, j.Duration = e.runtimes, e.runtimes.Mean()
}

// runtimes returns shares of run times on the steps of [Survival].
func (g *Groups) runtimes(below *[binCount + 1]float64) *sched.Runtimes {
	survival := make([]float64, survivalBins+1)
	bin := 0
	for b := range survival {
		at := float64(b) * survivalStep.Seconds()
		for bin < binCount-1 && g.edges[bin+1] <= at {
			bin++
		}
		within := min(1, (at-g.edges[bin])/(g.edges[bin+1]-g.edges[bin]))
		survival[b] = max(0, 1-below[bin]-within*(below[bin+1]-below[bin]))
		if b > 0 {
			survival[b] = min(survival[b], survival[b-1])
		}
	}
	runtimes, err := sched.NewRuntimes(survivalStep, survival)
	if err != nil {
		panic(err) // begins with 1 and does not rise
	}
	return runtimes
}
