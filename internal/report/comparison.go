package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/document"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Sweep compares strategies over zones, starts and seeds. See docs/how-to/comparisons.md for the formulas.
type Sweep struct {
	APIVersion  string      `json:"apiVersion"`
	Kind        string      `json:"kind"`
	Name        string      `json:"name,omitempty"`
	Baseline    string      `json:"baseline"`
	Trials      int         `json:"trials"`
	Zones       []string    `json:"zones"`
	Starts      int         `json:"starts"` // number of starts per zone
	Quoted      string      `json:"quoted"` // the starts that the figures cover: all, even or odd
	Resamples   int         `json:"resamples"`
	Varied      string      `json:"varied"`                // source of the variation in the intervals: starts or seeds
	Seed        uint64      `json:"seed"`                  // seed of the resamples
	CarbonPrice float64     `json:"carbonPrice,omitempty"` // per tonne, for the adjusted costs
	Strategies  []SweepRow  `json:"strategies"`
	Published   []Published `json:"published,omitempty"`
	Notes       []string    `json:"notes"`

	days []Trial // trials with a drawn day
}

// Published is a figure from the literature or from an earlier measurement, with the value found here.
type Published struct {
	Strategy string  `json:"strategy"`
	Forecast string  `json:"forecast,omitempty"`
	Restart  string  `json:"restartCost,omitempty"` // for example 5m; empty for none
	Figure   string  `json:"figure"`                // eta, etaInterruptible, saving or meanWaitHours
	Value    float64 `json:"value"`
	Source   string  `json:"source"`
	Measured float64 `json:"measured"` // the value found here
}

// SweepRow contains the figures of a strategy with a forecast and a restart cost, over all zones and the quoted
// starts.
type SweepRow struct {
	Variant
	Counts // sums over the trials

	Family        string  `json:"family"`
	Trials        int     `json:"trials"`
	BaselineGrams float64 `json:"baselineGramsCO2e"`
	// mean over the trials of the saved fraction of the baseline's emissions
	Saving Interval `json:"saving"`
	// ratio of the sums of savings, each as a fraction of the baseline of its trial
	Eta      *Interval `json:"eta,omitempty"`
	EtaGrams *Interval `json:"etaGrams,omitempty"` // ratio of sums of savings in grams
	// mean η of the zones with possible savings
	EtaMean *Interval `json:"etaMean,omitempty"`
	// η against the optimum that may suspend jobs, for strategies that do not suspend; the value that others
	// publish
	EtaInterruptible *Interval `json:"etaInterruptible,omitempty"`
	// η of the starts that are not quoted and may be used to tune parameters
	EtaOther  *float64 `json:"etaOther,omitempty"`
	WorstZone string   `json:"worstZone,omitempty"` // the zone with the lowest η
	WorstEta  *float64 `json:"worstEta,omitempty"`

	Priced          bool     `json:"priced"`
	AdjustedCost    *float64 `json:"adjustedCost,omitempty"` // CI-adjusted cost; nil without a carbon price
	MeanWaitHours   float64  `json:"meanWaitHours"`
	P95WaitHours    float64  `json:"p95WaitHours"` // mean over the trials
	TurnaroundHours float64  `json:"meanTurnaroundHours"`
	Suspensions     float64  `json:"suspensionsPerJob"`
	LostHours       float64  `json:"lostHours"`

	ByZone []ZoneRow `json:"byZone"`
}

// ZoneRow contains the figures of a row in one zone.
type ZoneRow struct {
	Zone          string    `json:"zone"`
	Grams         float64   `json:"gramsCO2e"`
	BaselineGrams float64   `json:"baselineGramsCO2e"`
	Saving        Interval  `json:"saving"`
	OptimumSaving *float64  `json:"optimumSaving,omitempty"` // saving of the optimum of the strategy's family
	Eta           *Interval `json:"eta,omitempty"`
	MeanWaitHours float64   `json:"meanWaitHours"`
}

