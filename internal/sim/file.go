package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/document"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// File is a scenario file: a YAML document with fields that the command line can override.
type File struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Name       string        `json:"name,omitempty"`
	Workload   WorkloadFile  `json:"workload"`
	Nodes      string        `json:"nodes,omitempty"` // file or preset, for a scenario with a single site
	Sites      []SiteFile    `json:"sites,omitempty"`
	Start      string        `json:"start,omitempty"` // defaults to the start of the first grid series
	Strategies []string      `json:"strategies,omitempty"`
	MaxDelay   string        `json:"maxDelay,omitempty"`
	Seed       uint64        `json:"seed,omitempty"`
	Weights    sched.Weights `json:"weights,omitzero"`
	Limits     LimitsFile    `json:"limits,omitzero"`
	MinSaving  float64       `json:"minSaving,omitempty"`
	// MinSavingPerHour and MinSavingGrams are minimum savings of waiting for the strategy "window": per hour, as a
	// fraction of the cost, and in total, in grams of CO2e.
	MinSavingPerHour float64      `json:"minSavingPerHour,omitempty"`
	MinSavingGrams   energy.Grams `json:"minSavingGrams,omitempty"`

	Live LiveFile `json:"live,omitzero"`
	// Benchmarks contains benchmarks by name of a node or power profile. All of them are for the class of work of
	// the jobs. The benchmark of other nodes is derived from their power profiles.
	Benchmarks map[string]energy.Benchmark `json:"benchmarks,omitempty"`
	// EmptyNodes is "sleep" (default) if nodes sleep according to their profiles, or "idle" if they never sleep.
	EmptyNodes string    `json:"emptyNodes,omitempty"`
	Sleep      SleepFile `json:"sleep,omitzero"`

	Interruptible bool `json:"interruptible,omitempty"` // whether jobs may be suspended and resumed
	// RestartCost is the work that an interruptible job repeats at each resume.
	RestartCost string `json:"restartCost,omitempty"`
	Learner     string `json:"learner,omitempty"` // model of run times; defaults to the true run times
	// Power is the model of the power of jobs: "profiles" of nodes (default), or "learnt".
	Power string    `json:"power,omitempty"`
	Queue QueueFile `json:"queue,omitzero"`
	// CarbonPrice is the price of a tonne of CO2e, in the currency of the prices. If it is set, reports include the
	// CI-adjusted cost.
	CarbonPrice float64 `json:"carbonPrice,omitempty"`

	name  string            // path of the file, to which file names are relative; empty if there is none
	flags map[string]string // by field: the flag that overrides it, if any
}

// WorkloadFile references a trace.
type WorkloadFile struct {
	File    string `json:"file"`
	Format  string `json:"format,omitempty"`
	SkipBad bool   `json:"skipBad,omitempty"` // skip invalid rows instead of returning the first error
	// TimeZone is the zone of local times, e.g. Europe/Berlin. If it is empty, local times are errors.
	TimeZone string `json:"timeZone,omitempty"`
	Jobs     int    `json:"jobs,omitempty"` // maximum number of jobs, from the start of the trace; 0 for all
}

// SiteFile describes a site: its grid, and in a scenario with several sites, its nodes.
type SiteFile struct {
	Name   string   `json:"name,omitempty"`
	Zone   string   `json:"zone,omitempty"`
	PUE    float64  `json:"pue,omitempty"`
	Weight int64    `json:"weight,omitempty"` // for "karmada-static"; defaults to 1
	Nodes  string   `json:"nodes,omitempty"`
	Grid   GridFile `json:"grid"`
	Carbon *float64 `json:"carbon,omitempty"` // constant instead of grid, in gCO2e/kWh; requires prices
	Price  *float64 `json:"price,omitempty"`  // constant, per kWh
	Prices GridFile `json:"prices,omitzero"`

	// Forecast is the forecast of the intensity given to strategies; defaults to a perfect one.
	Forecast ForecastFile `json:"forecast,omitzero"`
}

