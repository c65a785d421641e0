package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// DefaultBaseline is a model of the decisions of the default kube-scheduler.
const DefaultBaseline = "least-allocated"

// Comparison contains the savings of decisions compared with a baseline, which is another strategy that decides on
// the recorded snapshots. See docs/reference/reports.md for the formulas. Negative savings are losses.
type Comparison struct {
	Baseline string `json:"baseline"`
	Method   string `json:"method"`
	Jobs     int    `json:"jobs"` // number of compared jobs
	Held     int    `json:"held"` // number of compared jobs that were held
	// number of compared jobs with a baseline rated by a forecast, because no energy was booked
	Forecast   int                `json:"forecast"`
	NoCarbon   int                `json:"noCarbon"`   // number of compared jobs without a comparison of emissions
	NoCost     int                `json:"noCost"`     // number of compared jobs without a comparison of costs
	Left       map[string]int     `json:"left"`       // jobs that are not compared, by reason
	Total      Saved              `json:"total"`      // sums over the compared jobs
	ByStrategy map[string]*Saved  `json:"byStrategy"` // by JobSavings.Strategy
	PerJob     []JobSavings       `json:"perJob"`     // sorted by namespace and owner
	Quality    energy.Quality     `json:"quality"`
	Ratio      map[string]float64 `json:"measuredByEstimated,omitempty"` // quantiles p2.5, p50 and p97.5

	seed uint64
}

// Saved contains the consumption, the baseline's estimated consumption, and the difference.
type Saved struct {
	Jobs      int               `json:"jobs"`
	Energy    Difference        `json:"energyKWh"`             // at the site's meter
	Emissions map[string]Totals `json:"emissionsKg,omitempty"` // by signal
	Costs     map[string]Totals `json:"costs,omitempty"`       // by currency
	jobs      []*JobSavings     // the jobs in the sum
}

// Totals is a difference with the number of jobs that it covers.
type Totals struct {
	Jobs int `json:"jobs"`
	Difference
}

// Difference is a saving with its 95 % interval.
type Difference struct {
	Used     float64  `json:"used"`
	Baseline float64  `json:"baseline"`
	Saved    float64  `json:"saved"`
	Low      *float64 `json:"low,omitempty"` // nil for fewer than MinJobs jobs
	High     *float64 `json:"high,omitempty"`
}

// JobSavings contains the savings of one job.
type JobSavings struct {
	Namespace string      `json:"namespace"`
	Owner     string      `json:"owner"`
	Strategy  string      `json:"strategy"` // empty if another scheduler placed the job, as in the ledger
	At        time.Time   `json:"at"`       // time of its first placement, or of its release for another scheduler
	Held      float64     `json:"heldSeconds,omitempty"`
	Nodes     []string    `json:"nodes"`
	Instead   []string    `json:"baselineNodes"`
	Ratio     float64     `json:"measuredByEstimated"` // 0 if another scheduler placed the job
	Energy    Difference  `json:"energyKWh"`
	Signal    string      `json:"signal,omitempty"`
	Emissions *Difference `json:"emissionsKg,omitempty"`
	Currency  string      `json:"currency,omitempty"`
	Cost      *Difference `json:"cost,omitempty"`
	Forecast  bool        `json:"forecast,omitempty"` // see Comparison

	carbonRate, priceRate float64 // of the baseline, per kWh
	alike                 bool    // the choice and the baseline have the same energy
	moves                 []move
}

// move is the energy of a node in a time window. It is negative if the baseline would not have consumed the energy
// then.
type move struct {
	sched.Window
	joules float64
}

// Reasons why jobs are not compared.
const (
	leftNoSnapshot = "no snapshot was recorded"
	leftDamaged    = "the snapshot is damaged"
	leftUnmeasured = "no energy was booked yet"
	leftNoEstimate = "no power profile was known"
	leftNoChoice   = "the baseline found no node"
	leftEarlier    = "energy was booked under the same name before the release"
	// the ledger does not record the site of a job
	leftUnknownSite = "another scheduler placed the job in a cluster with several sites"
)

