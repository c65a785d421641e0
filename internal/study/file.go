package study

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/document"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/spelling"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// Kind is the kind of comparison files.
const Kind = "Comparison"

// File is a comparison file. It consists of a scenario and the axes of the comparison.
type File struct {
	APIVersion    string             `json:"apiVersion"`
	Kind          string             `json:"kind"`
	Name          string             `json:"name,omitempty"`
	Scenario      *sim.File          `json:"scenario,omitempty"`     // at most one site; zones set its grid
	ScenarioFile  string             `json:"scenarioFile,omitempty"` // instead of Scenario
	Zones         []zoneFile         `json:"zones"`
	Starts        startsFile         `json:"starts,omitzero"`
	Seeds         []uint64           `json:"seeds,omitempty"`
	Where         string             `json:"where,omitempty"` // placement for strategies that only have a start rule
	Strategies    []string           `json:"strategies"`
	Baseline      string             `json:"baseline,omitempty"`     // the first strategy by default
	Forecasts     []string           `json:"forecasts,omitempty"`    // perfect by default
	RestartCosts  []string           `json:"restartCosts,omitempty"` // of interruptible jobs; 0s by default
	Lag           string             `json:"lag,omitempty"`          // of forecast models; 0h by default
	Lengths       string             `json:"lengths,omitempty"`      // known (default) or learnt
	Interruptible bool               `json:"interruptible,omitempty"`
	Quote         string             `json:"quote,omitempty"`       // all (default), even or odd starts
	CarbonPrice   float64            `json:"carbonPrice,omitempty"` // per tonne
	BootstrapSeed uint64             `json:"bootstrapSeed,omitempty"`
	Published     []report.Published `json:"published,omitempty"`

	name         string            // file name, to resolve relative names
	flags        map[string]string // by field: the flag that replaced it, if any
	restartCosts []time.Duration
	lag          time.Duration
	indices      []int // of the selected starts
	jobs         int   // replaces jobs of the workload if it is not 0
}

// zoneFile is a grid zone.
type zoneFile struct {
	Name    string       `json:"name"`
	Zone    string       `json:"zone,omitempty"` // column in files with several zones; optional if there is only one
	Grid    sim.GridFile `json:"grid"`
	Weather string       `json:"weather,omitempty"` // for forecasts that use weather
	Prices  sim.GridFile `json:"prices,omitzero"`
	Price   *float64     `json:"price,omitempty"`
	PUE     float64      `json:"pue,omitempty"`
}

// startsFile defines the start times of the trace.
type startsFile struct {
	First string `json:"first,omitempty"` // start of the series by default
	Last  string `json:"last,omitempty"`  // instead of First: duration before the end of the series
	Step  string `json:"step,omitempty"`
	Count int    `json:"count,omitempty"` // 1 by default
}

// Possible values of File.Lengths: the strategies' knowledge of run times.
const (
	lengthsKnown  = "known"
	lengthsLearnt = "learnt"
)

// perfectForecast is the name of the forecast that equals the actual series.
const perfectForecast = "perfect"

// ReadFile reads a comparison file and rejects unknown fields.
func ReadFile(path string) (*File, error) {
	f := &File{name: path}
	if err := document.Read(path, Kind, f); err != nil {
		return nil, err
	}
	return f, nil
}

// Overrides contains the values of command-line flags. Empty fields have no effect.
type Overrides struct {
	Strategies, Zones, Forecasts []string
	Starts, Lag                  string
	Seeds                        []uint
	Jobs                         int
}

// called returns the prefix of errors about a field, which is its flag, or the file and the field.
func (f *File) called(field string) string { return cmp.Or(f.flags[field], f.name+": "+field) }

// fault adds the file name to an error.
func (f *File) fault(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", f.name, err)
}

