package sched

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Horizon returns the latest time that a decision may depend on.
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
			// The interval of a percentile, and the minimum length of an outlook.
			latest.Add(length), s.latest(j).Add(length), s.Now.Add(longest), s.Now.Add(Day),
			s.latest(j).Add(j.planned(slot)),
		} {
			until = timeutil.Later(until, t)
		}
	}
	return until
}

// Slowest returns the speed of the slowest node, but at most 1.
func (s *Snapshot) Slowest() float64 {
	slowest := 1.0
	for _, n := range s.Nodes {
		if n.Speed > 0 {
			slowest = min(slowest, n.Speed)
		}
	}
	return slowest
}

// longestSlot returns the length of the longest planning slot over all sites.
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

// planned returns how far strategies look beyond the end of the slack: the maximum planned run time of the job,
// rounded up to whole slots at both ends, but at least its mean run time.
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

// MaxDuration is the longest duration in an encoded snapshot, and the upper limit of durations computed during
// planning: 30 years of 365 days.
const MaxDuration = 30 * 365 * 24 * time.Hour
