package strategy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Cap throttles another strategy by the present intensity (CAP, carbon-aware provisioning): jobs start only while
// fewer cores run than a quota, which is all of them where the intensity is as low as it will be, and a few where it
// is as high.
//
// The quota follows the thresholds of k-search, which needs no forecast but the least and the greatest intensity that
// is to be expected: unit i of capacity is used while the intensity is at most Φᵢ. What runs is never stopped; a job
// whose allowed delay is used up starts whatever the quota says. It wants all nodes and the whole queue at once, at
// one site; where there are several sites, or no fresh intensity, it throttles nothing.
type Cap struct {
	inner       *Greedy
	most, least int64 // cores
}

// capAhead is how far the bounds of the intensity are looked for, as its authors do.
const capAhead = 48 * time.Hour

// NewCap throttles a strategy to between least and most cores. It asks the strategy about one job after the other, so
// it takes none that decides on the whole queue at once.
func NewCap(inner *Greedy, most, least int64) (*Cap, error) {
	switch {
	case least < 1 || most < least:
		return nil, fmt.Errorf("cap of %d to %d cores: want 1 or more, and not more at least than at most", least, most)
	case inner.match != nil || inner.startRule.Together:
		return nil,
			fmt.Errorf("cap of %s: it decides on the whole queue at once, and a quota lets in one job after the other",
				inner)
	}
	return &Cap{inner: inner, most: most, least: least}, nil
}

// ByName returns what [New] does, and what simulations alone have: for names such as "cap(20-200):carbon+now" that
// strategy throttled to 20 to 200 cores, and the wheres of [Clusters].
func ByName(name string) (Strategy, error) {
	limits, ok := strings.CutPrefix(name, "cap(")
	if !ok {
		left, _, _ := parts(name)
		if clusters[left].cost != nil {
			return newGreedy(name, clusters)
		}
		if wheres, _ := Names(); !slices.Contains(wheres, left) {
			return nil, unknown(name, false, Clusters()...)
		}
		return New(name)
	}
	limits, rest, closed := strings.Cut(limits, "):")
	left, right, two := strings.Cut(limits, "-")
	least, errLeast := strconv.ParseInt(left, 10, 64)
	most, errMost := strconv.ParseInt(right, 10, 64)
	if !closed || !two || errMost != nil || errLeast != nil {
		return nil, fmt.Errorf("unknown strategy %q: want cap(LEAST-MOST):strategy with numbers of cores, as in "+
			"cap(20-200):carbon+now", name)
	}
	inner, err := New(rest)
	if err != nil {
		return nil, err
	}
	return NewCap(inner, most, least)
}

// String returns the name of c.
func (c *Cap) String() string { return fmt.Sprintf("cap(%d-%d):%s", c.least, c.most, c.inner) }

// Batches reports that c wants the whole queue at once.
func (c *Cap) Batches() bool { return true }

// CountsAll reports that c wants the nodes without room as well: it counts what runs.
func (c *Cap) CountsAll() bool { return true }

// Holds reports that c puts off starts.
func (c *Cap) Holds() bool { return true }

// ReadsLive reports whether the strategy that is throttled does.
func (c *Cap) ReadsLive() bool { return c.inner.ReadsLive() }

// Interrupts reports whether the strategy that is throttled suspends jobs that run.
func (c *Cap) Interrupts() bool { return c.inner.Interrupts() }

// Clairvoyant reports whether the strategy that is throttled is to be told how long jobs really run.
func (c *Cap) Clairvoyant() bool { return c.inner.Clairvoyant() }

// Holds reports whether the strategy of a name that [ByName] knows ever puts off a start.
func Holds(name string) bool {
	strategy, err := ByName(name)
	holder, ok := strategy.(interface{ Holds() bool })
	return err == nil && ok && holder.Holds()
}

// Interrupts reports whether the strategy of a name that [ByName] knows may suspend jobs that run.
func Interrupts(name string) bool {
	strategy, err := ByName(name)
	interrupter, ok := strategy.(interface{ Interrupts() bool })
	return err == nil && ok && interrupter.Interrupts()
}

// Plan implements [Strategy]. Jobs that the quota keeps waiting are held until it may change, and stay in line until
// then: what becomes free before goes to those who stand first.
func (c *Cap) Plan(s *sched.Snapshot) sched.Plan {
	quota, known := c.quota(s)
	running := int64(0)
	for _, n := range s.Nodes {
		running += int64(n.Multiplicity()) * (n.Capacity.MilliCPU - n.Free.MilliCPU)
	}
	return c.inner.inTurn(s, func(j *sched.Job) (sched.Decision, bool) {
		if !known || j.Running || !s.Throttles(j) || running+j.Request.MilliCPU <= quota {
			return sched.Decision{}, false
		}
		return s.Throttled(j, quota), true
	}, func(request sched.Resources) { running += request.MilliCPU })
}

// quota returns how many millicores may run now.
func (c *Cap) quota(s *sched.Snapshot) (millicores int64, known bool) {
	if len(s.Sites) != 1 || !s.Sites[0].Carbon.Fresh(s.Now, s.Policy.MaxSignalAge) {
		return 0, false
	}
	series := s.Sites[0].Carbon.Series
	low, high := sched.Bounds(series, s.Now, s.Now.Add(capAhead))
	search := kSearch{least: low, greatest: high, units: c.most - c.least}
	return 1000 * (c.least + search.admitted(series.At(s.Now))), true
}

// kSearch are the thresholds of the k-min search of Lorenz, Panagiotou and Steger: how to buy so many units at prices
// that come one after the other, of which only the least and the greatest are known. It pays at most [kSearch.ratio]
// times what it would have with all prices known.
type kSearch struct {
	least, greatest float64
	units           int64
}

// ratio returns α, the competitive ratio: the solution above 1 of 1−L/U = (1−1/α)(1+1/(αk))ᵏ. For many units it is
// that of Lambert's W, 1/(1+W(−(1−L/U)/e)).
func (k kSearch) ratio() float64 {
	if k.units < 1 || k.least <= 0 || k.least >= k.greatest {
		return 1
	}
	want, units := 1-k.least/k.greatest, float64(k.units)
	low, high := 0.0, 1.0 // of 1/α: the right side falls from 1 to 0
	for range 200 {
		x := (low + high) / 2
		if (1-x)*math.Exp(units*math.Log1p(x/units)) > want {
			low = x
		} else {
			high = x
		}
	}
	return 2 / (low + high)
}

// admitted returns how many units are bought at a price: those whose threshold is not below it. Prices that hardly
// differ admit all.
func (k kSearch) admitted(price float64) int64 {
	if k.units < 1 || k.greatest-k.least <= sched.Tolerance*math.Abs(k.greatest) || price <= k.least {
		return max(k.units, 0)
	}
	if k.least <= 0 {
		k.least = sched.Tolerance * k.greatest // the thresholds are of ratios
	}
	alpha := k.ratio()
	share := (1 - price/k.greatest) / (1 - 1/alpha) // Φᵢ ≥ price: (1+1/(αk))^(i−1) ≤ share
	if share < 1 {
		return 0
	}
	most := math.Floor(math.Log(share)/math.Log1p(1/(alpha*float64(k.units)))+sched.Tolerance) + 1
	return int64(min(most, float64(k.units)))
}
