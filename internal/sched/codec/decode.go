package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Limits of an encoded snapshot. A cluster has up to 5,000 nodes, and batch strategies plan a few thousand jobs at
// a time.
const (
	maxSnapshotBytes = 16 << 20
	maxNodes         = 20_000
	maxQueue         = 20_000
	maxSites         = 1_000
	maxOpenings      = 10_000
	maxAhead         = 1_000
	maxValues        = 100_000 // per signal
	maxText          = 1_024   // length of a name, in bytes
	maxPairs         = 256     // labels per node
	maxEnds          = 10_000  // per node
	maxAmount        = 1 << 60
	maxNumber        = 1e12
)

// The permitted range of times, far from an overflow of nanoseconds.
var (
	earliest = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Decode decodes a snapshot that was encoded by [Encode]. The data is not trusted, and all fields are validated.
func Decode(data []byte) (*sched.Snapshot, error) {
	if len(data) > maxSnapshotBytes {
		return nil, fmt.Errorf("decoding snapshot: %d bytes exceed the limit of %d", len(data), maxSnapshotBytes)
	}
	var in writtenSnapshot
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return nil, fmt.Errorf("decoding snapshot: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decoding snapshot: unexpected data after the snapshot")
	}
	r := reader{in: &in}
	s := r.read()
	if r.err != nil {
		return nil, fmt.Errorf("decoding snapshot: %w", r.err)
	}
	return s, nil
}

// reader validates and converts an encoded snapshot. It retains the first error.
type reader struct {
	in    *writtenSnapshot
	count int // nodes represented by others
	err   error
}

func (r *reader) want(ok bool, format string, args ...any) {
	if !ok && r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) instant(what string, t time.Time) time.Time {
	r.want(t.IsZero() || !t.Before(earliest) && t.Before(latest), "%s is %v", what, t)
	return t.UTC()
}

func (r *reader) duration(what string, d time.Duration) time.Duration {
	r.want(d >= 0 && d <= sched.MaxDuration, "%s is %v", what, d)
	return d
}

func (r *reader) number(what string, v float64) {
	r.want(v >= 0 && v <= maxNumber, "%s is %v", what, v)
}

func (r *reader) text(what, s string) { r.want(len(s) <= maxText, "%s has %d bytes", what, len(s)) }

func (r *reader) read() *sched.Snapshot {
	in := r.in
	r.want(in.Version == recordVersion, "unsupported version %d, want %d", in.Version, recordVersion)
	r.want(len(in.Nodes) <= maxNodes && len(in.Queue) <= maxQueue && len(in.Sites) <= maxSites &&
		len(in.Offered) <= maxSites && len(in.Profiles) <= maxNodes,
		"too many objects: %d nodes, %d jobs, %d sites", len(in.Nodes), len(in.Queue), len(in.Sites))
	if r.err != nil {
		return nil
	}
	s := &sched.Snapshot{Now: r.instant("now", in.Now), Last: in.Last, Policy: in.Policy}
	r.duration("maxDelay", in.Policy.MaxDelay)
	r.duration("maxSignalAge", in.Policy.MaxSignalAge)
	s.Policy.Closed = r.instant("closed", in.Policy.Closed)
	r.text("name of a budget", in.Policy.Budget)
	r.want(!s.Now.IsZero(), "now is missing")
	r.text("last", in.Last)
	r.number("minSaving", in.Policy.MinSaving)
	r.number("minSavingPerHour", in.Policy.MinSavingPerHour)
	r.number("minSavingGrams", float64(in.Policy.MinSavingGrams))
	w := &in.Policy.Weights
	for _, v := range [...]float64{w.Carbon, w.Wait, w.Price, w.Utilisation} {
		r.number("weight", math.Abs(v))
	}
	sites := sliceutil.Map(sliceutil.Refs(in.Sites), r.site)
	for _, i := range in.Offered {
		if site := at(r, "site", sites, i); site != nil {
			s.Sites = append(s.Sites, site)
		}
	}
	profiles := sliceutil.Refs(in.Profiles) // validated by the UnmarshalJSON method
	for i := range in.Nodes {
		s.Nodes = append(s.Nodes, r.node(&in.Nodes[i], sites, profiles))
		r.want(i == 0 || in.Nodes[i-1].Name < in.Nodes[i].Name, "node %q is listed twice or unsorted", in.Nodes[i].Name)
	}
	runtimes := r.lives()
	for i := range in.Queue {
		s.Queue = append(s.Queue, r.job(&in.Queue[i], runtimes))
	}
	s.Ahead = in.Ahead
	r.want(len(s.Ahead) <= maxAhead, "%d kinds of expected jobs", len(s.Ahead))
	for i := range s.Ahead {
		r.demand(&s.Ahead[i])
	}
	return s
}