const savingsMethod = "The used energy is the booked energy. The baseline decides again on the recorded snapshot of " +
	"each decision. Its energy is estimated, corrected by the error of the job's own estimate, and " +
	"rated at the booked carbon intensities and prices of that site and time. Intervals are 95 %, of a " +
	"sum by bootstrap over its jobs, and of a job from the errors of the estimates."

// Compare computes the savings compared with a baseline since a time. It counts jobs that cannot be compared.
func Compare(e *Evidence, baseline string, from time.Time, seed uint64) (*Comparison, error) {
	where, _, _ := strings.Cut(baseline, "+")
	b := comparison{found: e.index()}
	for _, name := range [...]struct {
		text string
		into **strategy.Greedy
	}{{baseline, &b.whole}, {where, &b.where}, {DefaultBaseline, &b.stock}} {
		var err error
		if *name.into, err = strategy.New(name.text); err != nil {
			return nil, err
		}
	}
	s := &Comparison{
		Baseline: baseline, Method: savingsMethod, Left: map[string]int{}, Quality: energy.Estimated,
	}
	for _, j := range group(e.Records) {
		before := func(r *ledger.Record) bool { return r.At.Before(from) }
		placed := len(j.places) > 0
		j.places = slices.DeleteFunc(j.places, before)
		if placed && len(j.places) == 0 || !placed && before(j.release) {
			continue
		}
		saved, why := b.compare(j)
		if why != "" {
			s.Left[why]++
			continue
		}
		s.PerJob = append(s.PerJob, *saved)
	}
	s.sum(seed)
	return s, nil
}

// comparison contains the baseline and the indexed evidence.
type comparison struct {
	*found
	whole, where, stock *strategy.Greedy
}

// option contains the energy of one pod with the recorded choice and with the baseline, as estimated at the
// decision.
type option struct {
	chosen, instead  *sched.Node
	energy, baseline float64 // in joules at the site's meter
	ran, window      sched.Window
	held             time.Duration
	forecast         *sched.Site // with the signals that were known at the time of the decision
}

func (b *comparison) compare(j *job) (*JobSavings, string) {
	if j.scaled {
		return nil, leftScaled
	}
	places := j.places
	if len(j.pauses) > 0 {
		places = nil // it has several runs, so only their times are compared
	}
	var options []option
	for _, p := range places {
		o, why := b.option(j, p)
		if why != "" {
			return nil, why
		}
		options = append(options, o)
	}
	row, ok := b.measured(j)
	if !ok || row.Facility <= 0 {
		return nil, leftUnmeasured
	}
	at := j.release
	if len(places) > 0 {
		at = places[0]
	} else {
		o, why := b.timing(j, &row)
		if why != "" {
			return nil, why
		}
		options = append(options, o)
	}
	var chosen, instead float64
	s := &JobSavings{Namespace: j.key.namespace, Owner: j.key.owner, Strategy: j.strategy, At: at.At}
	for _, o := range options {
		chosen += o.energy
		instead += o.baseline
		s.Held = max(s.Held, o.held.Seconds())
		if o.chosen.Name != "" {
			s.Nodes, s.Instead = append(s.Nodes, o.chosen.Name), append(s.Instead, o.instead.Name)
		}
	}
	slices.Sort(s.Nodes)
	slices.Sort(s.Instead)
	s.Nodes, s.Instead = slices.Compact(s.Nodes), slices.Compact(s.Instead)
	if !(chosen > 0) || !(instead >= 0) {
		return nil, leftNoEstimate
	}
	used := kWh(row.Facility)
	if s.Ratio = used * energy.JoulesPerKWh / chosen; len(places) == 0 {
		s.Ratio = 0
	}
	s.alike = chosen == instead
	booked := float64(row.Energy().Joules()) / chosen
	for _, o := range options {
		s.moves = append(s.moves, move{o.ran, -booked * o.energy}, move{o.window, booked * o.baseline})
	}
	s.Energy = DifferenceOf(used, used*instead/chosen)
	s.Signal, s.carbonRate, s.Emissions = b.price(s, &row, options, row.Signals(), row.Uncharted, 1000,
		func(signal string) float64 { return row.Emissions[signal].Grams().Kg() },
		func(site *sched.Site) *grid.Series { return site.Carbon.Series })
	s.Currency, s.priceRate, s.Cost = b.price(s, &row, options, row.Currencies(), row.Unpriced, 1,
		func(currency string) float64 { return row.Costs[currency].Money() },
		func(site *sched.Site) *grid.Series { return site.Price.Series })
	return s, ""
}

