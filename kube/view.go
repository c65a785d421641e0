package kube

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/hardware"
	"github.com/kubenergy/kubenergy/sched"
)

// View is what is known about grids, hardware and policies at one moment. It never changes: whoever learns something
// publishes another one. The zero View knows nothing.
//
// Consumers take a func() *View and call it once per decision, so that files or watched objects can stand behind it.
type View struct {
	sites          []*sched.Site
	waitedFor      []*sched.Site // those whose signals count for holds
	siteByName     map[string]*sched.Site
	siteByRegion   map[string]*sched.Site // "eu-central-1" and "aws/eu-central-1"
	siteByZone     map[grid.Zone]*sched.Site
	defaultSite    *sched.Site    // nil: there is none
	profiles       []*NodeProfile // by name
	profileByName  map[string]*NodeProfile
	defaultProfile *NodeProfile
	benchmarks     map[string]map[string]energy.Benchmark // by node and class: the hybrid scheduler's knowledge base

	classes   map[string]bool            // of those benchmarks
	nodePower map[string]*energy.Profile // by node, as somebody said by hand; "": of those of which nothing is known
	catalog   *hardware.Catalog

	policies  map[string]*v1alpha1.EnergyPolicy
	rules     map[string]*rules // of namespaces that say something
	elsewhere *rules            // of all others
	unsettled bool
	closings  map[string][]closing // budgets that hold new work, by namespace

	nodes *nodeCache // nil: nothing is remembered
}

// NodeProfile is a power profile and the nodes that have it.
type NodeProfile struct {
	energy.Profile
	Selector   map[string]string // labels of its nodes
	PUE        float64           // 0: that of the site
	Benchmarks map[string]energy.Benchmark
}

// Contents is what a View is made of.
type Contents struct {
	Sites []*sched.Site
	// of nodes that nothing maps to a site; by default the only one, if there is one
	DefaultSite    string
	Unused         map[string]bool          // sites without nodes: nobody is held for what happens there
	Regions        map[string]string        // cloud region → name of a site, besides the well-known ones
	Profiles       []*NodeProfile           // a selector of more labels comes before one of fewer
	DefaultProfile string                   // may be empty
	Policies       []*v1alpha1.EnergyPolicy // of any name and validity: what cannot be used is left out
	Namespaces     []NamespaceMarks
	Benchmarks     map[string]map[string]energy.Benchmark // by class and node
	Budgets        []*v1alpha1.EnergyBudget               // those that are used up keep new work from starting
	Defaults       Defaults
	// Unsettled says that policies are not known yet. Nothing is planned until they are.
	Unsettled bool

	// oneOfMany says that more sites are meant than can be used, so that the only one is not the default for that.
	oneOfMany bool
}

// nowhere stands for the site of a cluster that nobody described: no signals, so no opinion on carbon, but a power
// profile alone still tells which node needs the least energy.
var nowhere = &sched.Site{}

// NewView checks and indexes sites and profiles, and keeps both. The first site is the default one; defaultProfile may
// be empty.
func NewView(sites []*sched.Site, profiles []*energy.Profile, defaultProfile string) (*View, error) {
	c := Contents{Sites: sites, DefaultSite: firstSite(sites), DefaultProfile: defaultProfile}
	for _, p := range profiles {
		c.Profiles = append(c.Profiles, &NodeProfile{Profile: *p})
	}
	return c.View()
}

// firstSite returns the name of the first of some sites, which is the default one in files.
func firstSite(sites []*sched.Site) string {
	if len(sites) == 0 {
		return ""
	}
	return sites[0].Name
}

// View builds a view of everything. The error names all sites and profiles that cannot be used.
func (c *Contents) View() (*View, error) {
	v := &View{
		nodePower: c.Defaults.NodePower, catalog: c.Defaults.Hardware, unsettled: c.Unsettled,
		closings: closings(c.Budgets),
		nodes:    new(nodeCache),
	}
	if err := errors.Join(v.indexSites(c), v.indexProfiles(c)); err != nil {
		return nil, err
	}
	v.indexBenchmarks(c.Benchmarks)
	v.settlePolicies(c)
	return v, nil
}

