package sched

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Horizon returns the latest instant that a decision may look at.
func (s *Snapshot) Horizon() time.Time {
	until := s.Now
	slowest := s.Slowest()
	slot := s.longestSlot()
	for i := range s.Queue {
		j := &s.Queue[i]
		latest := timeutil.Later(s.Policy.LatestStart(j), s.Now)
		length := max(j.Duration, j.Remaining())
		longest := time.Duration(min(float64(length)/slowest, float64(MaxDuration)))
		for _, t := range [...]time.Time{
			// what a percentile looks at, and what makes an outlook long
			latest.Add(length), s.latest(j).Add(length), s.Now.Add(longest), s.Now.Add(Day),
			s.latest(j).Add(j.planned(slot)),
		} {
			until = timeutil.Later(until, t)
		}
	}
	return until
}

// Slowest returns the speed of the slowest node, at most 1.
func (s *Snapshot) Slowest() float64 {
	slowest := 1.0
	for _, n := range s.Nodes {
		if n.Speed > 0 {
			slowest = min(slowest, n.Speed)
		}
	}
	return slowest
}

// longestSlot returns the length of the longest slots that plans use.
func (s *Snapshot) longestSlot() time.Duration {
	longest := slotLength
	for _, site := range s.Sites {
		if site.Carbon.Series != nil {
			longest = max(longest, slotOf(site.Carbon.Series.Step()))
		}
		if site.Price.Series != nil {
			longest = max(longest, slotOf(site.Price.Series.Step()))
		}
	}
	return longest
}

// planned is how far strategies look beyond the end of the slack: as long as the job may run, rounded up to whole
// slots at both ends, and its mean.
func (j *Job) planned(slot time.Duration) time.Duration {
	const bothEnds = 4
	life := j.lifetime(slot)
	var work [maxRunSlots + 1]float64
	span := time.Duration(len(life.work(work[:0], j.Done, slot))+bothEnds) * slot
	if j.Runtimes != nil {
		span = max(span, j.Runtimes.Mean())
	}
	return span
}

// MaxDuration is the longest duration that a written snapshot may hold, and the limit of those that planning computes:
// 30 years of 365 days.
const MaxDuration = 30 * 365 * 24 * time.Hour
