package report

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Statement presents the contents of the ledger for a period: energy, emissions and costs by the requested
// dimensions, the turnaround of jobs, and the savings of decisions.
type Statement struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	From       time.Time           `json:"from"`
	To         time.Time           `json:"to"`
	AsOf       time.Time           `json:"asOf,omitzero"` // end of the booked data at the time of the query
	Resolution float64             `json:"resolutionSeconds"`
	GroupBy    []string            `json:"groupBy"`
	Filters    map[string][]string `json:"filters,omitempty"`
	Rows       []StatementRow      `json:"rows"`
	Total      StatementRow        `json:"total"`
	Savings    *Comparison         `json:"savings,omitempty"`
	Notes      []string            `json:"notes"`
}

// StatementRow is a row of a statement.
type StatementRow struct {
	Key         []string `json:"key"` // nil for the total, and for the rows beyond a limit
	EnergyKWh   float64  `json:"energyKWh"`
	FacilityKWh float64  `json:"facilityKWh"`      // at the site's meter, including PUE
	GPUKWh      float64  `json:"gpuKWh,omitempty"` // energy of GPUs, included in energyKWh
	// mean over the part of the facility energy with a known intensity
	Intensity       *float64           `json:"gramsPerKWh,omitempty"`
	EmissionsKg     map[string]float64 `json:"emissionsKg,omitempty"` // by signal
	Costs           map[string]float64 `json:"costs,omitempty"`       // by currency
	CPUHours        float64            `json:"cpuHours"`
	EstimatedShare  float64            `json:"estimatedShare"`    // of the energy
	UnchartedShare  float64            `json:"unchartedShare"`    // of the facility energy without an intensity
	UnpricedShare   float64            `json:"unpricedShare"`     // of the facility energy without a price
	Unmeasured      float64            `json:"unmeasuredSeconds"` // sum over nodes
	Jobs            int                `json:"jobs"`              // finished jobs that KubEnergy placed
	TurnaroundHours *float64           `json:"turnaroundHours,omitempty"`
	Saved           *Saved             `json:"saved,omitempty"`
	Quality         energy.Quality     `json:"quality"`
	First           time.Time          `json:"first,omitzero"`
	Last            time.Time          `json:"last,omitzero"`
}

// NewStatement converts a response of the ledger. Evidence and savings may be nil, in which case the statement
// contains no turnarounds or savings.
func NewStatement(a *ledger.Answer, e *Evidence, savings *Comparison) *Statement {
	s := &Statement{
		APIVersion: "kubenergy.io/v1alpha1", Kind: "EnergyReport", From: a.From, To: a.To, AsOf: a.AsOf,
		Resolution: a.Resolution.Seconds(), Savings: savings,
		GroupBy: sliceutil.Map(a.GroupBy, func(d ledger.Dimension) string { return string(d) }),
		Rows:    sliceutil.Map(a.Rows, statementRow), Total: statementRow(a.Total),
	}
	s.Total.Key = nil
	if e != nil {
		s.turnarounds(e)
	}
	if savings != nil {
		s.save(savings)
	}
	s.explain()
	return s
}

func statementRow(r ledger.Row) StatementRow {
	out := StatementRow{
		Key: r.Key, EnergyKWh: kWh(r.Energy()), FacilityKWh: kWh(r.Facility), GPUKWh: kWh(r.GPU),
		CPUHours:       r.CPU.Hours(),
		EstimatedShare: r.EstimatedShare(),
		UnchartedShare: over(float64(r.Uncharted), float64(r.Facility)),
		UnpricedShare:  over(float64(r.Unpriced), float64(r.Facility)),
		Unmeasured:     r.Unmeasured.Seconds(),
		Quality:        r.Quality(), First: r.First, Last: r.Last,
		EmissionsKg: map[string]float64{}, Costs: map[string]float64{},
	}
	for signal, carbon := range r.Emissions {
		out.EmissionsKg[signal] = carbon.Grams().Kg()
	}
	for currency, cost := range r.Costs {
		out.Costs[currency] = cost.Money()
	}
	// If there are several signals, the ledger does not record which part of the energy each applies to.
	if signals := r.Signals(); len(signals) == 1 && r.Facility > r.Uncharted {
		out.Intensity = new(float64(r.Emissions[signals[0]].Grams()) / kWh(r.Facility-r.Uncharted))
	}
	return out
}

