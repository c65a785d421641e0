// Package report presents results of the simulator, of the lab and of the ledger as tables, JSON, CSV, HTML and
// figures. Modelled energy is labelled as such, and savings name their baseline.
package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/floats"

	"github.com/kubenergy/kubenergy/internal/document"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// Report compares runs of one scenario.
type Report struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Scenario   Scenario `json:"scenario"`
	Baseline   string   `json:"baseline"` // the strategy that savings refer to
	Note       string   `json:"note"`     // on the source of the figures
	Runs       []Run    `json:"runs"`
}

// Scenario describes the input of the runs.
type Scenario struct {
	Name       string    `json:"name,omitempty"`
	Workload   string    `json:"workload"`
	Jobs       int       `json:"jobs"`
	MayWait    int       `json:"mayWait"`              // number of jobs that may start later
	FitNowhere int       `json:"fitNowhere,omitempty"` // number of jobs that fit on no node, even if all are empty
	Nodes      int       `json:"nodes"`
	Sites      []Site    `json:"sites"`
	Start      time.Time `json:"start"`
	Accounted  time.Time `json:"accountedUntil"` // same for all runs, including runs that finished earlier
	MaxDelay   string    `json:"maxDelay,omitempty"`
	// the strategies' knowledge of future intensities: "perfect", or a model
	Forecast string `json:"forecast"`
	Learner  string `json:"learner,omitempty"` // predictor of run times; empty if they are known
	Power    string `json:"power,omitempty"`   // model of the power of jobs; empty for the power profiles of nodes
	Seed     uint64 `json:"seed"`

	Notes []string `json:"notes,omitempty"` // on the input files: omitted and added data
}

// Site is a site of the scenario.
type Site struct {
	Name    string         `json:"name"`
	Zone    string         `json:"zone"`
	PUE     float64        `json:"pue"`
	Quality energy.Quality `json:"carbonQuality"`
}

// Run contains the figures of one strategy. Energy is measured at the sites' meters and includes PUE.
type Run struct {
	Strategy    string  `json:"strategy"`
	EmptyNodes  string  `json:"emptyNodes"`      // the state of machines without jobs
	Sleep       *Sleep  `json:"sleep,omitempty"` // nil if machines stay on
	Jobs        int     `json:"jobs"`
	EnergyKWh   float64 `json:"energyKWh"`
	EmissionsKg float64 `json:"emissionsKg"`
	Cost        float64 `json:"cost"`
	// false if no site has a price, in which case the cost of 0 has no meaning
	Priced                bool     `json:"priced"`
	AdjustedCost          *float64 `json:"adjustedCost,omitempty"` // CI-adjusted cost; nil without a carbon price
	MeanWaitSeconds       float64  `json:"meanWaitSeconds"`        // time between submission and finish without running
	P95WaitSeconds        float64  `json:"p95WaitSeconds"`
	MeanCompletionSeconds float64  `json:"meanCompletionSeconds"` // from submission to finish
	// mean ratio of completion time to run time, with a minimum run time of 10 s
	MeanBoundedSlowdown float64 `json:"meanBoundedSlowdown"`
	MakespanSeconds     float64 `json:"makespanSeconds"`
	Utilisation         float64 `json:"utilisation"` // of the CPUs of all nodes over the makespan
	// jobs that were delayed longer than allowed by holds and suspensions, as opposed to a lack of capacity
	DelayViolations int `json:"delayViolations"`
	// jobs that were delayed longer than allowed only by the work repeated after their last suspension; not
	// included in delayViolations
	Tolerated   int `json:"tolerated"`
	Suspensions int `json:"suspensions"`
	// jobs that started later than allowed, for any reason
	LateStarts int `json:"lateStarts"`
	// late starts of jobs that were held although a node had capacity at their submission
	LateHadCapacity int     `json:"lateStartsHadCapacity,omitempty"`
	MissedDeadlines int     `json:"missedDeadlines"` // number of jobs that finished late
	HeldJobs        int     `json:"heldJobs"`
	MeanHoldSeconds float64 `json:"meanHoldSeconds"` // of the held jobs
	// jobs that never ran because they do not fit on any node or there was never enough capacity; not included in
	// the means
	UnplacedJobs       int            `json:"unplacedJobs"`
	Decisions          int            `json:"decisions"`
	DecisionsPerSecond float64        `json:"decisionsPerSecond"` // per second of wall-clock time of the whole run
	Savings            Savings        `json:"savings"`
	Quality            energy.Quality `json:"quality"`
}

// Sleep contains statistics on sleeping machines.
type Sleep struct {
	Boots         int     `json:"boots"`       // of sleeping machines
	FailedBoots   int     `json:"failedBoots"` // included in boots
	BootHours     float64 `json:"bootHours"`   // sum over all machines
	BootEnergyKWh float64 `json:"bootEnergyKWh"`
	AsleepHours   float64 `json:"asleepHours"` // of machines that take time to boot
	MaxCycles     int     `json:"mostCycles"`  // maximum for one machine within 24 hours
}

