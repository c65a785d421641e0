package codec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Encode returns the encoded form of a snapshot. Every strategy plans the same on the decoded snapshot. Data that
// no decision can depend on is omitted: labels that no job selects, benchmarks of other classes, and values of
// signals before Now or after the latest possible finish. Snapshots that only differ in the order of their nodes
// have the same encoded form. Encode returns an error for values that [Decode] would reject, for example a node
// without a site or a negative time, except that a negative delay is encoded as 0.
func Encode(s *sched.Snapshot) ([]byte, error) {
	w := writer{
		snapshot: s, until: s.Horizon(), known: map[any]int{}, same: map[string]int{},
	}
	w.out = writtenSnapshot{Version: recordVersion, Now: s.Now.UTC(), Last: s.Last, Policy: s.Policy}
	w.out.Policy.Closed = s.Policy.Closed.UTC()
	for _, site := range s.Sites {
		w.out.Offered = append(w.out.Offered, w.site(site))
	}
	for _, n := range sched.NodesByName(s.Nodes) {
		w.node(n)
	}
	for i := range s.Queue {
		w.out.Queue = append(w.out.Queue, w.job(&s.Queue[i]))
	}
	for _, d := range s.Ahead {
		d.Openings = slices.Clone(d.Openings)
		for i := range d.Openings {
			d.Openings[i].At = d.Openings[i].At.UTC()
		}
		w.out.Ahead = append(w.out.Ahead, d)
	}
	if w.err != nil {
		return nil, fmt.Errorf("encoding snapshot: %w", w.err)
	}
	data, err := json.Marshal(&w.out)
	if err != nil {
		return nil, fmt.Errorf("encoding snapshot: %w", err)
	}
	return data, nil
}

// Digest returns the SHA-256 digest of an encoded snapshot in hexadecimal.
func Digest(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}

// writer collects the encoded form.
type writer struct {
	snapshot *sched.Snapshot
	until    time.Time
	out      writtenSnapshot
	known    map[any]int    // positions of sites, profiles and run times
	same     map[string]int // positions by encoded form, to merge equal objects
	err      error
}

func (w *writer) site(s *sched.Site) int {
	if s == nil {
		return -1
	}
	return once(w, s, "site", &w.out.Sites, func() writtenSite {
		return writtenSite{
			Name: s.Name, Zone: s.Zone, PUE: s.PUE, Weight: s.Weight, Carbon: w.signal(&s.Carbon),
			Price: w.signal(&s.Price),
		}
	})
}

func (w *writer) profile(p *energy.Profile) int {
	if p == nil {
		return -1
	}
	return once(w, p, "profile", &w.out.Profiles, func() energy.Profile {
		w.err = errors.Join(w.err, p.Validate())
		profile := *p
		profile.Source = "" // only for users
		return profile
	})
}

// ShareProfiles makes nodes with equal power profiles share one profile. The kinds of machines must be the same
// before and after a snapshot is encoded and decoded.
func ShareProfiles(nodes []sched.Node) {
	w := writer{known: map[any]int{}, same: map[string]int{}}
	var all []*energy.Profile
	for k := range nodes {
		i := w.profile(nodes[k].Profile)
		if i == len(all) {
			all = append(all, nodes[k].Profile)
		}
		if i >= 0 {
			nodes[k].Profile = all[i]
		}
	}
}

// once returns the position of an object in a list. The object is appended if no object with the same encoded form
// exists.
func once[V any](w *writer, of any, kind string, list *[]V, write func() V) int {
	if i, ok := w.known[of]; ok {
		return i
	}
	written := write()
	text, err := json.Marshal(&written)
	w.err = errors.Join(w.err, err)
	key := kind + string(text)
	i, ok := w.same[key]
	if !ok {
		i = len(*list)
		*list = append(*list, written)
		w.same[key] = i
	}
	w.known[of] = i
	return i
}

// signal restricts a signal to the time that a decision may depend on. The positions of the steps do not change.
func (w *writer) signal(s *grid.Signal) *writtenSignal {
	series := s.Series
	if series == nil {
		return nil
	}
	step := series.Step()
	at := func(t time.Time) int {
		return int(min(max(t.Sub(series.Start())/step, 0), time.Duration(series.Len()-1)))
	}
	first, last := at(w.snapshot.Now), at(w.until)
	out := &writtenSignal{
		Start: series.Start().Add(time.Duration(first) * step), Step: step, Values: make([]float64, 0, last-first+1),
		Before: series.Before(first), Quality: s.Quality, MaxAge: s.MaxAge, AsOf: s.AsOf.UTC(),
	}
	for i := first; i <= last; i++ {
		out.Values = append(out.Values, series.Value(i))
	}
	return out
}

func (w *writer) node(n *sched.Node) {
	if n.Site == nil {
		w.err = errors.Join(w.err, fmt.Errorf("node %q has no site", n.Name))
	}
	out := writtenNode{
		Name: n.Name, Site: w.site(n.Site), Profile: w.profile(n.Profile), Node: *n,
		Benchmarks: map[string]writtenBenchmark{},
	}
	out.Ends = slices.Clone(n.Ends)
	for i := range out.Ends {
		out.Ends[i].At = out.Ends[i].At.UTC()
	}
	out.Labels = map[string]string{}
	selected := func(by map[string]string) {
		for key := range by {
			if value, ok := n.Labels[key]; ok {
				out.Labels[key] = value
			}
		}
	}
	for i := range w.snapshot.Ahead {
		selected(w.snapshot.Ahead[i].Selector)
	}
	for i := range w.snapshot.Queue {
		j := &w.snapshot.Queue[i]
		selected(j.Selector)
		if b, ok := n.Benchmarks[j.Class]; ok && j.Class != "" && b.Rate > 0 {
			out.Benchmarks[j.Class] = writtenBenchmark(b)
		}
	}
	if n.HasLive && sched.ValidPower(n.Live) {
		out.Live = new(n.Live)
		if sched.ValidPower(n.Provisional) {
			out.Provisional = n.Provisional
		}
	}
	w.out.Nodes = append(w.out.Nodes, out)
}

func (w *writer) job(j *sched.Job) writtenJob {
	out := writtenJob{Job: *j}
	for _, t := range [...]*time.Time{&out.Submitted, &out.FinishBy, &out.Place.Start} {
		*t = t.UTC()
	}
	out.TimeLimit, out.AllowedDelay = max(0, j.TimeLimit), max(0, j.AllowedDelay)
	for _, d := range [...]struct {
		what   string
		length time.Duration
	}{{"duration", j.Duration}, {"restartCost", j.RestartCost}, {"done", j.Done}, {"worked", j.Worked}} {
		if d.length < 0 {
			w.err = errors.Join(w.err, fmt.Errorf("%s is %v", d.what, d.length))
		}
	}
	for _, o := range j.Openings {
		out.Openings = append(out.Openings, [2]time.Time{o.Start.UTC(), o.End.UTC()})
	}
	if j.Runtimes != nil {
		out.Runtimes = new(w.runtimes(j.Runtimes))
	}
	if j.HasPerformanceWeight {
		out.Performance = new(j.PerformanceWeight)
	}
	if j.HasExpected && sched.ValidPower(j.Expected) {
		out.Expected = new(j.Expected)
	}
	return out
}