// DifferenceOf returns the difference between used and baseline, without an interval.
func DifferenceOf(used, baseline float64) Difference {
	return Difference{Used: used, Baseline: baseline, Saved: baseline - used}
}

// option repeats the decision about one pod.
func (b *comparison) option(j *job, place *ledger.Record) (o option, why string) {
	if len(place.Snapshot) == 0 {
		return o, leftNoSnapshot
	}
	s, err := ReadSnapshot(place)
	if err != nil {
		return o, leftDamaged
	}
	job := &s.Queue[0]
	o.chosen = nodeNamed(s, place.Node)
	if o.chosen == nil {
		return o, leftDamaged
	}
	if o.instead = b.node(s); o.instead == nil {
		return o, leftNoChoice
	}
	if o.chosen.Profile == nil || o.instead.Profile == nil {
		return o, leftNoEstimate
	}
	start, forecasts := s.Now, s
	if hold := j.held(place); hold != nil {
		start = hold.At
		if known, err := ReadSnapshot(hold); err == nil {
			forecasts = known
			if d := b.whole.Plan(known)[0]; d.Held(known.Now) {
				start = d.Window.Start // the baseline would have held the job too
			}
		}
		o.held = place.At.Sub(hold.At)
	} else if d := b.whole.Plan(s)[0]; d.Held(s.Now) {
		start = d.Window.Start
	}
	runtime := o.instead.Runtime(job)
	o.window = sched.Window{Start: start, End: start.Add(runtime)}
	o.ran = sched.Window{Start: s.Now, End: s.Now.Add(o.chosen.Runtime(job))}
	o.energy = float64(s.Estimate(job, o.chosen, o.ran).Energy)
	o.baseline = float64(s.Estimate(job, o.instead, o.window).Energy)
	o.forecast = o.instead.Site
	for _, site := range forecasts.Sites {
		if site.Name == o.instead.Site.Name {
			o.forecast = site
		}
	}
	return o, ""
}

// timing returns the option for a held job that another scheduler placed, or that was paused: the same energy without
// interruption from the beginning of the hold or, if it was only paused, of its first run on. Its node has no name.
func (b *comparison) timing(j *job, row *ledger.Row) (o option, why string) {
	hold := j.held(j.release)
	paused := len(j.pauses) > 0
	ran := paused && (hold == nil || hold.At.After(j.pauses[0].At)) // before the first hold
	if ran {
		hold = j.pauses[0]
	}
	if len(hold.Snapshot) == 0 {
		return o, leftNoSnapshot
	}
	s, err := ReadSnapshot(hold)
	if err != nil {
		return o, leftDamaged
	}
	if len(s.Sites) != 1 {
		return o, leftUnknownSite
	}
	if !paused && row.First.Before(j.release.At.Add(-stillRuns)) {
		return o, leftEarlier
	}
	o.chosen = &sched.Node{Site: s.Sites[0]}
	o.instead, o.forecast = o.chosen, s.Sites[0]
	o.energy = float64(row.Facility.Joules())
	o.baseline = o.energy
	o.ran = sched.Window{Start: row.First, End: row.Last}
	start := hold.At
	if d := b.whole.Plan(s)[0]; d.Held(s.Now) {
		start = d.Window.Start // the baseline would have held the job too
	}
	o.held = j.release.At.Sub(hold.At)
	idle := j.paused()
	if paused {
		if ran {
			start = row.First
		}
		o.held = row.First.Sub(start) + idle
	}
	o.window = sched.Window{Start: start, End: start.Add(max(time.Minute, row.Last.Sub(row.First)-idle))}
	return o, ""
}

