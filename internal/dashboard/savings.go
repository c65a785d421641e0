package dashboard

import "github.com/kubenergy/kubenergy/internal/report"

// SavedOf converts a comparison of decisions and attributes its savings. The savings of a job's energy at the
// intensity of its own hours are attributed to placement, the rest to timing. Jobs with losses are counted
// separately.
func SavedOf(c *report.Comparison) *Saved {
	s := &Saved{
		Against: c.Baseline, Energy: &c.Total.Energy, Jobs: c.Jobs, Held: c.Held, Left: c.Left, Method: c.Method,
		Unit: "kWh", comparison: c,
	}
	signal := most(c.Total.Emissions)
	if signal != "" {
		s.Emissions, s.Unit = new(c.Total.Emissions[signal].Difference), "kgCO2e"
	}
	if s.Currency = most(c.Total.Costs); s.Currency != "" {
		s.Cost = new(c.Total.Costs[s.Currency].Difference)
	}
	var placed, timed, lost, waited float64
	for _, j := range c.PerJob {
		waited += j.Held
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
	if c.Jobs == 0 {
		return s
	}
	if s.MeanWait = new(waited / float64(c.Jobs)); signal == "" && c.Jobs < report.MinJobs {
		s.Few = c.Jobs
	} else if few := c.Total.Emissions[signal].Jobs; signal != "" && few < report.MinJobs {
		s.Few = few
	}
	s.Steps = []Step{
		{"Placement", placed, "another machine, at the intensity of the hours of the actual run"},
		{"Timing", timed, "other hours, and other sites"},
		{"Losses", lost, "jobs that would have been better with the baseline"},
	}
	if signal == "" {
		s.Steps[1] = s.Steps[2]
		s.Steps = s.Steps[:2]
	}
	return s
}

// most returns the signal or currency that covers the largest number of jobs. Sums of different signals or
// currencies are never added.
func most(totals map[string]report.Totals) (name string) {
	for candidate, t := range totals {
		if best := totals[name]; name == "" || t.Jobs > best.Jobs || t.Jobs == best.Jobs && candidate < name {
			name = candidate
		}
	}
	return name
}
