package sim

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// Overrides contains the command-line options that override fields of a scenario file. Empty fields are ignored.
// File names are relative to the working directory.
type Overrides struct {
	Workload, Format, Nodes, Grid, Column, Fill, Zone, Start, MaxDelay, EmptyNodes string
	Forecast, Weather, RestartCost, Learner, Power, TimeZone                       string
	Interruptible                                                                  *bool
	SkipBad                                                                        bool
	Jobs                                                                           int
	Strategies                                                                     []string
	Price, CarbonPrice                                                             *float64
	Seed                                                                           *uint64
}

// Override applies o to f.
func (f *File) Override(o Overrides) error {
	if err := f.overrideSite(&o); err != nil {
		return err
	}
	for i := range f.Sites {
		f.Sites[i].Grid.TimeZone = cmp.Or(o.TimeZone, f.Sites[i].Grid.TimeZone)
		f.Sites[i].Prices.TimeZone = cmp.Or(o.TimeZone, f.Sites[i].Prices.TimeZone)
	}
	if o.Workload != "" {
		f.Workload = WorkloadFile{File: fromHere(o.Workload)}
	}
	f.Workload.SkipBad = f.Workload.SkipBad || o.SkipBad
	f.Workload.Jobs = cmp.Or(o.Jobs, f.Workload.Jobs)
	if o.Nodes != "" {
		f.Nodes = fromHere(o.Nodes)
		for i := range f.Sites {
			f.Sites[i].Nodes = ""
		}
	}
	f.flags = map[string]string{}
	for _, given := range [...]struct {
		is          bool
		field, flag string
	}{
		{o.Price != nil, "price", "--price"},
		{o.CarbonPrice != nil, "carbonPrice", "--carbon-price"},
		{o.Workload != "", "workload", "--workload"},
		{o.Nodes != "", "nodes", "--nodes"},
		{o.Grid != "", "grid", "--grid"},
		{o.Column != "", grid.OptionColumn, "--column"},
		{o.Zone != "", grid.OptionZone, "--zone"},
		{o.Fill != "", grid.OptionFill, "--fill"},
		{o.Forecast != "", "forecast.model", "--forecast"},
		{o.Weather != "" || o.Forecast != "", "forecast.weather", "--weather"},
		{len(o.Strategies) > 0, "strategies", "--strategy"},
		{o.Jobs != 0, "workload.jobs", "--jobs"},
	} {
		if given.is {
			f.flags[given.field] = given.flag
		}
	}
	for _, field := range [...]struct {
		to, from   *string
		name, flag string
	}{
		{&f.Workload.Format, &o.Format, "workload.format", "--format"},
		{&f.Workload.TimeZone, &o.TimeZone, "workload.timeZone", "--time-zone"},
		{&f.Start, &o.Start, "start", "--start"},
		{&f.MaxDelay, &o.MaxDelay, "maxDelay", "--max-delay"},
		{&f.EmptyNodes, &o.EmptyNodes, "emptyNodes", "--empty-nodes"},
		{&f.RestartCost, &o.RestartCost, "restartCost", "--restart-cost"},
		{&f.Learner, &o.Learner, "learner", "--learner"},
		{&f.Power, &o.Power, "power", "--power"},
	} {
		if *field.from != "" {
			*field.to = *field.from
			f.flags[field.name] = field.flag // errors refer to the flag
		}
	}
	if len(o.Strategies) > 0 {
		f.Strategies = o.Strategies
	}
	f.CarbonPrice = *cmp.Or(o.CarbonPrice, &f.CarbonPrice)
	f.Seed = *cmp.Or(o.Seed, &f.Seed)
	f.Interruptible = *cmp.Or(o.Interruptible, &f.Interruptible)
	return nil
}

// overrideSite applies the overrides of the grid. There must be at most one site.
func (f *File) overrideSite(o *Overrides) error {
	if cmp.Or(o.Grid, o.Column, o.Fill, o.Zone, o.Forecast, o.Weather) == "" && o.Price == nil {
		return nil
	}
	site, err := f.site()
	if err != nil {
		return err
	}
	if o.Grid != "" {
		site.Grid = GridFile{File: fromHere(o.Grid)}
	}
	site.Grid.Column = cmp.Or(o.Column, site.Grid.Column)
	site.Grid.Fill = cmp.Or(o.Fill, site.Grid.Fill)
	site.Zone = cmp.Or(o.Zone, site.Zone)
	site.Forecast.Model = cmp.Or(o.Forecast, site.Forecast.Model)
	site.Forecast.Weather = cmp.Or(fromHere(o.Weather), site.Forecast.Weather)
	if o.Price != nil {
		site.Price, site.Prices = o.Price, GridFile{}
	}
	return nil
}

// fromHere makes a file name on the command line independent of the location of the scenario file. Names of presets
// and "" are unchanged.
func fromHere(name string) string {
	if name == "" || slices.Contains(workload.Presets(), name) {
		return name
	}
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return name
}
