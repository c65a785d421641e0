package report

import (
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Moved returns, for the compared jobs, how many watts more the nodes would have drawn with the baseline than they
// did. It returns the mean of each hour after from. The energy of each job is distributed evenly over its run time.
func (s *Comparison) Moved(from time.Time, hours int) []float64 {
	watts := make([]float64, hours)
	for i := range s.PerJob {
		for _, m := range s.PerJob[i].moves {
			first, last := int(m.Start.Sub(from)/time.Hour), int(m.End.Sub(from)/time.Hour)
			for h := max(0, first); h <= min(last, hours-1); h++ {
				start := from.Add(time.Duration(h) * time.Hour)
				within := timeutil.Earlier(m.End, start.Add(time.Hour)).Sub(timeutil.Later(m.Start, start))
				if within > 0 {
					watts[h] += m.joules * within.Seconds() / m.End.Sub(m.Start).Seconds() / time.Hour.Seconds()
				}
			}
		}
	}
	return watts
}

// Part is a part of the savings. Negative values are losses.
type Part struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Why   string  `json:"why"`
}

// Parts splits the saved emissions by [Comparison.Signal], or the saved energy if it is empty, into parts that sum to
// the total. The savings of a job's energy at the intensity of its own hours are attributed to placement, the rest to
// timing. Jobs with losses are counted separately.
func (s *Comparison) Parts() []Part {
	signal := s.Signal()
	var placed, timed, lost float64
	for i := range s.PerJob {
		j := &s.PerJob[i]
		where, all := j.Energy.Saved, j.Energy.Saved
		if signal != "" {
			if j.Emissions == nil || j.Signal != signal || j.Energy.Used <= 0 {
				continue
			}
			where, all = j.Energy.Saved*j.Emissions.Used/j.Energy.Used, j.Emissions.Saved
		}
		if all < 0 {
			lost += all
			continue
		}
		placed, timed = placed+where, timed+all-where
	}
	parts := []Part{
		{"Placement", placed, "another machine, at the intensity of the hours of the actual run"},
		{"Timing", timed, "other hours, and other sites"},
		{"Losses", lost, "jobs that would have been better with the baseline"},
	}
	if signal == "" {
		return slices.Delete(parts, 1, 2)
	}
	return parts
}