// Interval is a value with its 95 % interval. The interval is absent if there are too few samples.
type Interval struct {
	Value float64  `json:"value"`
	Low   *float64 `json:"low,omitempty"`
	High  *float64 `json:"high,omitempty"`
}

// SweepOptions configures how trials are aggregated.
type SweepOptions struct {
	Name        string
	Baseline    string
	Quote       string  // even or odd starts; all starts if "all" or empty
	CarbonPrice float64 // per tonne; zero for none
	Seed        uint64
	Strategies  []string // in display order
	Published   []Published
	Notes       []string // about the inputs
}

// Possible values of Quote. Starts are counted from 0.
const (
	QuoteAll  = "all"
	QuoteEven = "even"
	QuoteOdd  = "odd"
)

// Quotes reports whether the figures include the start with the given index.
func (o *SweepOptions) Quotes(index int) bool {
	return o.Quote != QuoteEven && o.Quote != QuoteOdd || (index%2 == 0) == (o.Quote == QuoteEven)
}

// trialKey identifies the trials that are compared with the same baseline trial.
type trialKey struct {
	zone   string
	index  int
	seed   uint64
	stayOn bool
}

func (t *Trial) key() trialKey { return trialKey{t.Zone, t.StartIndex, t.Seed, t.StayOn} }

// minStarts is the minimum number of starts needed to compute an interval.
const minStarts = 3

// NewSweep aggregates trials. Their order does not matter.
func NewSweep(trials []Trial, o SweepOptions) (*Sweep, error) {
	if len(trials) == 0 {
		return nil, errors.New("no trials to compare")
	}
	trials = slices.Clone(trials)
	slices.SortStableFunc(trials, func(a, b Trial) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.StartIndex, b.StartIndex), cmp.Compare(a.Seed, b.Seed))
	})
	c, err := newSweeper(trials, &o)
	if err != nil {
		return nil, err
	}
	s := &Sweep{
		APIVersion: document.APIVersion, Kind: "ComparisonReport", Name: o.Name, Baseline: o.Baseline,
		Trials: len(trials),
		Zones:  c.zones, Starts: c.starts,
		Quoted: cmp.Or(o.Quote, QuoteAll), Seed: o.Seed, CarbonPrice: o.CarbonPrice,
	}
	c.resample()
	s.Resamples, s.Varied = len(c.drawn), "starts"
	if c.seeds != nil {
		s.Varied = "seeds"
	}
	s.Strategies = sliceutil.Map(c.order(), func(key Variant) SweepRow { return *c.row(key) })
	s.days = slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool { return t.Day == nil })
	s.Notes = append(s.notes(), o.Notes...)
	s.answer(o.Published)
	return s, nil
}

// CheckSweep returns the error that [NewSweep] would return for these trials. It only uses the names of the trials,
// so that it can be called before any trial has run.
func CheckSweep(trials []Trial, o SweepOptions) error {
	_, err := newSweeper(trials, &o)
	return err
}

func newSweeper(trials []Trial, o *SweepOptions) (*sweeper, error) {
	for i := range o.Published {
		if _, err := o.Published[i].check(); err != nil {
			return nil, err
		}
	}
	c := &sweeper{options: o, baselines: map[trialKey][]*Trial{}, rows: map[Variant][]*Trial{}}
	for i := range trials {
		c.add(&trials[i])
	}
	for i := range trials {
		if _, err := c.baseline(&trials[i]); err != nil {
			return nil, err
		}
	}
	if len(c.quoted) == 0 { // all rows have the same starts in all zones
		return nil, fmt.Errorf("no trial has a quoted start: figures only include %s starts", cmp.Or(o.Quote, QuoteAll))
	}
	c.sampleSeeds(trials)
	return c, nil
}

// sampleSeeds makes the intervals show the variation with the seed if there is only one start.
func (c *sweeper) sampleSeeds(trials []Trial) {
	seeds := sliceutil.Map(trials, func(t Trial) uint64 { return t.Seed })
	slices.Sort(seeds)
	if seeds = slices.Compact(seeds); c.starts > 1 || len(seeds) < minStarts {
		return
	}
	c.seeds, c.quoted = seeds, nil
	for i := range seeds {
		c.quoted = append(c.quoted, i)
	}
}