// Apply applies the overrides to the file.
func (f *File) Apply(o *Overrides) error {
	f.flags, f.jobs = map[string]string{}, o.Jobs
	if len(o.Strategies) > 0 {
		if f.Baseline == "" && len(f.Strategies) > 0 {
			f.Baseline = f.Strategies[0]
		}
		f.Strategies, f.flags["strategies"] = o.Strategies, "--strategies"
	}
	if len(o.Forecasts) > 0 {
		f.Forecasts, f.flags["forecasts"] = o.Forecasts, "--forecast"
	}
	if o.Lag != "" {
		f.Lag, f.flags["lag"] = o.Lag, "--lag"
	}
	if len(o.Seeds) > 0 {
		f.Seeds = sliceutil.Map(o.Seeds, func(seed uint) uint64 { return uint64(seed) })
	}
	const maxZones = 12 // longer lists are hard to read
	known := sliceutil.Map(f.Zones, func(z zoneFile) string { return z.Name })
	for _, name := range o.Zones {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--zones: the comparison has no zone %q%s: it has %s", name,
				spelling.DidYouMean(name, known), humanize.Few(maxZones, known))
		}
	}
	if len(o.Zones) > 0 {
		f.Zones = slices.DeleteFunc(f.Zones, func(z zoneFile) bool { return !slices.Contains(o.Zones, z.Name) })
	}
	return f.chooseStarts(o.Starts)
}

// chooseStarts parses the selected starts, for example 0-3,8.
func (f *File) chooseStarts(text string) error {
	f.Starts.Count = cmp.Or(f.Starts.Count, 1)
	if f.Starts.Count < 0 || f.Starts.Count > 100_000 {
		return f.fault(fmt.Errorf("starts.count is %d: want 1 to 100000", f.Starts.Count))
	}
	f.indices = nil
	text = cmp.Or(text, fmt.Sprintf("0-%d", f.Starts.Count-1))
	for part := range strings.SplitSeq(text, ",") {
		low, high, both := strings.Cut(part, "-")
		if !both {
			high = low
		}
		first, err := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		if errors.Join(err, err2) != nil || first < 0 || last < first || last >= f.Starts.Count {
			return fmt.Errorf("--starts: %q: want indices from 0 to %d, for example 0-3,8", part, f.Starts.Count-1)
		}
		for i := first; i <= last; i++ {
			f.indices = append(f.indices, i)
		}
	}
	slices.Sort(f.indices)
	f.indices = slices.Compact(f.indices)
	return nil
}

// check validates the file and sets defaults.
func (f *File) check() error {
	if err := cmp.Or(f.checkFields(), f.checkZones()); err != nil {
		return f.fault(err)
	}
	f.Baseline = cmp.Or(f.Baseline, f.Strategies[0])
	if !slices.Contains(f.Strategies, f.Baseline) {
		f.Strategies = append([]string{f.Baseline}, f.Strategies...)
	}
	if len(f.Forecasts) == 0 {
		f.Forecasts = []string{perfectForecast}
	}
	if len(f.Seeds) == 0 {
		f.Seeds = []uint64{0}
	}
	if err := f.checkLag(); err != nil {
		return err
	}
	return f.fault(cmp.Or(f.checkRestarts(), unique("strategy", f.Strategies), unique("forecast", f.Forecasts),
		unique("seed", f.Seeds)))
}

// checkLag parses the delay after which the intensity of an hour becomes known.
func (f *File) checkLag() (err error) {
	if f.Lag == "" {
		return nil
	}
	if f.lag, err = workload.ParseDuration(f.Lag, "0h to 24h"); err != nil {
		return fmt.Errorf("%s: %w", f.called("lag"), err)
	}
	models := slices.ContainsFunc(f.Forecasts, func(name string) bool { return name != perfectForecast })
	switch {
	case f.lag%time.Hour != 0 || f.lag > 24*time.Hour:
		return fmt.Errorf("%s: %q: want full hours, 0h to 24h", f.called("lag"), f.Lag)
	case f.lag > 0 && !models && (f.flags["lag"] != "" || f.flags["forecasts"] == ""):
		return fmt.Errorf("%s: a perfect forecast has no lag: set models as "+
			"forecasts", f.called("lag"))
	}
	return nil
}

func (f *File) checkZones() error {
	names, priced := map[string]bool{}, 0
	for _, z := range f.Zones {
		if z.Name == "" || names[z.Name] {
			return fmt.Errorf("zone name %q is empty or duplicate", z.Name)
		}
		names[z.Name] = true
		if z.Price != nil || z.Prices.File != "" {
			priced++
		}
	}
	if priced > 0 && priced < len(f.Zones) {
		return errors.New("some zones have no price: want a price for all zones or for none")
	}
	return nil
}