// GridFile references one column of a file of hourly or finer values, or of several consecutive files by a glob
// pattern.
type GridFile struct {
	File   string `json:"file"`
	Column string `json:"column,omitempty"`
	Zone   string `json:"zone,omitempty"`  // of prices, if the file has several zones
	Every  string `json:"every,omitempty"` // step, e.g. 30m; prices are averaged, other values in between are dropped
	Fill   string `json:"fill,omitempty"`  // maximum length of gaps to fill, e.g. 3h

	TimeZone string `json:"timeZone,omitempty"` // of times without an offset, e.g. Europe/Berlin
	Unit     string `json:"unit,omitempty"`     // if the name of the column does not contain it, e.g. per-MWh
	Decimal  string `json:"decimal,omitempty"`  // decimal separator, if the file leaves it open
	Dates    string `json:"dates,omitempty"`    // day-first or month-first, if the file leaves it open
}

// read reads the values of a zone with the options o.
func (f *File) read(g *GridFile, o grid.CSVOptions) (s grid.Signal, zone grid.Zone, notes []string, err error) {
	o.Column, o.Filled, o.AssumedUTC = g.Column, new(int), new(bool)
	if err = o.SetFormat(g.TimeZone, g.Unit, g.Decimal, g.Dates); err != nil {
		return s, "", nil, f.fault("%w", err)
	}
	if g.Every != "" {
		if o.Every, err = time.ParseDuration(g.Every); err != nil || o.Every <= 0 || o.Every > time.Hour {
			return s, "", nil, f.fault("every: %q is not a step: want 30m or 1h", g.Every)
		}
	}
	if err = duration(&o.Fill, f.Called("fill"), g.Fill); err != nil {
		return s, "", nil, err
	}
	path, err := FindFile(f.name, g.File)
	if err != nil {
		return s, "", nil, f.fault("%w", err)
	}
	if f.flags[grid.OptionZone] != "" && !o.Price { // in a file, zone may only be a name
		o.ZoneUnused = new(bool)
	}
	if s, zone, err = grid.ReadFiles(o, path); err != nil {
		return s, "", nil, f.ofGrid(err, o.Price)
	}
	return s, zone, o.Notes(filepath.Base(g.File)), nil
}

// ofGrid adds the field or flag that fixes an error of a grid file to the error.
func (f *File) ofGrid(err error, prices bool) error {
	row, ok := errors.AsType[*grid.RowError](err)
	switch {
	case ok && row.Option == grid.OptionFill:
		return fmt.Errorf("%w; set fill: 3h or --fill 3h to fill gaps of up to 3h", err)
	case prices || !ok:
		return err
	case row.Option != "" && f.name == "" && f.flags != nil:
		return fmt.Errorf("--%s: %w", row.Option, err)
	case row.Option != "":
		return fmt.Errorf("%s: %w", f.Called(row.Option), err)
	}
	return f.ofFlag("grid", err)
}

// LimitsFile contains the limits that all jobs of the scenario wait for with the strategy "threshold".
type LimitsFile struct {
	Carbon     float64  `json:"carbon,omitempty"`     // gCO2e/kWh
	Percentile float64  `json:"percentile,omitempty"` // of the intensity of the next 24 hours, between 0 and 1
	Price      *float64 `json:"price,omitempty"`      // per kWh
}

func (l *LimitsFile) limits() sched.Limits {
	limits := sched.Limits{Carbon: grid.Intensity(l.Carbon), Percentile: l.Percentile}
	if l.Price != nil {
		limits.Price, limits.HasPrice = grid.Price(*l.Price), true
	}
	return limits
}

func (l *LimitsFile) check() error {
	price := *cmp.Or(l.Price, new(float64))
	return cmp.Or(
		want(amount(l.Carbon), "limits.carbon is %v: want gCO2e/kWh, 0 or more", l.Carbon),
		want(l.Percentile >= 0 && l.Percentile < 1, "limits.percentile is %v: want more than 0 and less than 1",
			l.Percentile),
		want(math.Abs(price) <= grid.MaxPrice, "limits.price is %v: want the price of a kWh, at most %d", price,
			grid.MaxPrice),
	)
}

