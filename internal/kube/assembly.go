package kube

import (
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// item is the cached representation of an object. It contains the object's part of a view, or its problems. Objects
// are converted one by one, so that an invalid object does not affect others.
type item struct {
	metav1.ObjectMeta // only the fields that a cache needs
	kind              string
	version           string          // differs if the views may differ; empty if the object does not affect views
	put               func(*Contents) // nil if the object cannot be used
	problems          []problem
}

// problem is an invalid object. It is logged once for as long as it persists.
type problem struct {
	kind, namespace, name, why string
	part                       bool // the rest of the object is used
}

func (it *item) problem(why string, part bool) {
	it.problems = append(it.problems, problem{it.kind, it.Namespace, it.Name, why, part})
}

func (it *item) refuse(err error) {
	it.put = nil
	it.problem(err.Error(), false)
}

// same reports whether two items contribute the same part to a view.
func (it *item) same(other *item) bool {
	return it == other ||
		it.kind == other.kind && it.Namespace == other.Namespace && it.Name == other.Name && it.version == other.version
}

// reading returns a function that converts objects of type T to items. fill sets the version and put of an item.
func reading[T any](kind string, fill func(it *item, o *T)) func(*unstructured.Unstructured) *item {
	return func(u *unstructured.Unstructured) (it *item) {
		it = &item{kind: kind, ObjectMeta: metav1.ObjectMeta{
			Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		}}
		defer func() {
			if r := recover(); r != nil {
				panics.Note("objects")
				it.version = string(it.UID) + " " + it.ResourceVersion
				it.refuse(fmt.Errorf("reading the object panicked: %v", r))
			}
		}()
		o := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
			it.version = it.ResourceVersion
			it.refuse(err)
		} else {
			fill(it, o)
		}
		if it.version != "" {
			it.version = string(it.UID) + " " + it.version
		}
		return it
	}
}

// assemble applies the items in the given order and returns the resulting contents.
func assemble(items []*item, defaults policy.Defaults) *Contents {
	c := &Contents{
		Defaults: defaults, Regions: map[string]string{}, Unused: map[string]bool{}, Units: map[string]Units{},
		RunTimes: map[string]*policy.RunTimes{},
	}
	zones := 0
	for _, it := range items {
		if it.kind == kindZone {
			zones++
		}
		if it.put != nil {
			it.put(c)
		}
	}
	c.oneOfMany = zones > 1
	c.unmix()
	return c
}

// unmix removes the carbon intensity from sites if its kind differs from that of the first site, because average
// and marginal intensities are not comparable.
func (c *Contents) unmix() {
	for i, site := range c.Sites {
		if c.Units[site.Name].Marginal != c.Units[c.Sites[0].Name].Marginal {
			bare := *site
			bare.Carbon = grid.Signal{}
			c.Sites[i] = &bare
		}
	}
}

const kindZone = "GridZone"

// readZone converts a GridZone to a site. The default site comes first.
func readZone(it *item, z *v1alpha1.GridZone) {
	unused := z.Status.Nodes != nil && *z.Status.Nodes == 0
	units := Units{Behind: z.Status.ObservedGeneration != z.Generation}
	if z.Spec.Carbon != nil {
		units.Marginal = z.Spec.Carbon.Signal == "Marginal"
	}
	if z.Spec.Price != nil {
		units.Currency = z.Spec.Price.Currency
	}
	it.version = fmt.Sprint(z.Generation, units.Behind, " ", stamp(z.Status.Carbon), " ", stamp(z.Status.Price), " ",
		unused)
	site, err := siteOf(z)
	if err == nil {
		err = policy.CheckSite(site)
	}
	if err != nil {
		it.refuse(err)
		return
	}
	isDefault, regions := z.Spec.Default, z.Spec.Regions
	it.put = func(c *Contents) {
		c.Unused[site.Name], c.Units[site.Name] = unused, units
		if isDefault && c.DefaultSite == "" {
			c.DefaultSite = site.Name
			c.Sites = append([]*sched.Site{site}, c.Sites...)
		} else {
			c.Sites = append(c.Sites, site)
		}
		for _, region := range regions {
			if _, taken := c.Regions[region]; !taken {
				c.Regions[region] = site.Name
			}
		}
	}
}

// stamp returns a hash of a signal.
func stamp(s *v1alpha1.SignalStatus) string {
	if s == nil {
		return "-"
	}
	sum := fnv.New64a()
	fmt.Fprint(sum, s.Source, s.AsOf, s.Start, s.Step, s.Values)
	return strconv.FormatUint(sum.Sum64(), 16)
}