func (r *reader) demand(d *sched.Demand) {
	r.resources("request of an expected job", d.Request)
	r.pairs(d.Selector)
	r.sites(d.Sites)
	r.number("rate of expected jobs", d.PerHour)
	r.want(d.Waiting >= 0 && d.Waiting <= maxQueue, "%d expected jobs wait", d.Waiting)
	r.want(len(d.Openings) <= maxOpenings, "expected job has %d openings", len(d.Openings))
	for i := range d.Openings {
		r.text("node of an opening", d.Openings[i].Node)
		d.Openings[i].At = r.instant("time of an opening", d.Openings[i].At)
	}
}

func (r *reader) sites(names []string) {
	r.want(len(names) <= maxSites, "job may run at %d sites", len(names))
	for _, name := range names {
		r.text("site of a job", name)
	}
}

// at returns the element at the given position, or nil for position -1.
func at[T any](r *reader, what string, all []*T, i int) *T {
	if i >= 0 && i < len(all) {
		return all[i]
	}
	r.want(i == -1, "there is no %s %d", what, i)
	return nil
}

func (r *reader) site(in *writtenSite) *sched.Site {
	r.text("name of a site", in.Name)
	r.text("zone of a site", string(in.Zone))
	const maxPUE = 100
	r.want(in.PUE >= 0 && in.PUE <= maxPUE, "site %q has a PUE of %v", in.Name, in.PUE)
	r.want(in.Weight >= 0, "site %q has a weight of %d", in.Name, in.Weight)
	return &sched.Site{
		Name: in.Name, Zone: in.Zone, PUE: in.PUE, Weight: in.Weight, Carbon: r.signal(in.Carbon, 0),
		Price: r.signal(in.Price, -maxNumber),
	}
}

func (r *reader) signal(in *writtenSignal, least float64) (s grid.Signal) {
	if in == nil {
		return s
	}
	r.want(in.Step > 0 && in.Step <= sched.MaxDuration && len(in.Values) > 0 && len(in.Values) <= maxValues,
		"signal has %d values of %v each", len(in.Values), in.Step)
	if r.err != nil {
		return s
	}
	r.want(time.Duration(len(in.Values)) <= sched.MaxDuration/in.Step ||
		len(in.Values) == 1, "signal with %d values of %v each is too long", len(in.Values), in.Step)
	for _, v := range in.Values {
		r.want(v >= least && v <= maxNumber, "value of a signal is %v", v)
	}
	r.want(math.Abs(in.Before) <= maxValues*maxNumber, "values of a signal have a sum of %v", in.Before)
	start := r.instant("start of a signal", in.Start)
	r.want(!start.IsZero(), "signal has no start")
	s = grid.Signal{AsOf: r.instant("asOf", in.AsOf), Quality: in.Quality, MaxAge: r.duration("maxAge", in.MaxAge)}
	if r.err != nil {
		return s
	}
	var err error
	s.Series, err = grid.Resume(in.Before, start, in.Step, in.Values)
	r.want(err == nil, "%w", err)
	return s
}

