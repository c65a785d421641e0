package dashboard

import "github.com/kubenergy/kubenergy/internal/report"

// SavedOf converts a comparison of decisions.
func SavedOf(c *report.Comparison) *Saved {
	s := &Saved{
		Against: c.Baseline, Energy: &c.Total.Energy, Jobs: c.Jobs, Held: c.Held, Left: c.Left, Method: c.Method,
		Unit: "kWh", comparison: c,
	}
	signal := c.Signal()
	if signal != "" {
		s.Emissions, s.Unit = new(c.Total.Emissions[signal].Difference), "kgCO2e"
	}
	if s.Currency = report.Most(c.Total.Costs); s.Currency != "" {
		s.Cost = new(c.Total.Costs[s.Currency].Difference)
	}
	var waited float64
	for i := range c.PerJob {
		waited += c.PerJob[i].Held
	}
	if c.Jobs == 0 {
		return s
	}
	if s.MeanWait = new(waited / float64(c.Jobs)); signal == "" && c.Jobs < report.MinJobs {
		s.Few = c.Jobs
	} else if few := c.Total.Emissions[signal].Jobs; signal != "" && few < report.MinJobs {
		s.Few = few
	}
	s.Steps = c.Parts()
	return s
}
