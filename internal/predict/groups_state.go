package predict

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// State is the state of [Groups]. A learner that is restored from it makes the same predictions.
type State struct {
	Seen     int       // number of run times
	Outcomes []float64 // weights of the quantiles at which run times were, in bins of equal width
	Groups   []Group
}

// Group is the state of a group of similar jobs.
type Group struct {
	Level      int // 0: all jobs, 1: with the request, 2: of the owner, 3: of the owner and with the request
	Owner      string
	Request    sched.Resources
	Seen, Last int // number of run times, and their number in all groups at the last one
	// Unit is the weight of the last run time, and Weights are those of the run times in each of Bins, which are
	// sorted.
	Unit    float64
	Bins    []int32
	Weights []float64
}

// State returns the state. It contains at most the given number of groups per level, with the last finished jobs. Jobs
// must not have wait queues or classes, which it does not contain.
func (g *Groups) State(most int) State {
	s := State{Seen: g.seen, Outcomes: slices.Clone(g.outcomes[:])}
	for level, groups := range g.groups {
		keys := slices.SortedFunc(maps.Keys(groups), func(a, b groupKey) int {
			return cmp.Or(cmp.Compare(groups[b].last, groups[a].last), cmp.Compare(a.owner, b.owner))
		})
		for _, key := range keys[:min(len(keys), most)] {
			if h := groups[key]; h.seen > 0 {
				s.Groups = append(s.Groups, Group{
					level, key.owner, key.class.request, h.seen, h.last, h.unit,
					slices.Clone(h.bins), slices.Clone(h.weights),
				})
			}
		}
	}
	return s
}

// Restore returns a learner with the given state. It returns an error if the state is invalid.
func Restore(s *State) (*Groups, error) {
	g := NewGroups()
	if s.Seen == 0 {
		return g, nil
	}
	if g.seen = s.Seen; len(s.Outcomes) != calibrationBins || !areWeights(s.Outcomes) {
		return nil, fmt.Errorf("outcomes: want %d positive numbers", calibrationBins)
	}
	copy(g.outcomes[:], s.Outcomes)
	g.adjust()
	for i := range s.Groups {
		if err := g.restore(&s.Groups[i]); err != nil {
			return nil, fmt.Errorf("group %d: %w", i, err)
		}
	}
	return g, nil
}

func (g *Groups) restore(s *Group) error {
	switch {
	case s.Level < 0 || s.Level >= levels:
		return fmt.Errorf("unknown level %d", s.Level)
	case s.Seen <= 0 || s.Last > g.seen || !areWeights([]float64{s.Unit}):
		return errors.New("invalid number or weight of run times")
	case len(s.Bins) == 0 || len(s.Bins) != len(s.Weights) || !areWeights(s.Weights):
		return errors.New("want a positive weight for each bin")
	}
	h := &histogram{
		bins: slices.Clone(s.Bins), weights: slices.Clone(s.Weights), unit: s.Unit, seen: s.Seen, last: s.Last,
	}
	for i, bin := range h.bins {
		if bin < 0 || bin >= binCount || i > 0 && bin <= h.bins[i-1] {
			return fmt.Errorf("bin %d: want a sorted list of bins", bin)
		}
	}
	g.groups[s.Level][groupKey{s.Owner, requestClass{request: s.Request}}] = h
	return nil
}

// areWeights reports whether all numbers are positive and so small that their sums are finite.
func areWeights(all []float64) bool {
	return !slices.ContainsFunc(all, func(v float64) bool { return !(v > 0 && v <= math.Sqrt(math.MaxFloat64)) })
}

// Foresee returns the distribution of the run time of j in steps of a twentieth of the median, and the number of
// observed run times of its owner. It returns nil if they are fewer than [Enough]. The distribution ends with the run
// time that one in two hundred jobs exceeds, or after 300 steps, which are longer if one in twenty jobs exceeds them.
func (g *Groups) Foresee(j *sched.Job) (r *sched.Runtimes, seen int) {
	const rare, fine, most = 0.005, 20, 300
	if h := g.groups[levelOwner][keyOf(j, levelOwner)]; h != nil {
		seen = h.seen
	}
	if seen < Enough {
		return nil, seen
	}
	e := g.expect(j)
	if e.foreseen == nil {
		until := func(p float64) float64 { // in seconds
			return g.edges[max(1, slices.IndexFunc(e.adjusted[:], func(below float64) bool { return below >= p }))]
		}
		step := math.Ceil(max(until(0.5)/fine, until(0.95)/most))
		e.foreseen = g.runtimes(&e.adjusted, fromSeconds(step), min(most, int(math.Ceil(until(1-rare)/step))))
	}
	return e.foreseen, seen
}

// Enough is the number of run times of an owner that are required for a prediction.
const Enough = 5