// node returns the node that the baseline would have chosen. If the baseline has no preference, it returns the node
// of the default scheduler.
func (b *comparison) node(s *sched.Snapshot) *sched.Node {
	// The job counts as released, because the baseline would place it later even if it held it.
	open := *s
	open.Queue = []sched.Job{s.Queue[0]}
	open.Queue[0].Released = true
	for _, g := range [...]*strategy.Greedy{b.where, b.stock} {
		if d := g.Plan(&open)[0]; d.Node != "" {
			return nodeNamed(s, d.Node)
		}
	}
	return nil
}

// unknownShare is the maximum fraction of a job's energy that may have no intensity or price.
const unknownShare = 0.01

// price compares the emissions or the costs of energy. of contains the signals or currencies of the job. If there
// are several, the ledger does not record which part of the energy each applies to, and price returns nil. used
// returns a value in kg or money, and forecast returns rates per kWh in smaller units. scale is the number of smaller
// units per kg or unit of money. It also returns nil if too much of the energy is unknown.
func (b *comparison) price(s *JobSavings, row *ledger.Row, options []option, of []string, unknown energy.Microjoules,
	scale float64, used func(of string) float64, forecast func(*sched.Site) *grid.Series,
) (name string, perKWh float64, d *Difference) {
	if len(of) != 1 || float64(unknown) > unknownShare*float64(row.Facility) {
		return "", 0, nil
	}
	spent, sameSite, guessed := used(of[0]), true, false
	var instead, value float64
	for i := range options {
		instead += options[i].baseline
		sameSite = sameSite && options[i].chosen.Site.Name == options[0].chosen.Site.Name
	}
	for _, o := range options {
		rate := scale * spent / s.Energy.Used // if choice and baseline run at the same site and time
		if !sameSite || o.held != 0 || o.chosen.Site.Name != o.instead.Site.Name {
			var booked bool
			if rate, booked = bookedMean(b.rates, o.instead.Site.Name, of[0], o.window); !booked {
				series := forecast(o.forecast)
				if series == nil || !series.Covers(o.window.Start, o.window.Start) {
					return "", 0, nil
				}
				rate, guessed = series.Mean(o.window.Start, o.window.End), true
			}
		}
		share := 1 / float64(len(options))
		if instead > 0 {
			share = o.baseline / instead
		}
		value += rate * share
	}
	s.Forecast = s.Forecast || guessed
	perKWh = value / scale
	return of[0], perKWh, new(DifferenceOf(spent, s.Energy.Baseline*perKWh))
}

// Signal returns the signal that covers the largest number of jobs; empty if there is none.
func (s *Comparison) Signal() string { return Most(s.Total.Emissions) }

// Most returns the signal or currency that covers the largest number of jobs. Sums of different signals or
// currencies are never added.
func Most(totals map[string]Totals) (name string) {
	for candidate, t := range totals {
		if best := totals[name]; name == "" || t.Jobs > best.Jobs || t.Jobs == best.Jobs && candidate < name {
			name = candidate
		}
	}
	return name
}

// Since returns when the first of the compared jobs ran, or would have run with the baseline. It returns the zero
// time if there are none.
func (s *Comparison) Since() (first time.Time) {
	for i := range s.PerJob {
		for _, m := range s.PerJob[i].moves {
			if first.IsZero() || m.Start.Before(first) {
				first = m.Start
			}
		}
	}
	return first
}

