package kube

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// View is an immutable snapshot of sites, hardware and policies. Each change is published as a new View. The zero
// View contains no data.
//
// Consumers take a func() *View and call it once per decision, so that a View may come from files or watched
// objects.
type View struct {
	policy.Rules

	sites          []*sched.Site
	siteByName     map[string]*sched.Site
	siteByRegion   map[string]*sched.Site // "eu-central-1" and "aws/eu-central-1"
	siteByZone     map[grid.Zone]*sched.Site
	units          map[string]Units // by site
	defaultSite    *sched.Site      // nil if there is none
	profiles       []*NodeProfile   // by name
	profileByName  map[string]*NodeProfile
	defaultProfile *NodeProfile
	// by node and class, from the knowledge base of the hybrid scheduler
	benchmarks map[string]map[string]energy.Benchmark

	defaults  policy.Defaults
	unsettled bool

	nodes nodeCache
}

// NodeProfile is a power profile together with the nodes that it applies to.
type NodeProfile struct {
	energy.Profile
	Selector   map[string]string // labels of the nodes
	PUE        float64           // 0 means the PUE of the site
	Hottest    energy.Celsius    // maximum temperature at which nodes accept pods; 0 means no limit
	Benchmarks map[string]energy.Benchmark
}

// Contents contains the data from which a View is built.
type Contents struct {
	Sites []*sched.Site
	// DefaultSite is the site of nodes that are not mapped to any other site. It defaults to the only site, if
	// there is exactly one.
	DefaultSite    string
	Unused         map[string]bool          // sites without nodes; their signals do not affect holds
	Units          map[string]Units         // by site
	Regions        map[string]string        // cloud region → name of a site, in addition to the well-known regions
	Profiles       []*NodeProfile           // profiles with more labels in their selectors take precedence
	DefaultProfile string                   // may be empty
	Policies       []*v1alpha1.EnergyPolicy // may contain invalid policies, which are ignored
	Namespaces     []policy.NamespaceMarks
	Benchmarks     map[string]map[string]energy.Benchmark // by class and node
	Budgets        []*v1alpha1.EnergyBudget               // used-up budgets prevent new work from starting
	RunTimes       map[string]*policy.RunTimes            // by namespace
	Defaults       policy.Defaults
	// Unsettled indicates that the policies have not been loaded yet. No decisions are made until then.
	Unsettled bool

	// oneOfMany indicates that some sites are not usable, so that a single remaining site is not the default.
	oneOfMany bool
}

// Units describes the signals of a site according to its GridZone.
type Units struct {
	Marginal bool   // whether the carbon intensity is marginal instead of average
	Currency string // currency of the price; empty if unknown
	Behind   bool   // the status does not reflect the current spec yet, so the signals may have other units
}

// nowhere is the site of nodes that are not mapped to any site. It has no signals, so strategies have no opinion on
// carbon, but they can still minimize energy with a power profile.
var nowhere = &sched.Site{}

// NewView validates and indexes sites and profiles, and retains both. The first site is the default. defaultProfile
// may be empty.
func NewView(sites []*sched.Site, profiles []*energy.Profile, defaultProfile string) (*View, error) {
	c := contentsOf(sites, profiles, defaultProfile)
	return c.View()
}

// contentsOf returns the contents for sites and profiles from files. The first site is the default.
func contentsOf(sites []*sched.Site, profiles []*energy.Profile, defaultProfile string) Contents {
	c := Contents{Sites: sites, DefaultProfile: defaultProfile}
	if len(sites) > 0 {
		c.DefaultSite = sites[0].Name
	}
	c.Profiles = sliceutil.Map(profiles, func(p *energy.Profile) *NodeProfile { return &NodeProfile{Profile: *p} })
	return c
}

// View builds a view of the contents. The error lists all invalid sites and profiles.
func (c *Contents) View() (*View, error) {
	v := &View{defaults: c.Defaults, unsettled: c.Unsettled}
	if err := errors.Join(v.indexSites(c), v.indexProfiles(c)); err != nil {
		return nil, err
	}
	sources := policy.Sources{
		Defaults: c.Defaults, Policies: c.Policies, Namespaces: c.Namespaces, Budgets: c.Budgets,
		Sites: c.waitedFor(), Classes: v.indexBenchmarks(c.Benchmarks), RunTimes: c.RunTimes,
	}
	v.Rules = sources.Rules()
	return v, nil
}

