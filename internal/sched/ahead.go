package sched

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Demand is a kind of jobs that is expected to arrive, and that the nodes have little room for.
type Demand struct {
	Request  Resources         `json:"request"`
	Selector map[string]string `json:"selector,omitempty"`
	Sites    []string          `json:"sites,omitempty"`
	PerHour  float64           `json:"perHour"` // rate of arrivals
	// Waiting is the number of jobs that have arrived and wait for room, at most aheadJobs.
	Waiting int `json:"waiting,omitempty"`
	// Openings are the first times at which a node has room for one more of these jobs, in order of time, at most
	// aheadJobs of each node and twice as many of all nodes. They are not empty.
	Openings []Opening `json:"openings,omitempty"`

	kind int  // position in [Arrivals]
	room bool // there is room now
}

// Opening is a time at which a node has room for a job.
type Opening struct {
	At   time.Time `json:"at"`
	Node string    `json:"node"`
}

const (
	// aheadJobs is the number of next jobs of each kind that a placement leaves room for. With one, two jobs often
	// compete for the same room; more than two make little difference (docs/decisions/0058).
	aheadJobs = 2
	// waitingWatts is the price of waiting, per requested core: the energy that a placement may cost to save a second
	// of waiting.
	waitingWatts = 20 * nominalWattsPerCore
	// gpuCores is the number of cores that a GPU counts as when waiting is priced.
	gpuCores = 64
	// maxOpening is the longest time that openings are considered. Capacity that is not expected to be released within
	// this time, for example by services, has no opening.
	maxOpening = time.Hour
)

// Crowding returns the price of the time that expected jobs would wait longer if j ran on n from now on, as energy. It
// is 0 if they are not expected to wait.
//
// Waiting jobs wait until the first openings. Further jobs of a kind are assumed to arrive as a Poisson process with
// rate r. If the k-th of them finds room after a time w, it waits for E[max(0, w − t)], where t has the Erlang
// distribution of order k. This is w·P(k, r·w) − k/r·P(k+1, r·w) with the regularized lower gamma function P.
func (s *Snapshot) Crowding(j *Job, n *Node) energy.Joules {
	price := 0.
	for i := range s.Ahead {
		d := &s.Ahead[i]
		if !d.contests(n.Name) || !d.suits(n) {
			continue
		}
		// The openings of n are computed again, because those in d may be a moment old.
		ends := slices.Clone(n.Ends)
		sortEnds(ends)
		wait := func(free Resources) float64 {
			openings := slices.DeleteFunc(slices.Clone(d.Openings), func(o Opening) bool { return o.Node == n.Name })
			return d.wait(s.Now, d.add(openings, s.Now, n.Name, free, ends))
		}
		before := wait(n.Room())
		ends = append(ends, End{At: s.Now.Add(n.Runtime(j)), Request: j.Request})
		sortEnds(ends)
		cores := float64(d.Request.MilliCPU)/1000 + gpuCores*d.Request.Devices()
		price += waitingWatts * cores * max(wait(n.Room().Sub(j.Request))-before, 0)
	}
	return energy.Joules(price)
}

// Contested returns the names of the nodes with Ends that the cost of a placement depends on. A placement on any other
// node does not delay the first openings.
func (s *Snapshot) Contested() (nodes []string) {
	for i := range s.Ahead {
		for _, o := range s.Ahead[i].next() {
			nodes = append(nodes, o.Node)
		}
	}
	return nodes
}

// next returns the openings for the next jobs.
func (d *Demand) next() []Opening { return d.Openings[:min(len(d.Openings), aheadJobs)] }

func (d *Demand) contests(node string) bool {
	return slices.ContainsFunc(d.next(), func(o Opening) bool { return o.Node == node })
}

func (d *Demand) suits(n *Node) bool {
	j := Job{Selector: d.Selector, Sites: d.Sites}
	return d.Request.Within(n.Capacity) && j.MayRunAt(n.Site) && j.Selects(n)
}

// add adds the openings of a node with the given free resources, which grow at the given ends, sorted by time. Only the
// first openings are kept.
func (d *Demand) add(to []Opening, now time.Time, node string, free Resources, ends []End) []Opening {
	const most = 2 * aheadJobs
	last := now.Add(maxOpening)
	if len(to) == most {
		last = to[most-1].At
	}
	count, known := int64(0), len(to)
	open := func(at time.Time) {
		for more := d.Request.CountIn(free); count < min(more, aheadJobs); count++ {
			to = append(to, Opening{at, node})
		}
	}
	open(now)
	d.room = d.room || count > 0
	for i := 0; i < len(ends) && count < aheadJobs && !ends[i].At.After(last); i++ {
		free = free.Add(ends[i].Request)
		open(timeutil.Later(now, ends[i].At)) // it may be overdue
	}
	if len(to) > known {
		slices.SortFunc(to, func(a, b Opening) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Node, b.Node)) })
	}
	return to[:min(len(to), most)]
}

