package sched

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Shortages records when no node had capacity for jobs of a kind. Jobs are of the same kind if they may run on the
// same nodes and their requests are similar. A kind is recorded from its first job on. The zero value is ready to
// use. The record is kept in memory only.
type Shortages struct {
	kinds map[jobKind]*shortages
}

// jobKind contains the sites and the selector of jobs, and their requests of CPU, memory and GPUs, as logarithms in
// thirds of a factor of two.
type jobKind struct {
	where string
	sizes [4]int
}

func kindOf(j *Job) jobKind {
	var kind jobKind
	if len(j.Sites)+len(j.Selector) > 0 { // avoids the cost of formatting
		kind.where = fmt.Sprintf("%q %q", j.Sites, j.Selector)
	}
	for d, v := range j.Request.Vector() {
		kind.sizes[d] = int(math.Ceil(3 * math.Log2(float64(max(v, 1)))))
	}
	return kind
}

// within reports whether the jobs of k may run on the same nodes as those of o and are not larger.
func (k jobKind) within(o jobKind) bool {
	for d := range k.sizes {
		if k.sizes[d] > o.sizes[d] {
			return false
		}
	}
	return k.where == o.where
}

func (k jobKind) compare(o jobKind) int {
	return cmp.Or(cmp.Compare(k.where, o.where), slices.Compare(k.sizes[:], o.sizes[:]))
}

// shortages are the shortages for one kind of jobs.
type shortages struct {
	job          Job // the last one
	began, asked time.Time
	since        time.Time // start of the current shortage; zero if there is none
	ended        []Window  // earlier shortages, each longer than the following ones
	longest      time.Duration
}

const (
	// shortageMemory is the time after which shortages and kinds are forgotten.
	shortageMemory = 3 * Day
	// Until a kind has been recorded for a day, at least unknownShortage is assumed, decreasing to 0, but at most half
	// of the time until the latest start.
	unknownShortage = 2 * time.Hour
	// maxShortKinds is the maximum number of kinds. Jobs of further kinds have the shortages of smaller jobs.
	maxShortKinds = 500
)

// Look updates the record with the current nodes, including nodes that are asleep.
func (s *Shortages) Look(now time.Time, nodes []Node) {
	for kind, k := range s.kinds {
		if k.look(now, nodes); now.Sub(k.asked) > shortageMemory {
			delete(s.kinds, kind)
		}
	}
}

func (k *shortages) look(now time.Time, nodes []Node) {
	short := false
	for i := range nodes {
		n := &nodes[i]
		if !k.job.Request.Within(n.Capacity) || !k.job.MayRunAt(n.Site) || !k.job.Selects(n) {
			continue
		}
		if short = !k.job.Request.Within(n.Room()); !short {
			break
		}
	}
	switch {
	case short && k.since.IsZero():
		k.since = now
	case !short && !k.since.IsZero():
		w := Window{k.since, now}
		for n := len(k.ended); n > 0 && k.ended[n-1].length() <= w.length(); n-- {
			k.ended = k.ended[:n-1]
		}
		k.ended, k.since = append(k.ended, w), time.Time{}
	}
	for len(k.ended) > 0 && now.Sub(k.ended[0].End) > shortageMemory {
		k.ended = k.ended[1:]
	}
	k.longest = 0
	if len(k.ended) > 0 {
		k.longest = k.ended[0].length()
	}
	if !k.since.IsZero() {
		k.longest = max(k.longest, now.Sub(k.since))
	}
}

func (w Window) length() time.Duration { return w.End.Sub(w.Start) }

// Set sets the Shortage of jobs: the longest shortage for jobs of their kind, or for smaller jobs that may run on the
// same nodes.
func (s *Shortages) Set(now time.Time, jobs []Job) {
	if s.kinds == nil {
		s.kinds = map[jobKind]*shortages{}
	}
	known := map[jobKind][2]time.Duration{} // recorded and assumed
	for i := range jobs {
		j := &jobs[i]
		kind := kindOf(j)
		if s.kinds[kind] == nil && len(s.kinds) < maxShortKinds {
			s.kinds[kind] = &shortages{began: now}
		}
		if k := s.kinds[kind]; k != nil {
			k.job.Request, k.job.Sites, k.job.Selector, k.asked = j.Request, j.Sites, j.Selector, now
		}
		if _, done := known[kind]; !done {
			recorded, assumed := s.longest(kind, now)
			known[kind] = [2]time.Duration{recorded, assumed}
		}
		j.Shortage = max(known[kind][0], min(known[kind][1], j.LatestStart().Sub(j.Submitted)/2))
	}
}

// longest returns the longest recorded shortage and the assumed shortage of a kind.
func (s *Shortages) longest(kind jobKind, now time.Time) (recorded, assumed time.Duration) {
	if k := s.kinds[kind]; k != nil {
		assumed = max(0, time.Duration(float64(unknownShortage)*(1-float64(now.Sub(k.began))/float64(Day))))
	}
	for other, k := range s.kinds {
		if other.within(kind) {
			recorded = max(recorded, k.longest)
		}
	}
	return recorded, assumed
}