// want returns an error unless ok.
func want(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// amount reports whether v is finite and not negative.
func amount(v float64) bool { return v >= 0 && !math.IsInf(v, 0) }

// Possible values of File.EmptyNodes: the behavior of nodes without jobs.
const (
	EmptyNodesSleep = "sleep" // according to their power profiles
	EmptyNodesIdle  = "idle"  // they always draw idle power
)

// ReadFile reads a scenario file. Unknown fields are errors.
func ReadFile(path string) (*File, error) {
	f := &File{name: path}
	if err := document.Read(path, document.ScenarioKind, f); err != nil {
		return nil, err
	}
	return f, nil
}

// site returns the only site of a scenario, and adds one if there is none. Flags such as --zone refer to it.
func (f *File) site() (*SiteFile, error) {
	switch len(f.Sites) {
	case 0:
		f.Sites = []SiteFile{{}}
	case 1:
	default:
		return nil, fmt.Errorf("--grid, --column, --fill, --zone, --price, --forecast and "+
			"--weather apply to one site, but %s has %d: change the file instead", f.name, len(f.Sites))
	}
	return &f.Sites[0], nil
}

// Load reads all files referenced by f. It returns the first error, before the simulation starts.
func (f *File) Load() (*Scenario, error) { return f.LoadContext(context.Background()) }

// LoadContext is like Load with a context, because learning forecasts takes seconds.
func (f *File) LoadContext(ctx context.Context) (*Scenario, error) {
	s := &Scenario{Name: f.Name, CarbonPrice: f.CarbonPrice, Policy: sched.Policy{
		Weights: f.Weights, Seed: f.Seed,
		MinSaving: f.MinSaving, MinSavingPerHour: f.MinSavingPerHour, MinSavingGrams: f.MinSavingGrams,
	}}
	if err := f.check(); err != nil {
		return nil, err
	}
	for i := range f.Sites {
		site, notes, err := f.loadSite(&f.Sites[i])
		if err != nil {
			return nil, err
		}
		s.Sites, s.Notes = append(s.Sites, site), append(s.Notes, notes...)
	}
	for _, load := range [...]func(*Scenario) error{f.loadStart, f.loadNodes, f.loadJobs, f.loadLive, f.loadSleep} {
		if err := load(s); err != nil {
			return nil, err
		}
	}
	if err := f.loadKnowledge(ctx, s); err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, f.fault("%w", err)
	}
	return s, nil
}

// check validates f before other files are read.
func (f *File) check() error {
	if len(f.Sites) == 0 {
		return f.fault("the scenario has no site: specify a grid file")
	}
	names, priced := map[string]bool{}, 0
	for i := range f.Sites {
		site := &f.Sites[i]
		if err := site.check(); err != nil {
			return f.fault("%w", err)
		}
		switch {
		case len(f.Sites) > 1 && site.Name == "":
			return f.fault("site number %d has no name", i+1)
		case names[site.Name]:
			return f.fault("duplicate site %q", site.Name)
		}
		names[site.Name] = true
		if site.Price != nil || site.Prices.File != "" {
			priced++
		}
	}
	return cmp.Or(f.checkPrices(priced), f.checkStrategies(priced), f.checkPolicy())
}

// checkPrices validates the prices; priced is the number of sites with a price.
func (f *File) checkPrices(priced int) error {
	for i := range f.Sites {
		if p := f.Sites[i].Price; p != nil && !(*p >= 0 && *p <= grid.MaxPrice) {
			return fmt.Errorf("%s is %v: want the price of a kWh, 0 or more and at most %d; negative prices require "+
				"a file of prices", f.Called("price"), *p, grid.MaxPrice)
		}
	}
	return cmp.Or(
		f.want(priced == 0 || priced == len(f.Sites),
			"some sites have no price: want a price for all sites or for none"),
		f.want(priced > 0 || !(f.Weights.Price > 0), "price has a weight, but no site has a price"),
		f.want(priced > 0 || f.Limits.Price == nil, "limits.price is set, but no site has a price"),
	)
}