// siteOf converts a GridZone to a site. A zone without a status is a site without signals.
func siteOf(z *v1alpha1.GridZone) (*sched.Site, error) {
	site := &sched.Site{Name: z.Name, Zone: grid.Zone(z.Spec.Zone), PUE: ptr.Deref(z.Spec.PUE, 0)}
	var err error
	if c := z.Spec.Carbon; c != nil {
		if site.Carbon, err = Signal(z.Status.Carbon, c.MaxAge); err != nil {
			return nil, fmt.Errorf("carbon: %w", err)
		}
	}
	if p := z.Spec.Price; p != nil {
		if site.Price, err = Signal(z.Status.Price, p.MaxAge); err != nil {
			return nil, fmt.Errorf("price: %w", err)
		}
	}
	return site, nil
}

// Signal converts the status of a signal. It returns the zero signal if there is no status.
func Signal(s *v1alpha1.SignalStatus, maxAge *metav1.Duration) (grid.Signal, error) {
	if s == nil {
		return grid.Signal{}, nil
	}
	series, err := grid.NewSeries(s.Start.Time, s.Step.Duration, s.Values)
	if err != nil {
		return grid.Signal{}, err
	}
	signal := grid.Signal{Series: series}
	if err := signal.Quality.UnmarshalText([]byte(s.Quality)); err != nil {
		return grid.Signal{}, err
	}
	if s.AsOf != nil {
		signal.AsOf = s.AsOf.Time
	}
	if maxAge != nil {
		signal.MaxAge = maxAge.Duration
	}
	return signal, nil
}

func readProfile(it *item, p *v1alpha1.PowerProfile) {
	it.version = strconv.FormatInt(p.Generation, 10)
	profile, pue, err := hardware.FromPowerProfile(p)
	if err != nil {
		it.refuse(err)
		return
	}
	node := &NodeProfile{
		Profile: *profile, Selector: p.Spec.NodeSelector, PUE: pue, Benchmarks: hardware.Benchmarks(p),
		Hottest: energy.Celsius(p.Spec.MaxTemperatureCelsius),
	}
	for _, b := range p.Spec.Benchmarks {
		// Knowledge bases distinguish work on GPUs, but a profile does not.
		if onGPU := hardware.OnGPU(b.Class); node.Benchmarks[onGPU] == (energy.Benchmark{}) {
			node.Benchmarks[onGPU] = node.Benchmarks[b.Class]
		}
	}
	isDefault := p.Spec.Default
	it.put = func(c *Contents) {
		c.Profiles = append(c.Profiles, node)
		if isDefault && c.DefaultProfile == "" {
			c.DefaultProfile = node.Name
		}
	}
}

func readPolicy(it *item, p *v1alpha1.EnergyPolicy) {
	it.version = strconv.FormatInt(p.Generation, 10)
	if err := policy.ReadPolicy(p); err != nil {
		it.refuse(err)
		return
	}
	p.ManagedFields, p.Status = nil, v1alpha1.EnergyPolicyStatus{}
	it.put = func(c *Contents) { c.Policies = append(c.Policies, p) }
}

func readJobProfile(it *item, p *v1alpha1.JobProfile) {
	forgotten := p.Spec.ForgetBefore.Equal(p.Status.ForgottenBefore)
	if p.Name != v1alpha1.PolicyName || p.Status.Runs == 0 || !forgotten {
		return
	}
	it.version = fmt.Sprint(p.Status.Runs, " ", p.Status.LastUID)
	learnt, err := policy.ReadJobProfile(p)
	if err != nil {
		it.refuse(err)
		return
	}
	namespace := p.Namespace
	it.put = func(c *Contents) { c.RunTimes[namespace] = learnt }
}

const kindBudget = "EnergyBudget"

// readBudget converts a budget if it holds new work, which most budgets do not.
func readBudget(it *item, b *v1alpha1.EnergyBudget) {
	if !policy.Closes(b) {
		return
	}
	it.version = fmt.Sprint(b.Generation, " ", b.Status.ClosedUntil.Unix(), " ", b.Status.AsOf.Unix())
	b.ManagedFields = nil
	it.put = func(c *Contents) { c.Budgets = append(c.Budgets, b) }
}

// readNamespace converts a namespace if it has KubEnergy labels or annotations.
func readNamespace(it *item, n *v1.Namespace) {
	marks, ok := policy.MarksOfNamespace(n)
	if !ok {
		return
	}
	it.version = fmt.Sprintf("%q %q", marks.Labels, marks.Annotations) // maps are printed with sorted keys
	it.put = func(c *Contents) { c.Namespaces = append(c.Namespaces, marks) }
}

func readKnowledge(it *item, m *v1.ConfigMap) {
	it.version = it.ResourceVersion
	byClass, warnings, err := hardware.ReadKnowledgeBase([]byte(m.Data["profiles.yaml"]))
	if err != nil {
		it.refuse(err)
		return
	}
	for _, w := range warnings {
		it.problem(w, true)
	}
	it.put = func(c *Contents) { c.Benchmarks = byClass }
}
