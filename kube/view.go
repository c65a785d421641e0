package kube

import (
	"errors"
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/sched"
)

// View is what is known about sites and hardware at one moment. It never changes: whoever learns something publishes
// another one. The zero View knows nothing.
//
// Consumers take a func() *View and call it once per decision, so that files, and later watched objects, can stand
// behind it.
type View struct {
	LoadedAt time.Time

	sites          []*sched.Site
	siteByName     map[string]*sched.Site
	profileByName  map[string]*energy.Profile
	defaultProfile *energy.Profile
}

// nowhere stands for the site of a cluster that nobody described: no signals, so no opinion on carbon, but a power
// profile alone still tells which node needs the least energy.
var nowhere = &sched.Site{}

// NewView checks and indexes sites and profiles, and keeps both. The first site is the default one; defaultProfile may
// be empty.
func NewView(sites []*sched.Site, profiles []*energy.Profile, defaultProfile string, loadedAt time.Time) (*View, error) {
	v := &View{
		LoadedAt:      loadedAt,
		sites:         sites,
		siteByName:    make(map[string]*sched.Site, len(sites)),
		profileByName: make(map[string]*energy.Profile, len(profiles)),
	}
	var errs []error
	for i, s := range sites {
		switch {
		case s.Name == "":
			errs = append(errs, fmt.Errorf("site %d has no name", i))
			continue
		case v.siteByName[s.Name] != nil:
			errs = append(errs, fmt.Errorf("site %q appears twice", s.Name))
		}
		v.siteByName[s.Name] = s
		if err := checkSite(s); err != nil {
			errs = append(errs, fmt.Errorf("site %q: %w", s.Name, err))
		}
	}
	for i, p := range profiles {
		switch {
		case p.Name == "":
			errs = append(errs, fmt.Errorf("profile %d has no name", i))
			continue
		case v.profileByName[p.Name] != nil:
			errs = append(errs, fmt.Errorf("profile %q appears twice", p.Name))
		}
		v.profileByName[p.Name] = p
		if err := p.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if defaultProfile != "" {
		if v.defaultProfile = v.profileByName[defaultProfile]; v.defaultProfile == nil {
			errs = append(errs, fmt.Errorf("the default profile %q is not among the profiles", defaultProfile))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return v, nil
}

// The dirtiest grids emit about 1,200 g/kWh at the margin; what is ten times worse was written in another unit.
const (
	maxIntensity = 10_000 // gCO2e per kWh
	maxPUE       = 10
)

func checkSite(s *sched.Site) error {
	// 0 reads as 1: a file need not say it.
	if s.PUE != 0 && !(s.PUE >= 1 && s.PUE <= maxPUE) {
		return fmt.Errorf("pue is %v: want 1 to %d", s.PUE, maxPUE)
	}
	series := s.Carbon.Series
	if series == nil {
		return nil
	}
	for i := range series.Len() {
		if value := series.Value(i); math.IsNaN(value) || value < 0 || value > maxIntensity {
			return fmt.Errorf("carbon value %d is %v gCO2e/kWh: want 0 to %d", i, value, maxIntensity)
		}
	}
	return nil
}

// Sites returns all sites, the default one first. The slice and the sites are shared: read only.
func (v *View) Sites() []*sched.Site { return v.sites }

// Site returns the site of a name, or nil.
func (v *View) Site(name string) *sched.Site { return v.siteByName[name] }

// Profile returns the power profile of a name, or nil.
func (v *View) Profile(name string) *energy.Profile { return v.profileByName[name] }

// Node returns a node as the core sees it. The profile is the one that the node's label names, else the default; a label
// that names an unknown profile is a mistake, and no profile rather than the wrong one. ok is false where there is none:
// strategies that price energy then have no opinion.
func (v *View) Node(n *v1.Node, capacity, free sched.Resources, jobs int) (node sched.Node, ok bool) {
	profile := v.defaultProfile
	if name := n.Labels[LabelPowerProfile]; name != "" {
		profile = v.profileByName[name]
	}
	return sched.Node{
		Name: n.Name, Site: v.siteOf(n), Labels: n.Labels,
		Capacity: capacity, Free: free, Jobs: jobs, Profile: profile,
	}, profile != nil
}

// siteOf prefers what the owner wrote, then a topology zone of the same name, then the default site.
func (v *View) siteOf(n *v1.Node) *sched.Site {
	for _, key := range [...]string{LabelSite, v1.LabelTopologyZone} {
		if name := n.Labels[key]; name != "" {
			if s := v.siteByName[name]; s != nil {
				return s
			}
		}
	}
	if len(v.sites) > 0 {
		return v.sites[0]
	}
	return nowhere
}

// WithoutSignals returns v with the same sites, names and PUE, but as if no provider had ever answered.
func (v *View) WithoutSignals() *View {
	bare := *v
	bare.sites = make([]*sched.Site, len(v.sites))
	bare.siteByName = make(map[string]*sched.Site, len(v.sites))
	for i, s := range v.sites {
		s := &sched.Site{Name: s.Name, Zone: s.Zone, PUE: s.PUE}
		bare.sites[i] = s
		bare.siteByName[s.Name] = s
	}
	return &bare
}