// sum adds up the jobs and computes all intervals.
func (s *Comparison) sum(seed uint64) {
	s.Jobs, s.seed = len(s.PerJob), seed
	s.spread()
	for i := range s.PerJob {
		j := &s.PerJob[i]
		s.Total.jobs = append(s.Total.jobs, j)
		if j.Held > 0 {
			s.Held++
		}
		if j.Forecast {
			s.Forecast++
		}
		if j.Emissions == nil {
			s.NoCarbon++
		}
		if j.Cost == nil {
			s.NoCost++
		}
	}
	s.Total.total(seed)
	s.ByStrategy = s.sumsBy(func(j *JobSavings) string { return j.Strategy })
}

// sumsBy returns the sums over the jobs by key.
func (s *Comparison) sumsBy(key func(*JobSavings) string) map[string]*Saved {
	sums := map[string]*Saved{}
	for i := range s.PerJob {
		k := key(&s.PerJob[i])
		sums[k] = cmp.Or(sums[k], &Saved{})
		sums[k].jobs = append(sums[k].jobs, &s.PerJob[i])
	}
	for _, one := range sums {
		one.total(s.seed)
	}
	return sums
}

func (t *Saved) total(seed uint64) {
	t.Jobs = len(t.jobs)
	t.Energy = total(sliceutil.Map(t.jobs, func(j *JobSavings) Difference { return j.Energy }), seed)
	totals := func(fn func(*JobSavings) (string, *Difference)) map[string]Totals {
		known := map[string][]Difference{}
		for _, j := range t.jobs {
			if name, d := fn(j); d != nil {
				known[name] = append(known[name], *d)
			}
		}
		sums := map[string]Totals{}
		for name, all := range known {
			sums[name] = Totals{len(all), total(all, seed)}
		}
		return sums
	}
	t.Emissions = totals(func(j *JobSavings) (string, *Difference) { return j.Signal, j.Emissions })
	t.Costs = totals(func(j *JobSavings) (string, *Difference) { return j.Currency, j.Cost })
}

// spread sets the interval of each job. The relative deviation of the ratio of measured to estimated energy from
// its median over all jobs is the assumed error of the estimate on the baseline's node.
func (s *Comparison) spread() {
	ratios := sliceutil.Map(s.PerJob, func(j JobSavings) float64 { return j.Ratio })
	if ratios = slices.DeleteFunc(ratios, func(r float64) bool { return r == 0 }); len(ratios) < MinJobs {
		return
	}
	slices.Sort(ratios)
	low, median, high := between(ratios, lowTail), between(ratios, 0.5), between(ratios, highTail)
	s.Ratio = map[string]float64{"p2.5": low, "p50": median, "p97.5": high}
	if !(median > 0) {
		return
	}
	for i := range s.PerJob {
		j := &s.PerJob[i]
		worst, best := low/median, high/median
		if j.alike {
			worst, best = 1, 1
		}
		j.Energy.within(j.Energy.Baseline*worst, j.Energy.Baseline*best)
		if j.Emissions != nil {
			j.Emissions.within(j.Energy.Baseline*worst*j.carbonRate, j.Energy.Baseline*best*j.carbonRate)
		}
		if j.Cost != nil {
			j.Cost.within(j.Energy.Baseline*worst*j.priceRate, j.Energy.Baseline*best*j.priceRate)
		}
	}
}

// within sets the interval of the saving from that of the baseline. Prices may be negative, so the bounds may be in
// any order.
func (d *Difference) within(a, b float64) {
	d.Low, d.High = new(math.Min(a, b)-d.Used), new(math.Max(a, b)-d.Used)
}

// String returns the difference with its interval, without a unit.
func (d *Difference) String() string {
	if d.Low == nil || d.High == nil {
		return humanize.Significant(d.Saved)
	}
	return fmt.Sprintf("%s (%s to %s)", humanize.Significant(d.Saved), humanize.Significant(*d.Low),
		humanize.Significant(*d.High))
}
