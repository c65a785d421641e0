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
)

// View is what is known about grids, hardware and policies at one moment. It never changes: news is
// published as another one. The zero View knows nothing.
//
// Consumers take a func() *View and call it once per decision, so that files or watched objects can stand behind it.
type View struct {
	policy.Rules

	sites          []*sched.Site
	siteByName     map[string]*sched.Site
	siteByRegion   map[string]*sched.Site // "eu-central-1" and "aws/eu-central-1"
	siteByZone     map[grid.Zone]*sched.Site
	units          map[string]Units // by site
	defaultSite    *sched.Site      // nil: there is none
	profiles       []*NodeProfile   // by name
	profileByName  map[string]*NodeProfile
	defaultProfile *NodeProfile
	benchmarks     map[string]map[string]energy.Benchmark // by node and class: the hybrid scheduler's knowledge base

	defaults  policy.Defaults
	unsettled bool

	nodes nodeCache
}

// NodeProfile is a power profile and the nodes that have it.
type NodeProfile struct {
	energy.Profile
	Selector   map[string]string // labels of its nodes
	PUE        float64           // 0: that of the site
	Hottest    energy.Celsius    // that its nodes may be and take pods; 0: there is no limit
	Benchmarks map[string]energy.Benchmark
}

// Contents is what a View is made of.
type Contents struct {
	Sites []*sched.Site
	// of nodes that nothing maps to a site; by default the only one, if there is one
	DefaultSite    string
	Unused         map[string]bool          // sites without nodes: no work is held for what happens there
	Units          map[string]Units         // by site
	Regions        map[string]string        // cloud region → name of a site, besides the well-known ones
	Profiles       []*NodeProfile           // a selector of more labels comes before one of fewer
	DefaultProfile string                   // may be empty
	Policies       []*v1alpha1.EnergyPolicy // of any name and validity: what cannot be used is left out
	Namespaces     []policy.NamespaceMarks
	Benchmarks     map[string]map[string]energy.Benchmark // by class and node
	Budgets        []*v1alpha1.EnergyBudget               // those that are used up keep new work from starting
	Defaults       policy.Defaults
	// Unsettled says that policies are not known yet. Nothing is planned until they are.
	Unsettled bool

	// oneOfMany says that more sites are meant than can be used, so that the only one is not the default for that.
	oneOfMany bool
}

// Units are what a GridZone says that the signals of a site are.
type Units struct {
	Marginal bool   // the carbon intensity; otherwise average
	Currency string // of the price; "": not known
	Behind   bool   // the status does not follow the spec yet: the signals may be in the units of an earlier one
}

// nowhere stands for the site of a cluster without a description: no signals, so no opinion on carbon, but a power
// profile alone still tells which node needs the least energy.
var nowhere = &sched.Site{}

// NewView checks and indexes sites and profiles, and keeps both. The first site is the default one; defaultProfile may
// be empty.
func NewView(sites []*sched.Site, profiles []*energy.Profile, defaultProfile string) (*View, error) {
	c := contentsOf(sites, profiles, defaultProfile)
	return c.View()
}

// contentsOf returns the contents that files make. The first site is the default one.
func contentsOf(sites []*sched.Site, profiles []*energy.Profile, defaultProfile string) Contents {
	c := Contents{Sites: sites, DefaultProfile: defaultProfile}
	if len(sites) > 0 {
		c.DefaultSite = sites[0].Name
	}
	for _, p := range profiles {
		c.Profiles = append(c.Profiles, &NodeProfile{Profile: *p})
	}
	return c
}

// View builds a view of everything. The error names all sites and profiles that cannot be used.
func (c *Contents) View() (*View, error) {
	v := &View{defaults: c.Defaults, unsettled: c.Unsettled}
	if err := errors.Join(v.indexSites(c), v.indexProfiles(c)); err != nil {
		return nil, err
	}
	sources := policy.Sources{
		Defaults: c.Defaults, Policies: c.Policies, Namespaces: c.Namespaces, Budgets: c.Budgets,
		Sites: c.waitedFor(), Classes: v.indexBenchmarks(c.Benchmarks),
	}
	v.Rules = sources.Rules()
	return v, nil
}

// waitedFor returns the sites whose signals count for holds.
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
		if v.siteByZone[s.Zone] == nil {
			v.siteByZone[s.Zone] = s
		}
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

// index returns parts of a view by name, and the one that is meant where none is named. The error names all that cannot
// be used.
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
		errs = append(errs, fmt.Errorf("the default %s %q is not among the %ss", kind, preferred, kind))
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

// indexBenchmarks turns a knowledge base around: a node is asked for all of its classes. It returns those.
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

// Settled reports whether the policies are known. Where they are not, nothing new is to be decided.
func (v *View) Settled() bool { return !v.unsettled }

// Sites returns all sites; the default one, if there is one, comes first. The slice and the sites are shared: read
// only.
func (v *View) Sites() []*sched.Site { return v.sites }

// DefaultSite returns the site of what nothing maps to another one, or nil.
func (v *View) DefaultSite() *sched.Site { return v.defaultSite }

// Site returns the site of a name, or nil.
func (v *View) Site(name string) *sched.Site { return v.siteByName[name] }

// Units returns what the signals of a site are.
func (v *View) Units(site string) Units { return v.units[site] }

// Profile returns the power profile of a name, or nil.
func (v *View) Profile(name string) *NodeProfile { return v.profileByName[name] }

// withoutSignals returns sites of the same names and PUE, as if no provider had ever answered.
func withoutSignals(sites []*sched.Site) []*sched.Site {
	bare := make([]*sched.Site, len(sites))
	for i, s := range sites {
		bare[i] = &sched.Site{Name: s.Name, Zone: s.Zone, PUE: s.PUE}
	}
	return bare
}