func (f *File) checkFields() error {
	switch {
	case (f.Scenario == nil) == (f.ScenarioFile == ""):
		return errors.New("want either scenario or scenarioFile")
	case len(f.Zones) == 0:
		return errors.New("the comparison has no zones")
	case len(f.Strategies) == 0:
		return errors.New("the comparison has no strategies")
	case !slices.Contains([]string{"", lengthsKnown, lengthsLearnt}, f.Lengths):
		return fmt.Errorf("lengths: %q: want %s or %s", f.Lengths, lengthsKnown, lengthsLearnt)
	case !slices.Contains([]string{"", report.QuoteAll, report.QuoteEven, report.QuoteOdd}, f.Quote):
		return fmt.Errorf("quote: %q: want all, even or odd", f.Quote)
	case !(f.CarbonPrice >= 0) || math.IsInf(f.CarbonPrice, 0):
		return fmt.Errorf("carbonPrice is %v: want the price of a tonne, 0 or more", f.CarbonPrice)
	}
	return nil
}

func unique[T comparable](what string, all []T) error {
	for i, v := range all {
		if slices.Contains(all[:i], v) {
			return fmt.Errorf("duplicate %s %v", what, v)
		}
	}
	return nil
}

func (f *File) checkRestarts() error {
	f.restartCosts = nil
	if len(f.RestartCosts) == 0 {
		f.restartCosts = []time.Duration{0}
	}
	for _, text := range f.RestartCosts {
		d, err := workload.ParseDuration(text, "0s or 5m")
		if err != nil {
			return fmt.Errorf("restartCosts: %w", err)
		}
		f.restartCosts = append(f.restartCosts, d)
	}
	if len(f.restartCosts) > 1 && !f.Interruptible {
		return errors.New("restartCosts differ, but no job is interruptible: set interruptible: true")
	}
	return unique("restart cost", f.restartCosts)
}

// strategy returns the strategy with the given name, and its full name. A start rule is combined with the default
// placement.
func (f *File) strategy(name string) (strategy.Strategy, string, error) {
	wheres, whens := strategy.Names()
	word, _, _ := strings.Cut(name, "/") // the rest is the order of the queue
	if slices.Contains(whens, word) {
		name = cmp.Or(f.Where, "carbon") + "+" + name
	}
	s, err := strategy.ByName(name)
	if known := slices.Concat(whens, wheres); err != nil && !strings.Contains(name, "+") &&
		!strings.HasPrefix(name, "cap(") && !slices.Contains(known, word) {
		err = fmt.Errorf("unknown strategy %q%s: want PLACEMENT, START-RULE or PLACEMENT+START-RULE, with "+
			"PLACEMENT one of %s, and START-RULE one of %s", name, spelling.DidYouMean(word, known), strings.Join(
			wheres, ", "), strings.Join(whens, ", "))
	}
	return s, name, err
}

// base returns the scenario without a grid and with absolute file names. It also returns the names of the jobs and
// nodes files relative to the directory of the comparison.
func (f *File) base() (file *sim.File, jobs, nodes string, err error) {
	scenario, dir := f.Scenario, ""
	if f.ScenarioFile != "" {
		dir = filepath.Dir(f.ScenarioFile)
		path, err := sim.FindFile(f.name, f.ScenarioFile)
		if err != nil {
			return nil, "", "", err
		}
		if scenario, err = sim.ReadFile(path); err != nil {
			return nil, "", "", err
		}
	}
	if err := f.checkBase(scenario); err != nil {
		return nil, "", "", err
	}
	found := *scenario
	found.Workload.Jobs = cmp.Or(f.jobs, found.Workload.Jobs)
	names := []*string{&found.Workload.File, &found.Nodes}
	if found.Sites = slices.Clone(scenario.Sites); len(found.Sites) == 1 {
		names = append(names, &found.Sites[0].Nodes)
	}
	var seen []string
	for _, name := range names {
		if *name != "" && !filepath.IsAbs(*name) && !strings.HasPrefix(*name, "$") &&
			!slices.Contains(workload.Presets(), *name) {
			*name = filepath.Join(dir, *name)
		}
		seen = append(seen, *name)
		if *name, err = f.absolute(*name); err != nil {
			return nil, "", "", err
		}
	}
	return &found, seen[0], cmp.Or(seen[len(seen)-1], seen[1]), nil
}