// jobKeys returns the key of a job for each supported dimension.
var jobKeys = map[string]func(*job, time.Time) string{
	string(ledger.ByNamespace): func(j *job, _ time.Time) string { return j.key.namespace },
	string(ledger.ByOwner):     func(j *job, _ time.Time) string { return j.key.owner },
	string(ledger.ByStrategy):  func(j *job, _ time.Time) string { return j.strategy },
	string(ledger.ByNode):      func(j *job, _ time.Time) string { return j.places[len(j.places)-1].Node },
	string(ledger.ByHour):      func(_ *job, t time.Time) string { return stamp(t.UTC().Truncate(time.Hour)) },
	string(ledger.ByDay):       func(_ *job, t time.Time) string { return stamp(t.UTC().Truncate(24 * time.Hour)) },
}

// turnarounds adds the mean time from the creation of jobs to their end.
func (s *Statement) turnarounds(e *Evidence) {
	f, rows := e.index(), s.byKey()
	sums := map[*StatementRow]time.Duration{}
	for _, j := range group(e.Records) {
		took, ended, ok := j.turnaround(f)
		if !ok || ended.Before(s.From) {
			continue
		}
		sums[&s.Total] += took
		s.Total.Jobs++
		if row := rows[s.keyOf(j, ended)]; row != nil {
			sums[row] += took
			row.Jobs++
		}
	}
	for row, sum := range sums {
		row.TurnaroundHours = new(sum.Hours() / float64(row.Jobs))
	}
}

// byKey returns the rows by their joined keys, except rows beyond a limit.
func (s *Statement) byKey() map[string]*StatementRow {
	rows := map[string]*StatementRow{}
	for i := range s.Rows {
		if s.Rows[i].Key != nil {
			rows[joinKey(s.Rows[i].Key...)] = &s.Rows[i]
		}
	}
	return rows
}

// keyOf returns the key of the row that a job belongs to, or an empty string if it is unknown.
func (s *Statement) keyOf(j *job, ended time.Time) string {
	key := make([]string, 0, len(s.GroupBy))
	for _, d := range s.GroupBy {
		keyFn := jobKeys[d]
		if keyFn == nil {
			return ""
		}
		key = append(key, keyFn(j, ended))
	}
	return joinKey(key...)
}

// empty reports whether there are no records and no savings.
func (s *Statement) empty() bool {
	return len(s.Rows) == 0 && s.Total.EnergyKWh == 0 && s.Savings == nil
}

func joinKey(key ...string) string { return strings.Join(key, "\x00") + "\x00" }

// savedKeys returns the key of a compared job for each supported dimension. Savings cannot be divided among the hours
// and nodes of a job.
var savedKeys = map[string]func(*JobSavings) string{
	string(ledger.ByNamespace): func(j *JobSavings) string { return j.Namespace },
	string(ledger.ByOwner):     func(j *JobSavings) string { return j.Owner },
	string(ledger.ByStrategy):  func(j *JobSavings) string { return j.Strategy },
}

// save adds the savings to the total, and to the rows if all dimensions are supported.
func (s *Statement) save(c *Comparison) {
	s.Total.Saved = &c.Total
	if slices.ContainsFunc(s.GroupBy, func(d string) bool { return savedKeys[d] == nil }) {
		return
	}
	sums := c.sumsBy(func(j *JobSavings) string {
		return joinKey(sliceutil.Map(s.GroupBy, func(d string) string { return savedKeys[d](j) })...)
	})
	for i := range s.Rows {
		if row := &s.Rows[i]; row.Key != nil {
			row.Saved = sums[joinKey(row.Key...)]
		}
	}
}