// checkStrategies validates the strategies; priced is the number of sites with a price.
func (f *File) checkStrategies(priced int) error {
	for i, name := range f.Strategies {
		if strategy.When(name) == "price" && priced == 0 {
			return fmt.Errorf("%s: strategy %q requires prices, but no site has any: set price or prices of the site",
				f.Called("strategies"), name)
		}
		if slices.Contains(f.Strategies[:i], name) {
			return fmt.Errorf("%s: duplicate strategy %q", f.Called("strategies"), name)
		}
		if strategy.When(name) == "threshold" && f.Limits == (LimitsFile{}) {
			return fmt.Errorf("%s: strategy %q requires limits, but the scenario has none: add limits "+
				"to its file, e.g. {carbon: 200}", f.Called("strategies"), name)
		}
	}
	return nil
}

func (f *File) checkPolicy() error {
	w, err := f.Weights, f.Limits.check()
	return cmp.Or(
		want(amount(f.CarbonPrice), "%s is %v: want the price of a tonne, 0 or more", f.Called("carbonPrice"),
			f.CarbonPrice),
		want(f.Workload.Jobs >= 0, "%s is %d: want the number of jobs, or 0 for all", f.Called("workload.jobs"),
			f.Workload.Jobs),
		f.want(f.MinSaving >= 0 && f.MinSaving < 1, "minSaving is %v: want 0 or more and less than 1", f.MinSaving),
		f.want(f.MinSavingPerHour >= 0 && f.MinSavingPerHour < 1,
			"minSavingPerHour is %v: want 0 or more and less than 1", f.MinSavingPerHour),
		f.want(amount(float64(f.MinSavingGrams)), "minSavingGrams is %v: want a finite number, 0 or more",
			float64(f.MinSavingGrams)),
		f.want(amount(w.Carbon) && amount(w.Wait) && amount(w.Price),
			"weights are %+v: want finite numbers, and only utilisation may be negative", w),
		f.want(err == nil, "%w", err),
	)
}

// label returns a prefix with the name of a site for errors, if it has one.
func (s *SiteFile) label() string {
	if s.Name == "" {
		return ""
	}
	return fmt.Sprintf("site %q: ", s.Name)
}

func (s *SiteFile) check() error {
	for _, text := range [...]string{s.Name, s.Zone} {
		if text == "false" || text == "true" {
			return fmt.Errorf("name or zone of a site is %s: quote it, because YAML parses an unquoted NO as false",
				text)
		}
	}
	return cmp.Or(
		want(s.PUE == 0 || s.PUE >= 1 && s.PUE <= 10, "%spue is %v: want 1 to 10", s.label(), s.PUE),
		want(s.Weight >= 0, "%sweight is %d: want 1 or more", s.label(), s.Weight),
	)
}

// Called returns the prefix of errors about a field: the flag that overrides it, or the file and the field.
func (f *File) Called(field string) string {
	if flag := f.flags[field]; flag != "" || f.name == "" {
		return cmp.Or(flag, field)
	}
	return f.name + ": " + field
}

// fault returns an error about the scenario with the name of its file, if it has one.
func (f *File) fault(format string, args ...any) error {
	if f.name == "" {
		return fmt.Errorf(format, args...)
	}
	return fmt.Errorf("%s: %w", f.name, fmt.Errorf(format, args...))
}

// want returns an error about the file unless ok.
func (f *File) want(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return f.fault(format, args...)
}