func sortEnds(ends []End) { slices.SortFunc(ends, func(a, b End) int { return a.At.Compare(b.At) }) }

// wait returns the time in seconds that the next jobs are expected to wait with the given openings.
func (d *Demand) wait(now time.Time, openings []Opening) (seconds float64) {
	rate := d.PerHour / time.Hour.Seconds()
	for i := range aheadJobs {
		until := maxOpening
		if i < len(openings) {
			until = min(max(openings[i].At.Sub(now), 0), maxOpening)
		}
		w, k := until.Seconds(), i+1-max(d.Waiting, 0)
		switch {
		case k <= 0:
			seconds += w
		case d.PerHour >= minPerHour:
			seconds += w*gammaP(k, rate*w) - float64(k)/rate*gammaP(k+1, rate*w)
		}
	}
	return seconds
}

// gammaP is the regularized lower gamma function of integer order.
func gammaP(order int, x float64) float64 {
	sum, term := 0., 1.
	for k := 1; k <= order; k++ {
		sum += term
		term *= x / float64(k)
	}
	return 1 - math.Exp(-x)*sum
}

// Arrivals learns how often jobs of each kind arrive, and knows which of them wait. Jobs are of the same kind as in
// [Shortages]. The zero value is ready to use. The record is kept in memory only.
type Arrivals struct {
	first   time.Time  // when the first job was added
	began   time.Time  // submission of the oldest job that has been counted
	kinds   []arrivals // sorted by kind
	waiting map[string]jobKind
}

type arrivals struct {
	kind  jobKind
	last  Demand  // of the last job, without its rate and openings
	count float64 // of arrivals, fading out over arrivalMemory
	at    time.Time

	waiting int
	room    time.Time // since when there has been room for a job, while room was short; zero if there was none
}

const (
	arrivalMemory = Day
	// oldArrivals is the age of jobs that are not counted at the beginning, because others of the same age may have
	// ended and been deleted.
	oldArrivals = time.Hour
	// minObserved is the shortest time that rates are computed for.
	minObserved = 10 * time.Second
	// minPerHour is the lowest rate of arrivals that room is left for, once in four days.
	minPerHour = 0.01
	// maxArrivalKinds is the maximum number of kinds. The rarest one is forgotten if there are more.
	maxArrivalKinds = 64
	// maxAhead is the maximum number of kinds that room is left for.
	maxAhead = 8
	// If there has been room for longer than lacksOther, waiting jobs lack something else. Shorter times are due to the
	// backoff of kube-scheduler.
	lacksOther = 5 * time.Minute
)

// Add records a job that was submitted at the given time. Jobs that had been submitted more than an hour before the
// first one was added are ignored.
func (a *Arrivals) Add(now, submitted time.Time, j *Job) {
	if a.first.IsZero() {
		a.first, a.began = now, now
	}
	if a.first.Sub(submitted) > oldArrivals {
		return
	}
	if k := a.find(now, j); k != nil {
		a.began = timeutil.Earlier(a.began, submitted)
		if submitted.After(k.at) {
			k.count, k.at = k.faded(submitted), submitted
		}
		k.count += math.Exp(-float64(k.at.Sub(submitted)) / float64(arrivalMemory))
	}
}

// Waits records that a job waits for room.
func (a *Arrivals) Waits(now time.Time, id string, j *Job) {
	if _, known := a.waiting[id]; known {
		return
	}
	if k := a.find(now, j); k != nil {
		if a.waiting == nil {
			a.waiting = map[string]jobKind{}
		}
		a.waiting[id] = k.kind
		k.waiting++
	}
}

// Left records that a job does not wait, or no longer.
func (a *Arrivals) Left(id string) {
	kind, waits := a.waiting[id]
	if !waits {
		return
	}
	delete(a.waiting, id)
	if at, known := slices.BinarySearchFunc(a.kinds, kind, arrivals.compare); known {
		a.kinds[at].waiting--
	}
}

func (k arrivals) compare(kind jobKind) int { return k.kind.compare(kind) }

// faded returns the number of arrivals at a later time.
func (k *arrivals) faded(now time.Time) float64 {
	return k.count * math.Exp(-float64(now.Sub(k.at))/float64(arrivalMemory))
}

