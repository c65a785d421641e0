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

// Cap throttles another strategy according to the current carbon intensity (CAP, carbon-aware provisioning). Jobs
// only start while the number of used cores is below a quota. The quota is the maximum number of cores at the
// lowest expected intensity, and the minimum number at the highest.
//
// The quota follows the thresholds of k-search, which only requires the minimum and maximum expected intensity
// instead of a forecast: unit i of the capacity is used while the intensity is at most Φᵢ. Running jobs are never
// stopped, and a job without remaining delay starts regardless of the quota. Cap requires the whole queue and all
// nodes at a single site. With several sites or without a fresh intensity, it does not throttle.
type Cap struct {
	inner       *Greedy
	most, least int64 // in cores
}

// capAhead is the length of the period that determines the bounds of the intensity, as in the original paper.
const capAhead = 48 * time.Hour

// NewCap returns a strategy that throttles inner to between least and most cores. It applies inner to one job after
// another, so it returns an error for strategies that decide on the whole queue.
func NewCap(inner *Greedy, most, least int64) (*Cap, error) {
	switch {
	case least < 1 || most < least:
		return nil, fmt.Errorf("cap of %d to %d cores: want at least 1 core and an ascending range", least, most)
	case inner.match != nil || inner.startRule.Together:
		return nil,
			fmt.Errorf("cap of %s: strategies that decide on the whole queue cannot be throttled job by job", inner)
	}
	return &Cap{inner: inner, most: most, least: least}, nil
}

// ByName returns the strategy with the given name. In addition to the names accepted by [New], it accepts names
// that are only used in simulations: throttled strategies, such as "cap(20-200):carbon+now" for 20 to 200 cores,
// and the placements returned by [Clusters].
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

// Batches returns true, because c requires the whole queue.
func (c *Cap) Batches() bool { return true }

// CountsAll returns true, because c counts the cores in use, including those of full nodes.
func (c *Cap) CountsAll() bool { return true }

// Holds returns true, because c may delay starts.
func (c *Cap) Holds() bool { return true }

// ReadsLive reports whether the throttled strategy uses live power readings.
func (c *Cap) ReadsLive() bool { return c.inner.ReadsLive() }

// Interrupts reports whether the throttled strategy may suspend running jobs.
func (c *Cap) Interrupts() bool { return c.inner.Interrupts() }

// Clairvoyant reports whether the throttled strategy requires the true run times of jobs.
func (c *Cap) Clairvoyant() bool { return c.inner.Clairvoyant() }

// Holds reports whether the strategy with the given name may delay starts. Names are resolved by [ByName].
func Holds(name string) bool {
	strategy, err := ByName(name)
	holder, ok := strategy.(interface{ Holds() bool })
	return err == nil && ok && holder.Holds()
}

// Interrupts reports whether the strategy with the given name may suspend running jobs. Names are resolved by
// [ByName].
func Interrupts(name string) bool {
	strategy, err := ByName(name)
	interrupter, ok := strategy.(interface{ Interrupts() bool })
	return err == nil && ok && interrupter.Interrupts()
}

// Plan implements [Strategy]. Jobs exceeding the quota are held in the queue until the quota may change. Capacity
// that becomes free before then is used by the first jobs of the queue.
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

// quota returns the maximum number of millicores in use, and whether it is known.
func (c *Cap) quota(s *sched.Snapshot) (millicores int64, known bool) {
	if len(s.Sites) != 1 || !s.Sites[0].Carbon.Fresh(s.Now, s.Policy.MaxSignalAge) {
		return 0, false
	}
	series := s.Sites[0].Carbon.Series
	low, high := sched.Bounds(series, s.Now, s.Now.Add(capAhead))
	search := kSearch{least: low, greatest: high, units: c.most - c.least}
	return 1000 * (c.least + search.admitted(series.At(s.Now))), true
}

// kSearch computes the thresholds of the k-min search of Lorenz, Panagiotou and Steger: buying k units at prices
// that are revealed one after the other, if only the minimum and maximum price are known. The total price is at
// most [kSearch.ratio] times the optimum with all prices known in advance.
type kSearch struct {
	least, greatest float64
	units           int64
}

// ratio returns the competitive ratio α, which is the solution greater than 1 of 1−L/U = (1−1/α)(1+1/(αk))ᵏ. For
// large k it approaches 1/(1+W(−(1−L/U)/e)) with Lambert's W function.
func (k kSearch) ratio() float64 {
	if k.units < 1 || k.least <= 0 || k.least >= k.greatest {
		return 1
	}
	want, units := 1-k.least/k.greatest, float64(k.units)
	low, high := 0.0, 1.0 // bounds of 1/α: the right-hand side decreases from 1 to 0
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

// admitted returns the number of units that are bought at the given price, meaning the units with a threshold of at
// least the price. If the prices hardly differ, all units are admitted.
func (k kSearch) admitted(price float64) int64 {
	if k.units < 1 || k.greatest-k.least <= sched.Tolerance*math.Abs(k.greatest) || price <= k.least {
		return max(k.units, 0)
	}
	if k.least <= 0 {
		k.least = sched.Tolerance * k.greatest // thresholds are based on ratios
	}
	alpha := k.ratio()
	share := (1 - price/k.greatest) / (1 - 1/alpha) // from Φᵢ ≥ price: (1+1/(αk))^(i−1) ≤ share
	if share < 1 {
		return 0
	}
	most := math.Floor(math.Log(share)/math.Log1p(1/(alpha*float64(k.units)))+sched.Tolerance) + 1
	return int64(min(most, float64(k.units)))
}
