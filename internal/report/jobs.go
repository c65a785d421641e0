package report

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// The actions of records that are evaluated.
const (
	actionPlace   = "place"
	actionHold    = "hold"
	actionRelease = "release"
	actionPause   = "pause"
	actionScale   = "scale"
)

// job contains all decisions about one owner of pods.
type job struct {
	key      ownerKey
	kind     string           // kind of the owner
	strategy string           // of its first placement; empty if another scheduler placed it
	first    *ledger.Record   // first placement
	places   []*ledger.Record // the last placement of each pod
	holds    []*ledger.Record
	release  *ledger.Record // last release; nil if there is none
	releases []*ledger.Record
	pauses   []*ledger.Record
	scaled   bool
}

// paused returns how long the work was paused between its first and its last run.
func (j *job) paused() (sum time.Duration) {
	for _, p := range j.pauses {
		if i := slices.IndexFunc(j.releases, func(r *ledger.Record) bool { return r.At.After(p.At) }); i >= 0 {
			sum += j.releases[i].At.Sub(p.At)
		}
	}
	return sum
}

// short reports whether the work ends by itself. Only then does the energy charged to it by name belong to its
// placements.
func (j *job) short() bool { return j.kind == "Job" || j.kind == "Pod" }

// held returns the first decision to hold the work, which is the time when it would have started otherwise. If a
// name was reused, only the holds of the last object before the placement count.
func (j *job) held(place *ledger.Record) *ledger.Record {
	var first *ledger.Record
	for _, h := range j.holds { // in chronological order
		if h.At.After(place.At) {
			break
		}
		if first == nil || h.UID != first.UID {
			first = h
		}
	}
	return first
}

// lastOfEach returns the last placement of each pod. places must be in chronological order. A pod runs only once,
// so earlier placements of the same pod failed to bind.
func lastOfEach(places []*ledger.Record) []*ledger.Record {
	seen := make(map[string]bool, len(places))
	var last []*ledger.Record
	for _, p := range slices.Backward(places) {
		if p.UID == "" || !seen[p.UID] {
			seen[p.UID] = true
			last = append(last, p)
		}
	}
	slices.Reverse(last)
	return last
}

// group groups records by the work that they concern. It omits jobs without a placement or the release of a hold,
// because they did not run. Released jobs without a placement were placed by another scheduler.
func group(records []ledger.Record) []*job {
	byKey := map[ownerKey]*job{}
	sorted := sliceutil.Refs(records)
	slices.SortFunc(sorted, func(a, b *ledger.Record) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID))
	})
	same := func(a, b *ledger.Record) bool { return a.ID == b.ID && a.At.Equal(b.At) }
	for _, r := range slices.CompactFunc(sorted, same) {
		key := ownerKey{r.Namespace, r.OwnerName()}
		j := byKey[key]
		if j == nil {
			j = &job{key: key, kind: r.OwnerKind}
			byKey[key] = j
		}
		switch r.Action {
		case actionPlace:
			j.places = append(j.places, r)
		case actionHold:
			j.holds = append(j.holds, r)
		case actionRelease:
			j.release, j.releases = r, append(j.releases, r)
		case actionPause:
			j.pauses = append(j.pauses, r)
		case actionScale:
			j.scaled = true
		}
	}
	var jobs []*job
	for _, j := range byKey {
		switch {
		case len(j.places) > 0:
			j.first, j.places = j.places[0], lastOfEach(j.places)
			j.strategy = j.places[0].Strategy
		case j.release == nil || j.held(j.release) == nil && len(j.pauses) == 0:
			continue
		}
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job) int {
		return cmp.Or(strings.Compare(a.key.namespace, b.key.namespace), strings.Compare(a.key.owner, b.key.owner))
	})
	return jobs
}

// turnaround returns the time from the creation of a placed job to the end of the energy that was booked for it. ok is
// false while the job may still be running, and for work that does not end by itself.
func (j *job) turnaround(f *found) (took time.Duration, ended time.Time, ok bool) {
	row, known := f.measured(j)
	if !known || !j.short() || j.first == nil || f.asOf.Sub(row.Last) < stillRuns {
		return 0, time.Time{}, false
	}
	created := j.first.At
	for _, r := range append([]*ledger.Record{j.first}, j.holds...) {
		created = timeutil.Earlier(created, r.At)
		if len(r.Snapshot) == 0 {
			continue
		}
		if s, err := ReadSnapshot(r); err == nil && s.Queue[0].Submitted.Before(created) &&
			!s.Queue[0].Submitted.IsZero() {
			created = s.Queue[0].Submitted
		}
	}
	if !row.Last.After(created) {
		return 0, time.Time{}, false
	}
	return row.Last.Sub(created), row.Last, true
}

// stillRuns is how long after its last booked energy a job may still be running, which is the time of a few batches
// and a window.
const stillRuns = 10 * time.Minute

// nodeNamed returns a node of a snapshot, or nil.
func nodeNamed(s *sched.Snapshot, name string) *sched.Node {
	if i := slices.IndexFunc(s.Nodes, func(n *sched.Node) bool { return n.Name == name }); i >= 0 {
		return s.Nodes[i]
	}
	return nil
}