// find returns the kind of a job, adding it if necessary, or nil if there are too many kinds.
func (a *Arrivals) find(now time.Time, j *Job) *arrivals {
	kind := kindOf(j)
	at, known := slices.BinarySearchFunc(a.kinds, kind, arrivals.compare)
	if !known {
		if j.Request == (Resources{}) || len(a.kinds) >= maxArrivalKinds && !a.forget(now) {
			return nil
		}
		at, _ = slices.BinarySearchFunc(a.kinds, kind, arrivals.compare)
		a.kinds = slices.Insert(a.kinds, at, arrivals{kind: kind, at: now})
	}
	a.kinds[at].last = Demand{Request: j.Request, Selector: j.Selector, Sites: j.Sites}
	return &a.kinds[at]
}

// forget removes the rarest kind without waiting jobs. It returns false if there is none.
func (a *Arrivals) forget(now time.Time) bool {
	rarest, least := -1, math.Inf(1)
	for i := range a.kinds {
		if count := a.kinds[i].faded(now); a.kinds[i].waiting == 0 && count < least {
			rarest, least = i, count
		}
	}
	if rarest >= 0 {
		a.kinds = slices.Delete(a.kinds, rarest, rarest+1)
	}
	return rarest >= 0
}

// Ahead returns the kinds of jobs that may have to wait after a placement of j, which no longer waits, on any of the
// nodes, the most urgent ones first. ends returns the expected ends of the jobs on a node, sorted by time, and is only
// called if there are such kinds.
func (a *Arrivals) Ahead(now time.Time, j *Job, nodes iter.Seq[*Node], ends func(*Node) []End) []Demand {
	short := a.short(now, j, nodes)
	if len(short) == 0 {
		return nil
	}
	urgency := func(d Demand) float64 {
		return (float64(d.Request.MilliCPU) + 1000*gpuCores*d.Request.Devices()) * (d.PerHour + float64(d.Waiting)*1000)
	}
	slices.SortStableFunc(short, func(x, y Demand) int { return cmp.Compare(urgency(y), urgency(x)) })
	short = short[:min(len(short), maxAhead)]
	for n := range nodes {
		var of []End
		for i := range short {
			if d := &short[i]; d.suits(n) {
				if of == nil {
					of = ends(n)
				}
				d.Openings = d.add(d.Openings, now, n.Name, n.Room(), of)
			}
		}
	}
	for i := range short {
		d := &short[i]
		switch k := &a.kinds[d.kind]; {
		case !d.room:
			k.room = time.Time{}
		case k.room.IsZero():
			k.room = now
		case now.Sub(k.room) > lacksOther:
			d.Waiting = 0
		}
		d.kind, d.room = 0, false
	}
	return slices.DeleteFunc(short, func(d Demand) bool { return len(d.Openings) == 0 })
}

// short returns the kinds of jobs that may have to wait after a placement of j, without openings.
func (a *Arrivals) short(now time.Time, j *Job, nodes iter.Seq[*Node]) (short []Demand) {
	seen := 1 - math.Exp(-float64(max(now.Sub(a.began), minObserved))/float64(arrivalMemory))
	own, waits := a.waiting[j.ID]
	var roomy []*arrivals
	for i := range slices.Backward(a.kinds) { // large ones first
		k := &a.kinds[i]
		d := k.last
		d.PerHour, d.Waiting = k.faded(now)/(arrivalMemory.Hours()*seen), k.waiting
		if waits && own == k.kind {
			d.Waiting--
		}
		d.Waiting, d.kind = min(d.Waiting, aheadJobs), i
		covers := func(o *arrivals) bool { return k.kind.where == o.kind.where && d.Request.Within(o.last.Request) }
		switch {
		case d.PerHour < minPerHour && d.Waiting == 0, slices.ContainsFunc(roomy, covers):
		case d.roomy(j, nodes):
			roomy = append(roomy, k)
		default:
			short = append(short, d)
		}
	}
	return short
}

// roomy reports whether there is enough room now for the next jobs, wherever j is placed.
func (d *Demand) roomy(j *Job, nodes iter.Seq[*Node]) bool {
	slots := func(free Resources) int64 { return min(d.Request.CountIn(free), aheadJobs) }
	count, lost := int64(0), int64(0) // lost is the largest decrease due to j
	for n := range nodes {
		if !d.suits(n) {
			continue
		}
		room := n.Room()
		count += slots(room)
		if j.Request.Within(room) {
			lost = max(lost, slots(room)-slots(room.Sub(j.Request)))
		}
		if count >= 2*aheadJobs {
			return true
		}
	}
	return count-lost >= aheadJobs
}
