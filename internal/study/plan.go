package study

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// trialsFormat must be incremented if the stored form of a trial changes.
const trialsFormat = 3

// Study is a comparison file with its inputs and trials.
type Study struct {
	// Doing is called before each long operation other than trials, if it is not nil. It returns a function that is
	// called after the operation.
	Doing func(what string) (end func())

	file       *File
	base       *sim.File
	jobs       string // file name
	nodes      string // file name, or a preset
	program    string // hash of the program
	zones      []*zone
	strategies map[string]strategy.Strategy
	fullNames  map[string]string // full names of strategies, including the placement
	trials     []*Planned        // in the order of zones, starts, seeds and strategies
	inputs     map[string]string
	notes      []string // on the inputs
	digest     string   // hash of all names and keys, and of the aggregation options
}

// zone is a grid zone with its forecasts.
type zone struct {
	zoneFile
	file      *sim.File
	scenario  *sim.Scenario // used for its site and nodes; independent of the start
	series    *grid.Series
	starts    map[int]time.Time                        // selected starts by index
	first     time.Time                                // first start in the file
	hashes    []string                                 // of its files
	forecasts map[string]func() (sim.Foresight, error) // by model, see issueForecasts
	elastic   bool                                     // some jobs are elastic
}

// Planned is a trial to be run.
type Planned struct {
	Key   string       `json:"key"`   // hash of everything that it depends on
	Trial report.Trial `json:"trial"` // name of the trial
	// Tail is the consumption until the end of the longest trial of its cell, which depends on the selected trials.
	Tail *report.Consumption `json:"tail,omitempty"`
	cell *trialCell
	day  bool // the trial is drawn
}

// trialCell contains the common properties of trials with the same zone, start and seed.
type trialCell struct {
	zone  *zone
	index int
	seed  uint64
	order int
	shared
}

// Plan reads the inputs and lists the trials.
func (f *File) Plan() (*Study, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	c := &Study{
		file: f, strategies: map[string]strategy.Strategy{},
		fullNames: map[string]string{}, inputs: map[string]string{},
	}
	for _, name := range f.Strategies {
		s, full, err := f.strategy(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.called("strategies"), err)
		}
		for other, known := range c.fullNames {
			if known == full {
				return nil, f.fault(fmt.Errorf("strategies %s and %s are the same: "+
					"%s", min(other, name), max(other, name), full))
			}
		}
		c.strategies[name], c.fullNames[name] = s, full
	}
	for _, name := range f.Forecasts {
		if err := checkForecast(name); err != nil {
			return nil, fmt.Errorf("%s: %w", f.called("forecasts"), err)
		}
	}
	var err error
	if c.base, c.jobs, c.nodes, err = f.base(); err != nil {
		return nil, f.fault(err)
	}
	if c.program, err = programHash(); err != nil {
		return nil, err
	}
	for i := range f.Zones {
		if err := c.addZone(&f.Zones[i]); err != nil {
			return nil, f.fault(fmt.Errorf("zone %s: %w", f.Zones[i].Name, err))
		}
	}
	c.note()
	if err := c.list(); err != nil {
		return nil, f.fault(err)
	}
	if err := c.digestAll(); err != nil {
		return nil, f.fault(err)
	}
	return c, nil
}

// note adds notes on the comparison file for readers of the report.
func (c *Study) note() {
	f := c.file
	if !f.Interruptible && !c.zones[0].elastic {
		full := sliceutil.Map(f.Strategies, func(name string) string { return c.fullNames[name] })
		c.notes = append(c.notes, report.StartsOnly(full, "interruptible: true")...)
	}
	if f.lag > 0 {
		c.notes = append(c.notes, fmt.Sprintf("Models receive the intensity of an hour %v h after its start (lag).",
			f.lag.Hours()))
	}
}

