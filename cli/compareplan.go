package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/forecast"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/report"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/sim"
	"github.com/kubenergy/kubenergy/workload"
)

// trialsFormat changes whenever what is kept of a trial does.
const trialsFormat = 1

// study is a comparison file with all that it names found and hashed, and the trials that it asks for.
type study struct {
	file       *comparisonFile
	base       *sim.File
	zones      []*comparedZone
	strategies map[string]sched.Strategy
	fullNames  map[string]string // of strategies, with their where
	cells      []*trialCell
	trials     []*plannedTrial // in the order of zones, starts, seeds and strategies
	inputs     map[string]string
	digest     string // of all keys
	cache      string // folder in which forecasts are kept; "": none
}

// comparedZone is a grid, and its forecasts.
type comparedZone struct {
	zoneFile
	file      *sim.File
	series    *grid.Series
	starts    map[int]time.Time
	hashes    []string // of its files
	forecasts map[string]*issued
}

// plannedTrial is a trial that is to be run.
type plannedTrial struct {
	Key   string       `json:"key"`   // of all that it depends on
	Trial report.Trial `json:"trial"` // what names it
	cell  *trialCell
	day   bool // it is drawn
}

// trialCell is what the trials of a zone, a start and a seed have in common.
type trialCell struct {
	zone  *comparedZone
	index int
	seed  uint64
	order int

	scenario *sharedScenario
}

// plan reads the inputs and lists the trials.
func (f *comparisonFile) plan() (*study, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	c := &study{file: f, strategies: map[string]sched.Strategy{}, fullNames: map[string]string{}, inputs: map[string]string{}}
	for _, name := range f.Strategies {
		s, full, err := f.strategy(name)
		if err != nil {
			return nil, err
		}
		c.strategies[name], c.fullNames[name] = s, full
	}
	for _, name := range f.Forecasts {
		if err := checkForecast(name); err != nil {
			return nil, err
		}
	}
	var err error
	if c.base, err = f.base(); err != nil {
		return nil, err
	}
	for i := range f.Zones {
		if err := c.addZone(&f.Zones[i]); err != nil {
			return nil, fmt.Errorf("zone %s: %w", f.Zones[i].Name, err)
		}
	}
	return c, c.list()
}

func (c *study) addZone(z *zoneFile) error {
	zone := &comparedZone{zoneFile: *z, forecasts: map[string]*issued{}}
	var err error
	if zone.file, err = c.file.in(c.base, z); err != nil {
		return err
	}
	zone.Weather = c.file.path(z.Weather)
	site := &zone.file.Sites[0]
	for _, name := range []string{site.Grid.File, zone.Weather, site.Prices.File} {
		hash, err := c.hash(name)
		if err != nil {
			return err
		}
		zone.hashes = append(zone.hashes, hash)
	}
	scenario, err := zone.file.Load()
	if err != nil {
		return err
	}
	zone.series = scenario.Sites[0].Carbon.Series
	if zone.starts, err = c.file.startTimes(zone.series); err != nil {
		return err
	}
	for _, name := range c.file.Forecasts {
		if name == forecast.WithWeather && z.Weather == "" {
			return fmt.Errorf("the zone has no weather file, and forecast %s looks at it", name)
		}
		if name != perfectForecast {
			zone.forecasts[name] = &issued{zone: zone, model: name}
		}
	}
	c.zones = append(c.zones, zone)
	return nil
}

// hash returns that of a file's content, "" for none.
func (c *study) hash(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("reading an input: %w", err)
	}
	sum := sha256.Sum256(text)
	c.inputs[filepath.Base(name)] = hex.EncodeToString(sum[:])
	return hex.EncodeToString(sum[:]), nil
}

// dependence is all that a trial depends on.
type dependence struct {
	Format        int
	Program       string
	Scenario      sim.File // without names of files
	Workload      string
	Nodes         string
	Files         []string
	Start         time.Time
	Seed          uint64
	Strategy      string // with its where
	Forecast      string
	RestartCost   time.Duration
	Lengths       string
	Interruptible bool
	Day           bool
}