// ofFlag adds the flag that overrides a file to an error about that file.
func (f *File) ofFlag(field string, err error) error {
	if flag := f.flags[field]; flag != "" {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return err
}

// loadSite reads the files of a site. It also returns notes on them.
func (f *File) loadSite(in *SiteFile) (*sched.Site, []string, error) {
	site := &sched.Site{Name: in.Name, PUE: in.PUE, Weight: in.Weight}
	var notes, more []string
	var err error
	switch {
	case in.Price != nil && in.Prices.File != "":
		return nil, nil, f.fault("site %q has both price and prices", in.Name)
	case in.Grid.File != "" && in.Carbon != nil:
		return nil, nil, f.fault("site %q has both grid and carbon", in.Name)
	case in.Carbon != nil && !(*in.Carbon >= 0 && *in.Carbon <= grid.MaxIntensity):
		return nil, nil, f.fault("site %q: carbon is %v: want 0 to %d gCO2e/kWh", in.Name, *in.Carbon,
			grid.MaxIntensity)
	case in.Grid.File == "" && (in.Carbon == nil || in.Prices.File == ""):
		return nil, nil, f.fault("site %q has no grid file: set grid, or prices and a constant intensity such as "+
			"carbon: 400", in.Name)
	}
	if in.Prices.File != "" {
		o := grid.CSVOptions{Zone: grid.Zone(in.Prices.Zone), Price: true}
		if site.Price, site.Zone, notes, err = f.read(&in.Prices, o); err != nil {
			return nil, nil, err
		}
	}
	if in.Carbon != nil {
		site.Zone = cmp.Or(grid.Zone(in.Zone), site.Zone)
		site.Carbon, err = during(site.Price, *in.Carbon)
	} else {
		site.Carbon, site.Zone, more, err = f.read(&in.Grid, grid.CSVOptions{Zone: grid.Zone(in.Zone)})
	}
	if err == nil && in.Price != nil {
		if site.Price, err = during(site.Carbon, *in.Price); err != nil {
			err = f.fault("site %q: price: %w", in.Name, err)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	site.Name = cmp.Or(site.Name, string(site.Zone))
	return site, append(more, notes...), nil
}

// Unused returns notes on settings that affect no decision of the strategies.
func (f *File) Unused() (notes []string) {
	varies := slices.ContainsFunc(f.Sites, func(s SiteFile) bool { return s.Prices.File != "" })
	byPrice := func(name string) bool { return strategy.When(name) == "price" }
	if varies && f.Weights.Price == 0 && f.Limits.Price == nil && !slices.ContainsFunc(f.Strategies, byPrice) {
		notes = append(notes,
			"Decisions do not depend on prices: set weights: {price: 1}, or use the start rule price.")
	}
	if f.Interruptible && !slices.ContainsFunc(f.Strategies, strategy.Interrupts) {
		notes = append(notes,
			"No strategy suspends jobs, so interruptible: true (--interruptible) has no effect: use e.g. +residual.")
	}
	weighed := f.Weights.Wait != 0 || f.MinSavingGrams > 0
	byPower := func(name string) bool {
		s, err := strategy.ByName(name)
		reader, ok := s.(interface{ ReadsLive() bool })
		return err == nil && (ok && reader.ReadsLive() || weighed && strategy.Holds(name))
	}
	if f.Power == powerLearnt && !slices.ContainsFunc(f.Strategies, byPower) {
		notes = append(notes, "No decision depends on the power of jobs, so power: learnt (--power) has no effect: "+
			"use the placement exec, or set weights: {wait: 1} for a start rule such as window.")
	}
	return notes
}

// during returns a constant signal for the time of another one.
func during(s grid.Signal, value float64) (grid.Signal, error) {
	series, err := grid.Constant(s.Series.Start(), s.Series.End().Sub(s.Series.Start()), value)
	return grid.Signal{Series: series}, err
}

func (f *File) loadStart(s *Scenario) error {
	if f.Start == "" {
		s.Start = s.Sites[0].Carbon.Series.Start()
		return nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.Parse(layout, f.Start); err == nil {
			s.Start = t.UTC()
			return nil
		}
	}
	return fmt.Errorf("%s: %q is not a time: want 2022-06-01 or 2022-06-01T12:00:00Z", f.Called("start"), f.Start)
}

func (f *File) loadNodes(s *Scenario) error {
	if f.EmptyNodes != "" && f.EmptyNodes != EmptyNodesSleep && f.EmptyNodes != EmptyNodesIdle {
		return fmt.Errorf("%s: %q: want %s or %s", f.Called("emptyNodes"), f.EmptyNodes, EmptyNodesSleep,
			EmptyNodesIdle)
	}
	for i := range f.Sites {
		source := cmp.Or(f.Sites[i].Nodes, f.Nodes)
		if source == "" {
			return f.fault("the scenario has no nodes: specify a file or one of the presets %s",
				strings.Join(workload.Presets(), ", "))
		}
		// The nodes of a site belong to that site. A common list contains the site of each node.
		own := f.Sites[i].Nodes != ""
		sites := s.Sites
		if own {
			sites = s.Sites[i : i+1]
		}
		if !slices.Contains(workload.Presets(), source) {
			path, err := FindFile(f.name, source)
			if err != nil {
				return f.fault("%w", err)
			}
			source = path
		}
		nodes, err := workload.Nodes(source, f.Seed, sites...)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Called("nodes"), err)
		}
		for _, n := range nodes {
			if own && len(f.Sites) > 1 {
				n.Name = n.Site.Name + "-" + n.Name
			}
			s.Nodes = append(s.Nodes, n)
		}
		if !own {
			break
		}
	}
	if f.EmptyNodes == EmptyNodesIdle {
		s.Nodes = StayAwake(s.Nodes)
	}
	return nil
}

// StayAwake returns a copy of the nodes with power profiles that never sleep.
func StayAwake(nodes []sched.Node) []sched.Node {
	nodes = slices.Clone(nodes)
	awake := map[*energy.Profile]*energy.Profile{}
	for i := range nodes {
		n := &nodes[i]
		if awake[n.Profile] == nil {
			p := *n.Profile
			p.Sleep, p.WakeUp, p.BootSeconds = p.Power(0), 0, 0
			awake[n.Profile] = &p
		}
		n.Profile = awake[n.Profile]
	}
	return nodes
}

func (f *File) loadJobs(s *Scenario) error {
	if f.Workload.File == "" {
		return f.fault("the scenario has no workload: specify a file")
	}
	if err := workload.CheckFormat(f.Workload.Format); err != nil {
		return fmt.Errorf("%s: %w", f.Called("workload.format"), err)
	}
	path, err := FindFile(f.name, f.Workload.File)
	if err != nil {
		return f.fault("%w", err)
	}
	trace, err := workload.LoadWith(path, workload.Options{
		Format: f.Workload.Format, Start: s.Start, Zone: f.Workload.TimeZone, SkipBad: f.Workload.SkipBad,
	})
	if err != nil {
		return f.ofFlag("workload", err)
	}
	s.Jobs, s.Use = trace.Jobs, trace.Use
	for _, line := range trace.LeftOut() {
		s.Notes = append(s.Notes, filepath.Base(f.Workload.File)+": "+line)
	}
	if n, all := f.Workload.Jobs, len(s.Jobs); n > 0 && n < all {
		earlier := func(a, b int) int { return trace.Jobs[a].Submitted.Compare(trace.Jobs[b].Submitted) }
		first := sliceutil.Order(all, earlier)[:n]
		slices.Sort(first) // the order of the rows is significant in some formats
		s.Jobs = sliceutil.Map(first, func(i int) sched.Job { return trace.Jobs[i] })
		if s.Use != nil {
			s.Use = sliceutil.Map(first, func(i int) float64 { return trace.Use[i] })
		}
		s.Notes = append(s.Notes, fmt.Sprintf("%s: simulated the first %d of %d jobs", filepath.Base(f.Workload.File),
			n, all))
	}
	if trace.Dated && f.Start == "" {
		first := slices.MinFunc(s.Jobs, func(a, b sched.Job) int { return a.Submitted.Compare(b.Submitted) })
		s.Start = first.Submitted.Truncate(time.Hour) // instead of months earlier, at the start of the grid file
	}
	limit := time.Duration(0)
	if f.MaxDelay != "" {
		if limit, err = workload.ParseDuration(f.MaxDelay, "6h or 90m"); err != nil {
			return fmt.Errorf("%s: %w", f.Called("maxDelay"), err)
		}
	}
	for i := range s.Jobs {
		s.Jobs[i].Limits = f.Limits.limits()
		delay := &s.Jobs[i].AllowedDelay
		if *delay == workload.NoDelayGiven || f.MaxDelay != "" && *delay > limit {
			*delay = limit
		}
	}
	return nil
}