// digestAll hashes the comparison. It returns an error if the trials cannot be aggregated, before any of them runs.
func (c *Study) digestAll() error {
	options := c.options()
	all := sha256.New()
	enc := json.NewEncoder(all)
	names := make([]report.Trial, len(c.trials))
	for i, t := range c.trials {
		names[i] = t.Trial
		_ = enc.Encode(t) // a hash never fails, and names and options were read from a document
	}
	_ = enc.Encode(&options)
	c.digest = hex.EncodeToString(all.Sum(nil))
	return report.CheckSweep(names, options)
}

// options returns the aggregation options.
func (c *Study) options() report.SweepOptions {
	f := c.file
	return report.SweepOptions{
		Name: f.Name, Baseline: f.Baseline, Quote: f.Quote, CarbonPrice: f.CarbonPrice, Seed: f.BootstrapSeed,
		Strategies: f.Strategies, Published: f.Published, Notes: c.notes,
	}
}

func (c *Study) addZone(spec *zoneFile) error {
	z := &zone{zoneFile: *spec, forecasts: map[string]func() (sim.Foresight, error){}}
	var err error
	if z.file, err = c.file.in(c.base, spec); err != nil {
		return err
	}
	if z.Weather, err = sim.FindFile(c.file.name, spec.Weather); err != nil {
		return err
	}
	for _, name := range []string{spec.Grid.File, spec.Weather, spec.Prices.File} {
		hash, err := c.hash(name)
		if err != nil {
			return err
		}
		z.hashes = append(z.hashes, hash)
	}
	if z.scenario, err = z.file.Load(); err != nil {
		return err
	}
	// Notes on the trace are the same in every zone.
	c.notes = sliceutil.Distinct(append(c.notes, z.scenario.Notes...))
	z.elastic = slices.ContainsFunc(z.scenario.Jobs, func(j sched.Job) bool { return j.Scaling != nil })
	z.scenario.Jobs = nil // each start has its own jobs
	z.series = z.scenario.Sites[0].Carbon.Series
	if z.starts, z.first, err = c.file.startTimes(z.series); err != nil {
		return err
	}
	for _, name := range c.file.Forecasts {
		if name == forecast.WithWeather && spec.Weather == "" {
			return fmt.Errorf("the zone has no weather file, but forecast %s requires one", name)
		}
		if name != perfectForecast {
			z.forecasts[name] = nil
		}
	}
	c.zones = append(c.zones, z)
	return nil
}