// waitedFor returns the sites with signals that affect holds.
func (c *Contents) waitedFor() []*sched.Site {
	used := slices.DeleteFunc(slices.Clone(c.Sites), func(s *sched.Site) bool { return c.Unused[s.Name] })
	if len(used) == 0 {
		return c.Sites // the nodes have not been counted yet
	}
	return used
}

func (v *View) indexSites(c *Contents) (err error) {
	v.sites, v.units = c.Sites, c.Units
	v.siteByRegion, v.siteByZone = map[string]*sched.Site{}, map[grid.Zone]*sched.Site{}
	v.siteByName, v.defaultSite, err = index("site", c.Sites, c.DefaultSite,
		func(s *sched.Site) string { return s.Name },
		func(s *sched.Site) error {
			if err := policy.CheckSite(s); err != nil {
				return fmt.Errorf("site %q: %w", s.Name, err)
			}
			return nil
		})
	for _, s := range c.Sites {
		v.siteByZone[s.Zone] = cmp.Or(v.siteByZone[s.Zone], s)
	}
	if c.DefaultSite == "" && len(c.Sites) == 1 && !c.oneOfMany {
		v.defaultSite = c.Sites[0]
	}
	for region, site := range c.Regions {
		if s := v.siteByName[site]; s != nil {
			v.siteByRegion[region] = s
		}
	}
	return err
}

// index returns a map of all items by name and the default item, if there is one. The error lists all invalid
// items.
func index[T any](kind string, all []*T, preferred string, nameOf func(*T) string, check func(*T) error,
) (byName map[string]*T, usual *T, err error) {
	byName = make(map[string]*T, len(all))
	var errs []error
	for i, one := range all {
		name := nameOf(one)
		switch {
		case name == "":
			errs = append(errs, fmt.Errorf("%s %d has no name", kind, i))
			continue
		case byName[name] != nil:
			errs = append(errs, fmt.Errorf("%s %q appears twice", kind, name))
		}
		byName[name] = one
		errs = append(errs, check(one))
	}
	if usual = byName[preferred]; usual == nil && preferred != "" {
		errs = append(errs, fmt.Errorf("default %s %q is not one of the %ss", kind, preferred, kind))
	}
	return byName, usual, errors.Join(errs...)
}

func (v *View) indexProfiles(c *Contents) (err error) {
	v.profiles = slices.SortedFunc(slices.Values(c.Profiles), func(a, b *NodeProfile) int {
		return cmp.Or(cmp.Compare(len(b.Selector), len(a.Selector)), cmp.Compare(a.Name, b.Name))
	})
	v.profileByName, v.defaultProfile, err = index("profile", c.Profiles, c.DefaultProfile,
		func(p *NodeProfile) string { return p.Name }, func(p *NodeProfile) error { return p.Validate() })
	return err
}

// indexBenchmarks inverts the knowledge base, because benchmarks are looked up by node. It returns the set of all
// classes.
func (v *View) indexBenchmarks(byClass map[string]map[string]energy.Benchmark) (classes map[string]bool) {
	v.benchmarks, classes = map[string]map[string]energy.Benchmark{}, map[string]bool{}
	for class, nodes := range byClass {
		classes[class] = true
		for node, b := range nodes {
			if v.benchmarks[node] == nil {
				v.benchmarks[node] = map[string]energy.Benchmark{}
			}
			v.benchmarks[node][class] = b
		}
	}
	return classes
}

// Settled reports whether the policies have been loaded. If not, no new decisions must be made.
func (v *View) Settled() bool { return !v.unsettled }

// Sites returns all sites, starting with the default site, if there is one. The slice and the sites must not be
// modified.
func (v *View) Sites() []*sched.Site { return v.sites }

// DefaultSite returns the site of nodes that are not mapped to any other site, or nil.
func (v *View) DefaultSite() *sched.Site { return v.defaultSite }

// Site returns the site with the given name, or nil.
func (v *View) Site(name string) *sched.Site { return v.siteByName[name] }

// Units returns the units of a site's signals.
func (v *View) Units(site string) Units { return v.units[site] }

// Profile returns the power profile with the given name, or nil.
func (v *View) Profile(name string) *NodeProfile { return v.profileByName[name] }

// withoutSignals returns copies of the sites that only have a name, zone and PUE.
func withoutSignals(sites []*sched.Site) []*sched.Site {
	return sliceutil.Map(sites, func(s *sched.Site) *sched.Site {
		return &sched.Site{Name: s.Name, Zone: s.Zone, PUE: s.PUE}
	})
}