func (v *View) indexSites(c *Contents) error {
	v.sites = c.Sites
	v.waitedFor = nil
	for _, s := range c.Sites {
		if !c.Unused[s.Name] {
			v.waitedFor = append(v.waitedFor, s)
		}
	}
	if len(v.waitedFor) == 0 {
		v.waitedFor = c.Sites // nobody has counted nodes yet that are there
	}
	v.siteByName = make(map[string]*sched.Site, len(c.Sites))
	v.siteByRegion, v.siteByZone = map[string]*sched.Site{}, map[grid.Zone]*sched.Site{}
	var errs []error
	for i, s := range c.Sites {
		switch {
		case s.Name == "":
			errs = append(errs, fmt.Errorf("site %d has no name", i))
			continue
		case v.siteByName[s.Name] != nil:
			errs = append(errs, fmt.Errorf("site %q appears twice", s.Name))
		}
		v.siteByName[s.Name] = s
		if v.siteByZone[s.Zone] == nil {
			v.siteByZone[s.Zone] = s
		}
		if err := CheckSite(s); err != nil {
			errs = append(errs, fmt.Errorf("site %q: %w", s.Name, err))
		}
	}
	switch {
	case c.DefaultSite != "":
		if v.defaultSite = v.siteByName[c.DefaultSite]; v.defaultSite == nil {
			errs = append(errs, fmt.Errorf("the default site %q is not among the sites", c.DefaultSite))
		}
	case len(c.Sites) == 1 && !c.oneOfMany:
		v.defaultSite = c.Sites[0]
	}
	for region, site := range c.Regions {
		if s := v.siteByName[site]; s != nil {
			v.siteByRegion[region] = s
		}
	}
	return errors.Join(errs...)
}