// sample returns the index of the trial's start, or of its seed if the comparison varies seeds.
func (c *sweeper) sample(t *Trial) int {
	if c.seeds == nil {
		return t.StartIndex
	}
	return slices.Index(c.seeds, t.Seed)
}

func (s *Sweep) notes() []string {
	compared := fmt.Sprintf("Savings are compared with %s on the same jobs, zone, start and seed.", s.Baseline)
	if !slices.ContainsFunc(s.Strategies, func(r SweepRow) bool { return r.Strategy != s.Baseline }) {
		compared = fmt.Sprintf("Only the baseline, %s, was run. Add another strategy to see its "+
			"savings.", s.Baseline)
	}
	if s.sleeps() {
		compared += " Rows of machines that stay on are compared with " + s.Baseline +
			" on machines that stay on. If machines sleep, boots and failed boots are included."
	}
	rated := "There is no η, because no optimum is known for these nodes, or no schedule saves emissions. An optimum " +
		"is known for one node with power proportional to the used cores, and for unlimited nodes."
	if slices.ContainsFunc(s.Strategies, func(r SweepRow) bool { return r.Eta != nil }) {
		rated = "η is the saving divided by the saving of the family's clairvoyant optimum. Figures are ratios of " +
			"sums over zones and starts of savings as fractions of the baseline of each trial."
	}
	if slices.ContainsFunc(s.Strategies, func(r SweepRow) bool { return r.Eta != nil && r.Family != NonPreemptive }) {
		rated += " If jobs compete for nodes, the optimum of families that suspend is an upper bound, so η is a " +
			"lower bound."
	}
	notes := []string{
		simulated,
		compared,
		rated,
		"Intervals are 95 %, by bootstrap over " + s.Varied + ", with the same resample in every zone.",
		"Emissions, energy, cost and boots are means over the trials of a strategy. Delay violations are sums.",
	}
	if s.Quoted != QuoteAll {
		notes = append(notes, "Figures only include the starts with "+s.Quoted+" index, counted from 0. "+
			"Parameters may be tuned on the others.")
	}
	return notes
}

// answer looks up the measured values of published figures.
func (s *Sweep) answer(published []Published) {
	for _, p := range published {
		restart, _ := p.check() // NewSweep has returned the error
		i := slices.IndexFunc(s.Strategies, func(r SweepRow) bool {
			return r.Strategy == p.Strategy && r.Forecast == p.Forecast && r.RestartCost == restart
		})
		if i < 0 {
			continue // the comparison does not include this row
		}
		row := &s.Strategies[i]
		if v := publishedFigures[p.Figure](row); v != nil { // nil if emissions cannot be saved or no optimum is known
			p.Measured = *v
			s.Published = append(s.Published, p)
		}
	}
}

// publishedFigures contains the figures of a row that can be published, by name. The functions return nil if a row
// does not have the figure.
var publishedFigures = map[string]func(*SweepRow) *float64{
	"eta":              func(r *SweepRow) *float64 { return r.Eta.value() },
	"etaInterruptible": func(r *SweepRow) *float64 { return r.EtaInterruptible.value() },
	"saving":           func(r *SweepRow) *float64 { return &r.Saving.Value },
	"meanWaitHours":    func(r *SweepRow) *float64 { return &r.MeanWaitHours },
}

func (i *Interval) value() *float64 {
	if i == nil {
		return nil
	}
	return &i.Value
}

// check validates the figure and returns its restart cost.
func (p *Published) check() (restart time.Duration, err error) {
	if publishedFigures[p.Figure] == nil {
		return 0, fmt.Errorf("published figure %q of %s: want %s", p.Figure, p.Strategy,
			strings.Join(slices.Sorted(maps.Keys(publishedFigures)), ", "))
	}
	if p.Restart == "" {
		return 0, nil
	}
	if restart, err = time.ParseDuration(p.Restart); err != nil || restart < 0 {
		return 0, fmt.Errorf("published figure of %s: restartCost is %q: want a duration such as 5m", p.Strategy,
			p.Restart)
	}
	return restart, nil
}