// shared fills in what the trials of a zone depend on alike.
func (c *study) shared(z *comparedZone, program string) (*dependence, error) {
	d := &dependence{Format: trialsFormat, Program: program, Scenario: *z.file, Files: z.hashes, Lengths: c.file.Lengths, Interruptible: c.file.Interruptible}
	var err error
	if d.Workload, err = c.hashOf(z.file.Workload.File); err != nil {
		return nil, err
	}
	site := z.file.Sites[0]
	if d.Nodes = site.Nodes; d.Nodes == "" {
		d.Nodes = z.file.Nodes
	}
	if !slices.Contains(workload.Presets(), d.Nodes) {
		if d.Nodes, err = c.hashOf(d.Nodes); err != nil {
			return nil, err
		}
	}
	site.Grid.File, site.Prices.File, site.Nodes = "", "", ""
	d.Scenario.Sites, d.Scenario.Name, d.Scenario.Nodes, d.Scenario.Workload.File, d.Scenario.Start = []sim.SiteFile{site}, "", "", "", ""
	return d, nil
}

// hashOf hashes a file that a scenario names.
func (c *study) hashOf(name string) (string, error) {
	if c.file.ScenarioFile != "" && !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(c.file.path(c.file.ScenarioFile)), name)
	}
	return c.hash(name)
}

// list makes the trials.
func (c *study) list() error {
	program, err := programHash()
	if err != nil {
		return err
	}
	all := sha256.New()
	for _, z := range c.zones {
		shared, err := c.shared(z, program)
		if err != nil {
			return err
		}
		for _, index := range c.file.indices {
			for _, seed := range c.file.Seeds {
				cell := &trialCell{zone: z, index: index, seed: seed, order: len(c.cells)}
				cell.scenario = &sharedScenario{study: c, cell: cell}
				c.cells = append(c.cells, cell)
				if err := c.listCell(cell, *shared); err != nil {
					return err
				}
			}
		}
	}
	for _, t := range c.trials {
		_, _ = fmt.Fprintln(all, t.Key) // a hash never fails
	}
	c.digest = hex.EncodeToString(all.Sum(nil))
	return nil
}

// listCell makes the trials of a cell. What looks at no forecast is run once, and so is what never suspends a job, whatever
// restarts would cost.
func (c *study) listCell(cell *trialCell, d dependence) error {
	d.Start, d.Seed = cell.zone.starts[cell.index], cell.seed
	first := c.firstQuoted()
	drawn := first >= 0 && cell == c.cells[first]
	for _, name := range c.file.Strategies {
		s := c.strategies[name]
		family, forecasts, costs := report.NonPreemptive, c.file.Forecasts, c.file.restartCosts
		if interrupts(s) {
			family = report.Interruptible
		} else {
			costs = costs[:1]
		}
		if !holds(s) {
			forecasts = []string{""}
		}
		for i, model := range forecasts {
			for k, cost := range costs {
				t := &plannedTrial{cell: cell, day: drawn && i == 0 && k == 0, Trial: report.Trial{
					Zone: cell.zone.Name, Start: d.Start.UTC(), StartIndex: cell.index, Seed: cell.seed, Strategy: name, Forecast: model,
					RestartCost: cost, Family: family,
				}}
				d.Strategy, d.Forecast, d.RestartCost, d.Day = c.fullNames[name], model, cost, t.day
				text, err := json.Marshal(&d)
				if err != nil {
					return fmt.Errorf("hashing a trial: %w", err)
				}
				sum := sha256.Sum256(text)
				t.Key = hex.EncodeToString(sum[:16])
				c.trials = append(c.trials, t)
			}
		}
	}
	return nil
}

// firstQuoted is the first cell whose start is quoted, of those that there are; -1: none. It is drawn.
func (c *study) firstQuoted() int {
	return slices.IndexFunc(c.cells, func(cell *trialCell) bool {
		return c.file.Quote == "" || c.file.Quote == report.QuoteAll || (cell.index%2 == 0) == (c.file.Quote == report.QuoteEven)
	})
}

// interrupts reports whether a strategy may suspend running jobs.
func interrupts(s sched.Strategy) bool {
	i, ok := s.(interface{ Interrupts() bool })
	return ok && i.Interrupts()
}

// holds reports whether a strategy may put off a start, and so looks at forecasts. What does not say may.
func holds(s sched.Strategy) bool {
	h, ok := s.(interface{ Holds() bool })
	return !ok || h.Holds()
}

// programHash is what tells one build of this program from another: the commit, or the program itself where it was built
// from something that is no commit.
func programHash() (string, error) {
	if info, ok := debug.ReadBuildInfo(); ok {
		setting := func(key string) string {
			if i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == key }); i >= 0 {
				return info.Settings[i].Value
			}
			return ""
		}
		if revision := setting("vcs.revision"); revision != "" && setting("vcs.modified") == "false" {
			return revision + " " + setting("GOARCH"), nil // fused multiplications differ between architectures
		}
	}
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