// explain adds notes on the meaning of the figures and on missing data.
func (s *Statement) explain() {
	note := func(text string) { s.Notes = append(s.Notes, text) }
	if s.empty() {
		note("No energy is recorded in this period yet.")
		return
	}
	note("Energy refers to the nodes. Intensity, emissions and cost include PUE, as at the site's meter. " +
		"Energy of pods is a derived part of the node's metered energy. est. is the fraction of modelled energy.")
	if slices.ContainsFunc(s.Rows, func(r StatementRow) bool { return slices.Contains(r.Key, "") }) {
		note("– marks missing values, for example of idle nodes, systems and energy of unknown origin, " +
			"which belong to no pod, or of pods without that label.")
	}
	const window = 5 * time.Minute
	if s.Total.First.Sub(s.From) >= window {
		note("The first energy in this report was booked at " + stamp(s.Total.First) + "; earlier energy is not known.")
	}
	if s.Total.UnchartedShare > 0 {
		note(percent(s.Total.UnchartedShare) + " of the energy has no carbon intensity and no emissions in the report.")
	}
	if s.Total.UnpricedShare > 0 && len(s.Total.Costs) > 0 {
		note(percent(s.Total.UnpricedShare) + " of the energy has no price and no cost in the report.")
	}
	if len(s.Total.EmissionsKg) > 1 {
		note("Average and marginal emissions are different quantities and are not added.")
	}
	if s.Total.Unmeasured > 0 {
		note("Meters returned no value for " + humanize.Span(s.Total.Unmeasured) + " of node time.")
	}
	if s.Total.Jobs > 0 {
		note("Turnaround is the time from a job's creation to the end of its energy, for jobs placed by KubEnergy " +
			"that have finished. It is derived.")
	}
	if s.Savings != nil {
		s.Notes = append(s.Notes, s.Savings.notes()...)
		if !slices.ContainsFunc(s.Rows, func(r StatementRow) bool { return r.Saved != nil }) && s.Savings.Jobs > 0 {
			note("Rows only contain savings if grouped by namespace, owner or strategy.")
		}
	}
}

// Sentence returns the savings with their parts, or the reasons why there are none. It must not be called without any
// jobs, compared or not.
func (c *Comparison) Sentence() string {
	if c.Jobs == 0 {
		return "unknown: " + strings.Join(slices.Sorted(maps.Keys(c.Left)), ", ")
	}
	total := 0.
	for _, p := range c.Parts() {
		total += p.Value
	}
	return humanize.Significant(total) + " " + c.split() + ", relative to " + c.Baseline
}

// split returns the unit and the parts of the savings as text.
func (c *Comparison) split() string {
	unit := "kgCO2e"
	if c.Signal() == "" {
		unit = "kWh"
	}
	return unit + ": " + humanize.Listed(sliceutil.Map(c.Parts(), func(p Part) string {
		return humanize.Significant(p.Value) + " " + strings.ToLower(p.Name)
	}), "and")
}

// notes returns notes on the savings.
func (c *Comparison) notes() []string {
	notes := []string{"Savings are relative to " + c.Baseline +
		" on the recorded snapshots, estimated and corrected with measured energy. Negative values are losses. " +
		"The 95 % interval is in brackets. " + humanize.Plural(c.Jobs, "job is", "jobs are") + " compared, " +
		humanize.Plural(c.Held, "was held", "were held") + "."}
	if c.Jobs > 0 {
		notes = append(notes, "Parts of the saved "+c.split()+".")
	}
	for _, why := range slices.Sorted(maps.Keys(c.Left)) {
		notes = append(notes, humanize.Plural(c.Left[why], "job is", "jobs are")+" not compared: "+why+".")
	}
	if c.Forecast > 0 {
		notes = append(notes, "For "+humanize.Count(c.Forecast, "job")+" the baseline is rated with forecasts, "+
			"because no energy was booked at that site and time.")
	}
	if c.NoCarbon > 0 {
		notes = append(notes, "For "+humanize.Count(c.NoCarbon, "job")+" emissions are not compared, because some "+
			"intensity is unknown.")
	}
	if c.Jobs > 0 && c.Jobs < MinJobs {
		notes = append(notes, "An interval requires at least 10 jobs.")
	}
	return notes
}