// sweeper aggregates trials.
type sweeper struct {
	options   *SweepOptions
	baselines map[trialKey][]*Trial // for all forecasts and restart costs
	rows      map[Variant][]*Trial
	zones     []string
	starts    int
	seeds     []uint64 // seeds to resample in a comparison with one start; nil to resample starts
	quoted    []int    // indices of starts, or of seeds
	drawn     [][]int  // resamples of quoted
}

func (c *sweeper) add(t *Trial) {
	c.rows[t.Variant] = append(c.rows[t.Variant], t)
	if t.Strategy == c.options.Baseline {
		c.baselines[t.key()] = append(c.baselines[t.key()], t)
	}
	if !slices.Contains(c.zones, t.Zone) {
		c.zones = append(c.zones, t.Zone)
	}
	c.starts = max(c.starts, t.StartIndex+1)
	if c.options.Quotes(t.StartIndex) && !slices.Contains(c.quoted, t.StartIndex) {
		c.quoted = append(c.quoted, t.StartIndex)
		slices.Sort(c.quoted)
	}
}

// baseline returns the trial that t is compared with. If the baseline strategy ran with only one forecast or one
// restart cost, that trial is compared with all others. Otherwise baseline returns the trial with the forecast and
// the restart cost of t.
func (c *sweeper) baseline(t *Trial) (*Trial, error) {
	all := c.baselines[t.key()]
	if len(all) == 0 {
		return nil, fmt.Errorf("no trial of the baseline %s for %s", c.options.Baseline, t.ID())
	}
	forecasts := slices.ContainsFunc(all, func(b *Trial) bool { return b.Forecast != all[0].Forecast })
	restarts := slices.ContainsFunc(all, func(b *Trial) bool { return b.RestartCost != all[0].RestartCost })
	for _, b := range all {
		if (!forecasts || b.Forecast == t.Forecast) && (!restarts || b.RestartCost == t.RestartCost) {
			return b, nil
		}
	}
	return nil, fmt.Errorf("the baseline %s has trials with several forecasts or restart costs, but none with those "+
		"of %s: choose a baseline that neither holds nor suspends, or use only one forecast and one restart cost",
		c.options.Baseline, t.ID())
}

// resample draws starts with replacement. All rows and zones use the same resamples.
func (c *sweeper) resample() {
	if len(c.quoted) < minStarts {
		return
	}
	r := rand.New(rand.NewPCG(c.options.Seed, uint64(len(c.quoted))))
	c.drawn = make([][]int, maxResamples)
	for i := range c.drawn {
		c.drawn[i] = make([]int, len(c.quoted))
		for k := range c.drawn[i] {
			c.drawn[i][k] = c.quoted[r.IntN(len(c.quoted))]
		}
	}
}

// order returns the keys of the rows in display order, which is the given order of strategies, then forecast and
// restart cost.
func (c *sweeper) order() []Variant {
	at := func(name string) int {
		if i := slices.Index(c.options.Strategies, name); i >= 0 {
			return i
		}
		return len(c.options.Strategies)
	}
	return slices.SortedFunc(maps.Keys(c.rows), func(a, b Variant) int {
		if a.StayOn != b.StayOn {
			return map[bool]int{true: -1, false: 1}[a.StayOn]
		}
		return cmp.Or(cmp.Compare(at(a.Strategy), at(b.Strategy)), cmp.Compare(a.Strategy, b.Strategy),
			cmp.Compare(a.Forecast, b.Forecast), cmp.Compare(a.RestartCost, b.RestartCost))
	})
}

// sleeps reports whether machines sleep in some trials. Each of these trials also ran with machines that stay on.
func (s *Sweep) sleeps() bool {
	return slices.ContainsFunc(s.Strategies, func(r SweepRow) bool { return r.StayOn })
}