func (v *View) indexProfiles(c *Contents) error {
	v.profiles = slices.Clone(c.Profiles)
	v.profileByName = make(map[string]*NodeProfile, len(c.Profiles))
	var errs []error
	for i, p := range c.Profiles {
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
	if c.DefaultProfile != "" {
		if v.defaultProfile = v.profileByName[c.DefaultProfile]; v.defaultProfile == nil {
			errs = append(errs, fmt.Errorf("the default profile %q is not among the profiles", c.DefaultProfile))
		}
	}
	slices.SortFunc(v.profiles, func(a, b *NodeProfile) int {
		return cmp.Or(cmp.Compare(len(b.Selector), len(a.Selector)), cmp.Compare(a.Name, b.Name))
	})
	return errors.Join(errs...)
}

// indexBenchmarks turns a knowledge base around: a node is asked for all of its classes.
func (v *View) indexBenchmarks(byClass map[string]map[string]energy.Benchmark) {
	v.benchmarks, v.classes = map[string]map[string]energy.Benchmark{}, map[string]bool{}
	for class, nodes := range byClass {
		v.classes[class] = true
		for node, b := range nodes {
			if v.benchmarks[node] == nil {
				v.benchmarks[node] = map[string]energy.Benchmark{}
			}
			v.benchmarks[node][class] = b
		}
	}
}

func (v *View) settlePolicies(c *Contents) {
	book := &ruleBook{defaults: c.Defaults, policies: map[string]*v1alpha1.EnergyPolicy{}}
	for _, p := range c.Policies {
		if p.Name == PolicyName && ReadPolicy(p) == nil {
			book.policies[p.Namespace] = p
		}
	}
	v.policies = book.policies
	v.elsewhere = book.of("", nil, nil)
	v.rules = make(map[string]*rules, len(c.Namespaces)+len(book.policies))
	shared := map[namespaceVoice]*rules{}
	for i := range c.Namespaces {
		n := &c.Namespaces[i]
		if ModeOf(n.Labels) == "" && !gardenerNamespace(n.Labels) {
			continue
		}
		voice := voiceOf(n, book.policies[n.Name])
		r := shared[voice]
		if r == nil {
			// what makes no sense there counts as not written; the policy's conditions say so
			own, _ := ReadNamespace(n)
			r = book.of(n.Name, n, own)
			shared[voice] = r
		}
		v.rules[n.Name] = r
	}
	for namespace := range book.policies {
		if v.rules[namespace] == nil {
			v.rules[namespace] = book.of(namespace, nil, nil)
		}
	}
}

// namespaceVoice is what a namespace says. Namespaces that say the same have the same rules: of ten thousand that have
// opted in, most have nothing but the label.
type namespaceVoice struct {
	mode     v1alpha1.Mode
	gardener string // "": it has no policies of Compute Gardener
	policy   *v1alpha1.EnergyPolicy
}

func voiceOf(n *NamespaceMarks, policy *v1alpha1.EnergyPolicy) namespaceVoice {
	voice := namespaceVoice{mode: ModeOf(n.Labels), policy: policy}
	if gardenerNamespace(n.Labels) {
		voice.gardener = fmt.Sprintf("%q", gardenerAnnotations(n.Annotations)) // maps print sorted
	}
	return voice
}

// gardenerAnnotations returns those of Compute Gardener.
func gardenerAnnotations(annotations map[string]string) map[string]string {
	theirs := map[string]string{}
	for key, value := range annotations {
		if strings.HasPrefix(key, gardener) {
			theirs[key] = value
		}
	}
	return theirs
}

// Settled reports whether the policies are known. Where they are not, nothing new is to be decided.
func (v *View) Settled() bool { return !v.unsettled }

// Policies returns the EnergyPolicies that count, by namespace. Read only.
func (v *View) Policies() map[string]*v1alpha1.EnergyPolicy { return v.policies }

// Mode returns the mode that holds in a namespace, and whether it has opted in.
func (v *View) Mode(namespace string) (mode v1alpha1.Mode, optedIn bool) {
	r := v.rulesOf(namespace)
	return r.mode, r.optedIn
}

// Delays reports whether a Job of a namespace that says nothing of itself may wait there.
func (v *View) Delays(namespace string) bool {
	r := v.rulesOf(namespace)
	s := r.settings(TypeBatch, "", nil)
	s.limitDelay(r, true)
	return r.optedIn && s.AllowedDelay > 0
}

// Concerns reports, at the price of a few map lookups, whether a pod may be ours: somebody marked it, its namespace has
// opted in, or its scheduler's users expect it.
func (v *View) Concerns(pod *v1.Pod) bool {
	if r, ok := v.rules[pod.Namespace]; ok && r.optedIn {
		return true
	}
	return pod.Spec.SchedulerName == GardenerSchedulerName || pod.Spec.SchedulerName == HybridSchedulerName ||
		Marked(pod)
}

// The dirtiest grids emit about 1,200 g/kWh at the margin; what is ten times worse was written in another unit.
const (
	maxIntensity = 10_000 // gCO2e per kWh
	maxPUE       = 10
	maxPrice     = 1e6 // per kWh: there are currencies of small units
)

// CheckSite reports what makes a site unusable.
func CheckSite(s *sched.Site) error {
	// 0 reads as 1: a file need not say it.
	if s.PUE != 0 && !(s.PUE >= 1 && s.PUE <= maxPUE) {
		return fmt.Errorf("pue is %v: want 1 to %d", s.PUE, maxPUE)
	}
	if err := checkSeries("carbon", s.Carbon.Series, 0, maxIntensity, "gCO2e/kWh"); err != nil {
		return err
	}
	return checkSeries("price", s.Price.Series, -maxPrice, maxPrice, "per kWh")
}

func checkSeries(what string, series *grid.Series, least, most float64, unit string) error {
	if series == nil {
		return nil
	}
	for i := range series.Len() {
		if value := series.Value(i); !(value >= least && value <= most) { // NaN is neither
			return fmt.Errorf("%s value %d is %v %s: want %v to %v", what, i, value, unit, least, most)
		}
	}
	return nil
}

// Sites returns all sites; the default one, if there is one, comes first. The slice and the sites are shared: read
// only.
func (v *View) Sites() []*sched.Site { return v.sites }

// DefaultSite returns the site of what nothing maps to another one, or nil.
func (v *View) DefaultSite() *sched.Site { return v.defaultSite }

// Site returns the site of a name, or nil.
func (v *View) Site(name string) *sched.Site { return v.siteByName[name] }

// Profile returns the power profile of a name, or nil.
func (v *View) Profile(name string) *NodeProfile { return v.profileByName[name] }

// profileOf returns the profile that the node's label names, else the first that selects it. A label that names an
// unknown profile is a mistake, and no profile rather than the wrong one.
func (v *View) profileOf(n *v1.Node) *NodeProfile {
	if name := n.Labels[LabelPowerProfile]; name != "" {
		return v.profileByName[name]
	}
	for _, p := range v.profiles {
		if len(p.Selector) > 0 && selects(p.Selector, n.Labels) {
			return p
		}
	}
	return nil
}

// hardwareOf returns the power profile of a node, a PUE that comes with it, and what told them.
func (v *View) hardwareOf(n *v1.Node, p *NodeProfile) (profile *energy.Profile, pue float64, from string) {
	if p != nil {
		return &p.Profile, p.PUE, "PowerProfile " + p.Name
	}
	if name := n.Labels[LabelPowerProfile]; name != "" {
		return nil, 0, "there is no PowerProfile " + name
	}
	catalog := v.catalog
	if catalog == nil {
		catalog = hardware.Default()
	}
	if own := v.nodePower[n.Name]; own != nil {
		return own, catalog.DefaultPUE, own.Source
	}
	capacity := n.Status.Capacity
	gpus := quantity(capacity, nvidiaGPU) + quantity(capacity, amdGPU)
	detected, kind, ok := catalog.Detect(n.Labels, n.Annotations, n.Spec.ProviderID, capacity.Cpu().Value(),
		capacity.Memory().Value(), gpus)
	switch {
	case ok:
		return detected, kind.PUE, kind.String()
	case v.defaultProfile != nil:
		return &v.defaultProfile.Profile, cmp.Or(kind.PUE, v.defaultProfile.PUE),
			"default PowerProfile " + v.defaultProfile.Name
	case v.nodePower[""] != nil:
		return v.nodePower[""], kind.PUE, v.nodePower[""].Source
	}
	return nil, kind.PUE, kind.String()
}

// annotatedPUE returns the PUE that is written on a node, or 0. It holds whoever tells the node's watts.
func annotatedPUE(n *v1.Node) float64 {
	if text := n.Annotations[podAliases[AnnotationPUE].key]; text != "" {
		if pue, err := readNumber(text, 1, maxPUE); err == nil {
			return pue
		}
	}
	return 0
}

// Hardware returns the power profile of a node, or nil, and what told it, for people.
func (v *View) Hardware(n *v1.Node) (profile *energy.Profile, from string) {
	f := v.facts(n)
	return f.profile, f.from
}

func selects(selector, labels map[string]string) bool {
	for key, want := range selector {
		if got, ok := labels[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// Node returns a node as the core sees it. Its power profile is the one that its label names, else one that selects it,
// else that of the hardware it says it has, else the default. ok is false where there is none: strategies that price
// energy then have no opinion.
func (v *View) Node(n *v1.Node, capacity, free sched.Resources, jobs int) (node sched.Node, ok bool) {
	f := v.facts(n)
	return sched.Node{
		Name: n.Name, Site: v.site(f), Labels: n.Labels,
		Capacity: capacity, Free: free, Jobs: jobs, Profile: f.profile, PUE: f.pue, Benchmarks: f.benchmarks,
	}, f.profile != nil
}

// SiteOfNode prefers what the owner wrote, then a topology zone of the same name, then the node's cloud region, then
// the default site. A node that nothing maps to a site is nowhere, whose site has no name.
func (v *View) SiteOfNode(n *v1.Node) *sched.Site {
	for _, key := range [...]string{LabelSite, v1.LabelTopologyZone} {
		if name := n.Labels[key]; name != "" {
			if s := v.siteByName[name]; s != nil {
				return s
			}
		}
	}
	if s := v.siteOfRegion(n); s != nil {
		return s
	}
	if v.defaultSite != nil {
		return v.defaultSite
	}
	return nowhere
}

// siteOfRegion maps the cloud region of a node: as somebody said, else to the site of the grid zone that it lies in.
func (v *View) siteOfRegion(n *v1.Node) *sched.Site {
	region := n.Labels[v1.LabelTopologyRegion]
	if region == "" {
		return nil
	}
	provider := cloudOf(n)
	for _, key := range [...]string{provider + "/" + region, region} {
		if s := v.siteByRegion[key]; s != nil {
			return s
		}
	}
	if zone, ok := grid.ZoneOfRegion(provider, region); ok {
		return v.siteByZone[zone]
	}
	return nil
}

// cloudOf returns the provider of a node's machine: aws, gcp, azure, or "".
func cloudOf(n *v1.Node) string {
	scheme, _, _ := strings.Cut(n.Spec.ProviderID, ":")
	if scheme == "gce" {
		return "gcp"
	}
	return scheme
}

// withoutSignals returns sites of the same names and PUE, as if no provider had ever answered.
func withoutSignals(sites []*sched.Site) []*sched.Site {
	bare := make([]*sched.Site, len(sites))
	for i, s := range sites {
		bare[i] = &sched.Site{Name: s.Name, Zone: s.Zone, PUE: s.PUE}
	}
	return bare
}
