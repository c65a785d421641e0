package strategy

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// newTimetable returns a timetable with the machines of a snapshot and their running jobs, for the given number of
// slots.
func newTimetable(s *sched.Snapshot, nodes []sched.Node, slot time.Duration, slots int) *timetable {
	t := &timetable{
		s: s, origin: s.Now.Truncate(slot), slot: slot, slots: slots, longest: sched.MaxDuration,
		sums: make([]float64, slots+1), slotCost: make([]float64, slots), noRoom: make([]int32, slots+1),
		bootCost: make([]float64, slots+1), cores: map[*float64]*cores{},
	}
	type priced struct {
		site *sched.Site
		pue  float64
	}
	type alike struct {
		priced
		profile  *energy.Profile
		capacity sched.Resources
		speed    float64
		labels   string
		rest     sched.Resources
		free     int
		up       bool
	}
	labels := map[string]string{}
	for i := range s.Queue {
		maps.Copy(labels, s.Queue[i].Selector)
	}
	selected := slices.Sorted(maps.Keys(labels)) // keys of labels that distinguish machines
	prices, kinds := map[priced][]float64{}, map[alike]int{}
	for i := range nodes {
		n := &nodes[i]
		if n.Profile == nil { // cannot be priced
			continue
		}
		key := priced{n.Site, n.Facility()}
		if prices[key] == nil {
			prices[key] = t.prices(n.Site, key.pue)
		}
		r := row{
			node: *n, used: make([]sched.Resources, slots), load: make([]sched.Resources, slots),
			jobs: make([]int32, slots), changed: make([]bool, slots), price: prices[key], up: n.Jobs > 0 || n.Awake,
			alone: 1, wake: float64(n.Profile.WakeUp) / slot.Seconds(),
		}
		r.node.Free = n.Capacity
		r.idle = r.node.Running()
		r.draws = slices.Repeat([]energy.Watts{unknownWatts}, slots)
		if n.Asleep() && n.Profile.BootSeconds > 0 {
			r.free = int((t.offset() + n.Profile.BootTime() + slot - 1) / slot)
		}
		for _, price := range r.price {
			t.never = max(t.never, float64(slots*slots)*math.Abs(price)*float64(n.Profile.Power(1)))
		}
		t.fill(&r, n)
		labels := sliceutil.Map(selected, func(key string) string { return strconv.Quote(n.Labels[key]) })
		kind := alike{key, n.Profile, n.Capacity, n.Speed, strings.Join(labels, ","), sched.Resources{}, r.free, r.up}
		if n.Jobs == 0 { // capacity in use on an empty machine belongs to the machine
			kind.rest = n.Free
		}
		like, known := kinds[kind]
		if !known {
			like = len(t.rows)
			kinds[kind] = like
		}
		r.like = like
		t.rows = append(t.rows, r)
	}
	t.tried = make([]int32, len(t.rows))
	return t
}

// fill adds the jobs running on a machine, until their expected end or, if this is unknown, for the whole
// timetable.
func (t *timetable) fill(r *row, n *sched.Node) {
	rest, jobs := n.Capacity.Sub(n.Room()), n.Jobs
	from := t.offset()
	whole := time.Duration(t.slots)*t.slot - from
	for _, e := range n.Ends {
		t.occupy(r, e.Request, from, min(max(e.At.Sub(t.s.Now), 1), whole), 1, false)
		rest, jobs = rest.Sub(e.Request), jobs-1
	}
	rest = rest.Max(sched.Resources{})
	if jobs > 0 {
		t.occupy(r, rest, from, whole, 1, false)
		return
	}
	for k := range r.used { // overhead such as pods of DaemonSets does not keep the machine awake
		r.used[k] = r.used[k].Add(rest)
	}
}

// prices returns the cost per watt at a site for each slot, in grams according to the policy's weights. If a
// weighted signal of the site is unknown, the highest cost among the sites with known signals is used. If no site
// has known signals, only energy is counted. The PUE of individual jobs is ignored, because it would require
// separate prices.
func (t *timetable) prices(site *sched.Site, pue float64) []float64 {
	prices := make([]float64, t.slots)
	w := cmp.Or(t.s.Policy.Weights, sched.CarbonAlone)
	known := t.s.Known(&sched.Job{}, w.CountCarbon(), w.CountPrice())
	if slices.Contains(known, site) {
		known = []*sched.Site{site}
	}
	outlooks := sliceutil.Map(known, func(s *sched.Site) sched.Outlook { return sched.NewOutlook(s, w, t.s.Now) })
	horizon := t.s.Horizon()
	for k := range prices {
		begins := t.origin.Add(time.Duration(k) * t.slot)
		from, to := timeutil.Later(begins, t.s.Now), begins.Add(t.slot)
		switch {
		case len(known) == 0:
			prices[k] = pue
		case k > 0 && to.After(horizon): // the plan must not depend on signals beyond the horizon, see [codec.Encode]
			prices[k] = prices[k-1]
		default:
			dearest := math.Inf(-1)
			for i := range outlooks {
				dearest = max(dearest, outlooks[i].Over(from, to))
			}
			whole := float64(t.slot) / float64(to.Sub(from)) // extrapolates the first slot
			prices[k] = pue * dearest * whole / energy.JoulesPerKWh
		}
	}
	return prices
}