// Savings are fractions of the baseline's figures. Negative values are losses.
type Savings struct {
	Energy    float64 `json:"energy"`
	Emissions float64 `json:"emissions"`
	Cost      float64 `json:"cost"`
}

// simulated is the note on results of the simulator.
const simulated = "Simulated; energy is modelled from power profiles, not metered."

// New compares results. The first one is the baseline. file is the source of the scenario.
func New(file *sim.File, results []*sim.Result) *Report {
	s := results[0].Scenario
	r := &Report{
		APIVersion: document.APIVersion, Kind: "SimulationReport", Baseline: results[0].Strategy, Note: simulated,
		Scenario: Scenario{
			Name: s.Name, Workload: file.Workload.File, Jobs: len(s.Jobs), Nodes: len(s.Nodes),
			Start: s.Start, Accounted: results[0].Accounted, MaxDelay: file.MaxDelay,
			Forecast: forecastOf(file, s),
			Learner:  file.Learner, Power: file.Power, Seed: s.Policy.Seed,
			Notes: slices.Concat(bootNotes(s), s.Notes, alikeNotes(results)),
		},
	}
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.LatestStart().After(j.Submitted) {
			r.Scenario.MayWait++
		}
	}
	r.Scenario.FitNowhere = fitNowhere(results[0])
	for _, site := range s.Sites {
		r.Scenario.Sites = append(r.Scenario.Sites,
			Site{Name: site.Name, Zone: string(site.Zone), PUE: cmp.Or(site.PUE, 1), Quality: site.Carbon.Quality})
	}
	for _, result := range results {
		run := summarise(result)
		if len(r.Runs) > 0 {
			base := &r.Runs[0]
			run.Savings = Savings{
				Energy:    Saving(base.EnergyKWh, run.EnergyKWh),
				Emissions: Saving(base.EmissionsKg, run.EmissionsKg),
				Cost:      Saving(base.Cost, run.Cost),
			}
		}
		r.Runs = append(r.Runs, run)
	}
	return r
}

// StartsOnly returns a note if no job may be suspended but some of the strategies would suspend jobs. It ignores
// plans, which mainly choose starts. mend is the setting that allows suspensions.
func StartsOnly(strategies []string, mend string) []string {
	names := slices.DeleteFunc(slices.Clone(strategies), func(name string) bool {
		return !strategy.Interrupts(name) || strategy.When(name) == "plan"
	})
	if len(names) == 0 {
		return nil
	}
	return []string{"No job may be suspended, so " + humanize.Listed(names,
		"and") + " only chose starts. To allow suspensions, set " + mend + "."}
}

// alikeNotes returns a note if strategies chose the same node and start for every job, in all of their runs.
func alikeNotes(results []*sim.Result) []string {
	var names, groups []string
	runs := map[string][]*sim.Result{}
	for _, r := range results {
		names, runs[r.Strategy] = append(names, r.Strategy), append(runs[r.Strategy], r)
	}
	alike := func(a, b sim.Outcome) bool {
		return a.Placed.Node == b.Placed.Node && a.Start.Equal(b.Start) && a.Finish.Equal(b.Finish)
	}
	same := func(a, b *sim.Result) bool { return slices.EqualFunc(a.Outcomes, b.Outcomes, alike) }
	for len(names) > 0 {
		first, group := runs[names[0]], names[:1:1]
		names = slices.DeleteFunc(names[1:], func(name string) bool {
			equal := slices.EqualFunc(first, runs[name], same)
			if equal && !slices.Contains(group, name) {
				group = append(group, name)
			}
			return equal
		})
		if len(group) > 1 {
			groups = append(groups, humanize.Listed(group, "and"))
		}
	}
	if groups == nil {
		return nil
	}
	return []string{"These strategies chose the same node and start for every job: " + strings.Join(groups, "; ") + "."}
}

// fitNowhere returns the number of jobs that do not fit on any empty node. No run places them, so one run is
// sufficient.
func fitNowhere(r *sim.Result) (count int) {
	for i := range r.Outcomes {
		// The nodes of the scenario are empty, see [sim.Scenario].
		fits := func(n sched.Node) bool { return r.Scenario.Jobs[i].Fits(&n) }
		if r.Outcomes[i].Placed.Node == "" && !slices.ContainsFunc(r.Scenario.Nodes, fits) {
			count++
		}
	}
	return count
}

// forecastOf returns the source of the forecasts, for each site if they differ.
func forecastOf(file *sim.File, s *sim.Scenario) string {
	var models []string
	for i := range s.Sites {
		model := "perfect"
		if i < len(s.Foresight) && s.Foresight[i] != nil {
			model = "imperfect" // the model is only known from the file
			if i < len(file.Sites) {
				model = cmp.Or(file.Sites[i].Forecast.Model, model)
			}
		}
		models = append(models, model)
	}
	if len(slices.Compact(slices.Clone(models))) == 1 {
		return models[0]
	}
	for i := range models {
		models[i] += " (" + s.Sites[i].Name + ")"
	}
	return strings.Join(models, ", ")
}