// hash returns the hash of a file, or of all files that match a pattern. It returns an empty string without a name.
func (c *Study) hash(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	path, err := sim.FindFile(c.file.name, name)
	if err != nil {
		return "", err
	}
	all := sha256.New()
	for _, file := range grid.Files(path) {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("reading an input: %w", err)
		}
		sum := sha256.Sum256(text)
		c.inputs[calledIn(name, path, file)] = hex.EncodeToString(sum[:])
		all.Write(sum[:])
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

// calledIn returns the name of a file that matches a pattern, in the form in which a document with the given name
// would refer to it.
func calledIn(name, path, file string) string {
	if file == path {
		return filepath.ToSlash(name)
	}
	split := func(path string) []string { return strings.Split(filepath.ToSlash(filepath.Clean(path)), "/") }
	parts, pattern, found := split(name), split(path), split(file) // a pattern has as many directories as its matches
	for i := 1; i <= min(len(parts), len(pattern), len(found)); i++ {
		if as := found[len(found)-i]; as != pattern[len(pattern)-i] {
			parts[len(parts)-i] = as
		}
	}
	return strings.Join(parts, "/")
}

// dependence contains everything that a trial depends on.
type dependence struct {
	report.Variant // the strategy with its placement
	Format         int
	Program        string
	Scenario       sim.File // without file names
	Workload       string
	Nodes          string
	Files          []string
	Start          time.Time
	Seed           uint64
	Since          time.Time // start of the training times of forecast models
	Lag            time.Duration
	Lengths        string
	Interruptible  bool
	Day            bool
}

// shared returns the dependencies that all trials of a zone share.
func (c *Study) shared(z *zone) (*dependence, error) {
	d := &dependence{
		Format: trialsFormat, Program: c.program, Scenario: *z.file, Files: z.hashes, Lengths: c.file.Lengths,
		Interruptible: c.file.Interruptible,
	}
	var err error
	if d.Workload, err = c.hash(c.jobs); err != nil {
		return nil, err
	}
	if d.Nodes = c.nodes; !slices.Contains(workload.Presets(), d.Nodes) {
		if d.Nodes, err = c.hash(d.Nodes); err != nil {
			return nil, err
		}
	}
	site := z.file.Sites[0]
	site.Grid.File, site.Prices.File, site.Nodes = "", "", ""
	d.Scenario.Sites, d.Scenario.Name, d.Scenario.Nodes, d.Scenario.Workload.File,
		d.Scenario.Start = []sim.SiteFile{site}, "", "", "", ""
	return d, nil
}

// list creates the trials. The first cell with a quoted start is drawn.
func (c *Study) list() error {
	options, drawn, cells := c.options(), false, 0
	for _, z := range c.zones {
		shared, err := c.shared(z)
		if err != nil {
			return err
		}
		for _, index := range c.file.indices {
			for _, seed := range c.file.Seeds {
				first := !drawn && options.Quotes(index)
				drawn = drawn || first
				cell := &trialCell{zone: z, index: index, seed: seed, order: cells}
				if err := c.listCell(cell, *shared, first); err != nil {
					return err
				}
				cells++
			}
		}
	}
	return nil
}

// variants returns the family of a strategy and its variants. Strategies that do not use forecasts run only
// once for all forecasts, and strategies that do not suspend jobs run only once for all restart costs. If machines
// sleep, each trial also runs with machines that stay on.
func (c *Study) variants(z *zone, name string) (family string, all []report.Variant) {
	// Strategies that do not implement Holds may hold jobs.
	scaler, scales := c.strategies[name].(interface{ Scales() bool })
	interrupter, interrupts := c.strategies[name].(interface{ Interrupts() bool })
	holder, tells := c.strategies[name].(interface{ Holds() bool })
	family, forecasts, costs := report.NonPreemptive, c.file.Forecasts, c.file.restartCosts
	switch {
	case z.elastic && scales && scaler.Scales():
		family = report.Elastic
	case interrupts && interrupter.Interrupts():
		family = report.Interruptible
	default:
		costs = []time.Duration{0}
	}
	if tells && !holder.Holds() {
		forecasts = []string{""}
	}
	for _, model := range forecasts {
		for _, cost := range costs {
			all = append(all, report.Variant{Strategy: name, Forecast: model, RestartCost: cost})
		}
	}
	if z.scenario.Sleeps() {
		for _, v := range all {
			v.StayOn = true
			all = append(all, v)
		}
	}
	return family, all
}

// listCell creates the trials of a cell.
func (c *Study) listCell(cell *trialCell, d dependence, drawn bool) error {
	d.Start, d.Seed = cell.zone.starts[cell.index], cell.seed
	for _, name := range c.file.Strategies {
		family, variants := c.variants(cell.zone, name)
		for i, v := range variants {
			t := &Planned{cell: cell, day: drawn && i == 0}
			t.Trial.TrialName = report.TrialName{
				Variant: v, Zone: cell.zone.Name, Start: d.Start.UTC(), StartIndex: cell.index, Seed: cell.seed,
				Family: family,
			}
			d.Variant, d.Day, d.Since, d.Lag = v, t.day, time.Time{}, 0
			d.Strategy = c.fullNames[name]
			if _, made := cell.zone.forecasts[v.Forecast]; made {
				d.Since, d.Lag = cell.zone.first.UTC(), c.file.lag
			}
			text, err := json.Marshal(&d)
			if err != nil {
				return fmt.Errorf("hashing a trial: %w", err)
			}
			sum := sha256.Sum256(text)
			t.Key = hex.EncodeToString(sum[:16])
			c.trials = append(c.trials, t)
		}
	}
	return nil
}

// programHash returns a hash that identifies the build of this program.
func programHash() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading this program: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