// checkBase rejects scenario fields that the comparison sets for every trial.
func (f *File) checkBase(file *sim.File) error {
	const instead = "the scenario has %s: want %s in the comparison instead, for every trial"
	restart, err := time.ParseDuration(cmp.Or(file.RestartCost, "0s"))
	switch {
	case len(file.Sites) > 1:
		return fmt.Errorf("the scenario has %d sites: want at most one, for the grid of each zone", len(file.Sites))
	case err != nil || restart != 0:
		return fmt.Errorf(instead, "a restartCost", "restartCosts")
	case file.Learner != "" && file.Learner != lengthsKnown:
		return fmt.Errorf(instead, "a learner", "lengths")
	case file.CarbonPrice != 0:
		return fmt.Errorf(instead, "a carbonPrice", "carbonPrice")
	case file.Interruptible && !f.Interruptible:
		return fmt.Errorf(instead, "interruptible jobs", "interruptible")
	case len(file.Sites) == 1 && file.Sites[0].Forecast != (sim.ForecastFile{}) &&
		file.Sites[0].Forecast != (sim.ForecastFile{Model: perfectForecast}):
		return fmt.Errorf(instead, "a forecast", "forecasts, and weather for each zone")
	}
	return nil
}

// absolute returns the absolute path of a file of the comparison. It returns presets of nodes unchanged.
func (f *File) absolute(name string) (string, error) {
	if name == "" || slices.Contains(workload.Presets(), name) {
		return name, nil
	}
	path, err := sim.FindFile(f.name, name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// in returns the scenario in a zone.
func (f *File) in(base *sim.File, z *zoneFile) (*sim.File, error) {
	file := *base
	site := sim.SiteFile{Nodes: ""}
	if len(base.Sites) == 1 {
		site = base.Sites[0]
	}
	site.Name, site.Zone, site.Grid, site.Price, site.Prices = z.Name, z.Zone, z.Grid, z.Price, z.Prices
	if z.PUE != 0 {
		site.PUE = z.PUE
	}
	var err error
	if site.Grid.File, err = f.absolute(z.Grid.File); err != nil {
		return nil, err
	}
	if site.Prices.File, err = f.absolute(z.Prices.File); err != nil {
		return nil, err
	}
	file.Sites, file.Strategies, file.Name = []sim.SiteFile{site}, nil, f.Name
	return &file, nil
}

// positive parses a positive duration.
func positive(field, text, want string) (time.Duration, error) {
	d, err := workload.ParseDuration(text, want)
	if err == nil && d == 0 {
		err = fmt.Errorf("%q is zero: want %s", text, want)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", field, err)
	}
	return d, nil
}

// startTimes returns the times of the selected starts for a zone's series, and the time of the first start.
func (f *File) startTimes(series *grid.Series) (times map[int]time.Time, first time.Time, err error) {
	first = series.Start()
	var step time.Duration
	switch {
	case f.Starts.First != "" && f.Starts.Last != "":
		return nil, first, errors.New("starts: want first or last, not both")
	case f.Starts.First != "":
		if first, err = humanize.ParseTime("starts.first", f.Starts.First, series.End()); err != nil {
			return nil, first, err
		}
	case f.Starts.Last != "":
		last, err := positive("starts.last", f.Starts.Last, "8760h")
		if err != nil {
			return nil, first, err
		}
		first = series.End().Add(-last)
	}
	if f.Starts.Step != "" {
		if step, err = positive("starts.step", f.Starts.Step, "500h"); err != nil {
			return nil, first, err
		}
	} else if f.Starts.Count > 1 {
		return nil, first, errors.New("starts: several starts require a step")
	}
	times = map[int]time.Time{}
	for _, i := range f.indices {
		times[i] = first.Add(time.Duration(i) * step)
		if !series.Covers(times[i], times[i]) {
			return nil, first, fmt.Errorf("start %d, %s, is outside the series", i, times[i].Format(time.RFC3339))
		}
	}
	return times, first, nil
}