// bootNotes returns notes on power profiles with implausibly low boot costs.
func bootNotes(s *sim.Scenario) (notes []string) {
	if !s.Sleeps() {
		return nil
	}
	known := map[*energy.Profile]bool{}
	for i := range s.Nodes {
		p := s.Nodes[i].Profile
		if p == nil || known[p] || !p.Sleeps() {
			continue
		}
		known[p] = true
		switch {
		case p.BootSeconds == 0:
			notes = append(notes, fmt.Sprintf("Profile %s has no bootSeconds, so its machines sleep immediately and "+
				"wake without delay. In a cluster they never sleep.", p.Name))
		case p.Booting() < p.Power(0):
			notes = append(notes, fmt.Sprintf("Profile %s draws %s W during boot, less than idle. wakeUpJoules is the "+
				"energy of the boot in excess of sleepWatts.", p.Name, humanize.Significant(float64(p.Booting()))))
		}
	}
	return notes
}

// adjustedCost returns the CI-adjusted cost, which is the cost of electricity and of emissions at the carbon price
// per tonne, Σ E·(p + c·CI), over nodes and time, as in Hao et al., Joint optimization of operational cost and
// carbon emission in multiple data center micro-grids, Front. Energy Res. 12 (2024), whose operational cost
// includes a carbon tax. It returns nil without a carbon price.
func adjustedCost(cost, grams, carbonPrice float64) *float64 {
	if carbonPrice == 0 {
		return nil
	}
	return new(cost + carbonPrice*grams/1e6)
}

// Saving returns the relative saving of v compared with base, or 0 if base is 0.
func Saving(base, v float64) float64 {
	if base == 0 {
		return 0
	}
	return (base - v) / math.Abs(base) // with negative prices, lower revenue is not a saving
}

func summarise(r *sim.Result) Run {
	s := r.Scenario
	run := Run{
		Strategy: r.Strategy, EmptyNodes: emptyNodes(r), Jobs: len(r.Outcomes),
		EnergyKWh: r.Energy.KWh(), EmissionsKg: r.Carbon.Kg(), Cost: float64(r.Cost),
		MakespanSeconds: r.End.Sub(s.Start).Seconds(), Decisions: r.Decisions, Quality: energy.Estimated,
	}
	run.AdjustedCost = adjustedCost(run.Cost, float64(r.Carbon), s.CarbonPrice)
	if s.Sleeps() {
		run.Sleep = &Sleep{
			r.Sleep.Boots, r.Sleep.FailedBoots, r.Sleep.BootTime.Hours(), r.Sleep.BootEnergy.KWh(),
			r.Sleep.Asleep.Hours(), r.Sleep.MaxCycles,
		}
	}
	run.Priced = slices.ContainsFunc(s.Sites, func(site *sched.Site) bool { return site.Price.Series != nil })
	var waits []float64
	var completion, held, slowdown float64
	for i := range r.Outcomes {
		o, j := &r.Outcomes[i], &s.Jobs[i]
		if o.Held() {
			run.HeldJobs++
			held += o.Released.Sub(j.Submitted).Seconds()
		}
		run.Suspensions += o.Suspensions
		switch late := o.Overdue(j); { // the delay of useful work by decisions beyond the allowed delay
		case late <= s.Slack: // a release may be observed with this delay
		case o.Suspensions > 0 && late-s.Slack <= o.Redone:
			run.Tolerated++ // only by the work repeated after the last suspension
		default:
			run.DelayViolations++
		}
		if o.Placed.Node == "" {
			run.UnplacedJobs++
			continue
		}
		waits = append(waits, o.Idle(j).Seconds())
		if o.Start.After(j.LatestStart().Add(s.Slack)) && j.AllowedDelay > 0 {
			run.LateStarts++
			if o.HadCapacity && o.Held() {
				run.LateHadCapacity++
			}
		}
		if !j.FinishBy.IsZero() && o.Finish.After(j.FinishBy.Add(s.Slack)) {
			run.MissedDeadlines++
		}
		completion += o.Finish.Sub(j.Submitted).Seconds()
		slowdown += sim.BoundedSlowdown(j, o)
	}
	var capacity int64
	for i := range s.Nodes {
		capacity += s.Nodes[i].Capacity.MilliCPU
	}
	run.MeanWaitSeconds = over(floats.Sum(waits), float64(len(waits)))
	run.P95WaitSeconds = Quantile(waits, 0.95)
	run.MeanCompletionSeconds = over(completion, float64(len(waits)))
	run.MeanBoundedSlowdown = over(slowdown, float64(len(waits)))
	run.MeanHoldSeconds = over(held, float64(run.HeldJobs))
	run.Utilisation = over(r.BusyCPU, float64(capacity)/1000*run.MakespanSeconds)
	run.DecisionsPerSecond = over(float64(r.Decisions), r.Elapsed.Seconds())
	return run
}

// over returns a divided by b, or 0 if b is 0, because JSON does not support NaN.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Quantile returns the smallest of the values that is not exceeded by at least the fraction q of all values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