func (r *reader) node(in *writtenNode, sites []*sched.Site, profiles []*energy.Profile) *sched.Node {
	r.text("name of a node", in.Name)
	r.want(in.Name != "", "node has no name")
	r.want(in.Site >= 0, "node %q has no site", in.Name)
	r.want(in.Jobs >= 0, "node %q has %d jobs", in.Name, in.Jobs)
	r.count += max(in.Count-1, 0)
	r.want(in.Count >= 0 && r.count <= maxNodes, "node %q represents %d nodes", in.Name, in.Count)
	r.number("speed of a node", in.Speed)
	r.number("PUE of a node", in.PUE)
	r.resources("capacity of a node", in.Capacity)
	// Requests may exceed the capacity, so the free amount may be negative.
	r.resources("free resources of a node", in.Free.Max(sched.Resources{}.Sub(in.Free)))
	r.pairs(in.Labels)
	r.want(len(in.Ends) <= maxEnds, "%d jobs with an expected end on node %q", len(in.Ends), in.Name)
	for k := range in.Ends {
		in.Ends[k].At = r.instant("expected end of a job", in.Ends[k].At)
		r.resources("request of a job", in.Ends[k].Request)
	}
	r.want(len(in.Benchmarks) <= maxPairs, "node %q has %d benchmarks", in.Name, len(in.Benchmarks))
	n := &in.Node
	n.Name, n.Site, n.Profile = in.Name, at(r, "site", sites, in.Site), at(r, "profile", profiles, in.Profile)
	if len(in.Benchmarks) > 0 {
		n.Benchmarks = map[string]energy.Benchmark{}
	}
	for class, b := range in.Benchmarks {
		r.text("class of a benchmark", class)
		r.number("rate of a benchmark", b.Rate)
		r.number("power of a benchmark", math.Abs(float64(b.Power))+math.Abs(float64(b.Idle)))
		n.Benchmarks[class] = energy.Benchmark(b)
	}
	if in.Live != nil {
		r.number("live power of a node", float64(*in.Live))
		r.number("provisional power of a node", float64(in.Provisional))
		n.Live, n.HasLive, n.Provisional = *in.Live, true, in.Provisional
	}
	return n
}

func (r *reader) resources(what string, v sched.Resources) {
	for _, amount := range v.Vector() {
		r.want(amount >= 0 && amount <= maxAmount, "%s is %v", what, v)
	}
}

func (r *reader) pairs(m map[string]string) {
	r.want(len(m) <= maxPairs, "node or job has %d labels", len(m))
	for key, value := range m {
		r.text("label", key+value)
	}
}

func (r *reader) job(in *writtenJob, runtimes []*sched.Runtimes) sched.Job {
	r.text("ID of a job", in.ID)
	r.text("owner and queue of a job", in.Owner+in.Queue)
	r.text("class of a job", in.Class+in.GPUClass)
	r.text("planned node of a job", in.Place.Node)
	r.number("PUE of a job", in.PUE)
	r.resources("request of a job", in.Request)
	r.pairs(in.Selector)
	r.sites(in.Sites)
	j := in.Job
	j.Submitted = r.instant("submitted", j.Submitted)
	j.FinishBy = r.instant("finishBy", j.FinishBy)
	j.Place.Start = r.instant("planned start of a job", j.Place.Start)
	r.duration("duration", j.Duration)
	r.duration("timeLimit", j.TimeLimit)
	r.duration("allowedDelay", j.AllowedDelay)
	r.duration("restartCost", j.RestartCost)
	r.duration("done", j.Done)
	r.duration("worked", j.Worked)
	r.number("planned saving of a job", math.Abs(in.Place.Saving)+math.Abs(float64(in.Place.Carbon)))
	r.want(len(in.Openings) <= maxOpenings, "job has %d openings", len(in.Openings))
	for _, o := range in.Openings {
		j.Openings = append(j.Openings, sched.Window{
			Start: r.instant("openings", o[0]), End: r.instant("openings", o[1]),
		})
	}
	if in.Scaling != nil {
		err := in.Scaling.Validate()
		r.want(err == nil, "%v", err)
	}
	if in.Runtimes != nil {
		j.Runtimes = at(r, "distribution of run times", runtimes, *in.Runtimes)
	}
	r.number("carbon limit", float64(in.Limits.Carbon))
	r.want(in.Limits.Percentile >= 0 && in.Limits.Percentile < 1, "percentile is %v", in.Limits.Percentile)
	r.number("price limit", math.Abs(float64(in.Limits.Price)))
	if in.Performance != nil {
		j.PerformanceWeight, j.HasPerformanceWeight = *in.Performance, true
	}
	if in.Expected != nil {
		r.number("expected power of a job", float64(*in.Expected))
		j.Expected, j.HasExpected = *in.Expected, true
	}
	return j
}
