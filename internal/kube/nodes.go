package kube

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// profileOf returns the profile that the node's label names, else the first that selects it. A label that names an
// unknown profile is a mistake, and no profile rather than the wrong one.
func (v *View) profileOf(n *v1.Node) *NodeProfile {
	if name := n.Labels[v1alpha1.LabelPowerProfile]; name != "" {
		return v.profileByName[name]
	}
	for _, p := range v.profiles {
		if len(p.Selector) > 0 && labels.SelectorFromSet(p.Selector).Matches(labels.Set(n.Labels)) {
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
	if name := n.Labels[v1alpha1.LabelPowerProfile]; name != "" {
		return nil, 0, "there is no PowerProfile " + name
	}
	if own := v.defaults.NodePower[n.Name]; own != nil {
		return own, cmp.Or(v.defaults.Hardware, hardware.Default()).DefaultPUE, own.Source
	}
	detected, kind, ok := v.detect(n)
	switch {
	case ok:
		return detected, kind.PUE, kind.String()
	case v.defaultProfile != nil:
		return &v.defaultProfile.Profile, cmp.Or(kind.PUE, v.defaultProfile.PUE),
			"default PowerProfile " + v.defaultProfile.Name
	case v.defaults.NodePower[""] != nil:
		return v.defaults.NodePower[""], kind.PUE, v.defaults.NodePower[""].Source
	case v.defaults.AnyPower != nil:
		return v.defaults.AnyPower, kind.PUE, kind.String() + "; " + v.defaults.AnyPower.Source
	}
	return nil, kind.PUE, kind.String()
}

// detect recognises the hardware of a node.
func (v *View) detect(n *v1.Node) (*energy.Profile, hardware.Kind, bool) {
	capacity := n.Status.Capacity
	return cmp.Or(v.defaults.Hardware, hardware.Default()).Detect(n.Labels, n.Annotations, n.Spec.ProviderID,
		capacity.Cpu().Value(), capacity.Memory().Value(), policy.ResourcesOf(capacity).GPU)
}

// Guess says for people what the hardware of a node is taken to draw, whatever its PowerProfile says; "" where it is
// not known.
func (v *View) Guess(n *v1.Node) string {
	profile, kind, _ := v.detect(n)
	return hardware.Guess(profile, kind)
}

// Trusted returns the power profile of a node by what others than its agent say of it, or nil. What an agent meters is
// held against it, which neither its own word nor a number that is taken for all nodes can bound.
func (v *View) Trusted(n *v1.Node) *energy.Profile {
	bare := *n
	bare.Labels = hardware.Untold(n.Labels)
	profile, _, _ := v.hardwareOf(&bare, v.profileOf(&bare))
	if profile == v.defaults.AnyPower {
		return nil
	}
	return profile
}

// Hottest returns how hot a node may be and take pods, as its PowerProfile says; 0: there is no limit, or no node.
func (v *View) Hottest(n *v1.Node) energy.Celsius {
	if n == nil {
		return 0
	}
	profile := v.facts(n).profile
	for _, p := range v.profiles {
		if &p.Profile == profile {
			return p.Hottest
		}
	}
	return 0
}

// Hardware returns the power profile of a node, or nil, and what told it, for people.
func (v *View) Hardware(n *v1.Node) (profile *energy.Profile, from string) {
	f := v.facts(n)
	return f.profile, f.from
}

// Node returns a node as the core sees it. Its power profile is the one that its label names, else one that selects it,
// else that of the hardware it says it has, else the default. ok is false where there is none: strategies that price
// energy then have no opinion.
func (v *View) Node(n *v1.Node, capacity, free sched.Resources, jobs int) (node sched.Node, ok bool) {
	f := v.facts(n)
	return sched.Node{
		Name: n.Name, Site: f.site, Labels: n.Labels,
		Capacity: capacity, Free: free, Jobs: jobs, Profile: f.profile, PUE: f.pue, Benchmarks: f.benchmarks,
		Awake: n.Labels[v1alpha1.LabelPowerState] != v1alpha1.PowerAsleep,
	}, f.profile != nil
}

// SiteOfNode prefers what the owner wrote, then a topology zone of the same name, then the node's cloud region, then
// the default site. A node that nothing maps to a site is nowhere, whose site has no name.
func (v *View) SiteOfNode(n *v1.Node) *sched.Site {
	return cmp.Or(v.siteByName[n.Labels[v1alpha1.LabelSite]], v.siteByName[n.Labels[v1.LabelTopologyZone]],
		v.siteOfRegion(n), v.defaultSite, nowhere)
}

// siteOfRegion maps the cloud region of a node: as a GridZone says, else to the site of the grid zone that it lies in.
func (v *View) siteOfRegion(n *v1.Node) *sched.Site {
	region := n.Labels[v1.LabelTopologyRegion]
	if region == "" {
		return nil
	}
	provider := cloudOf(n)
	var around *sched.Site
	if zone, ok := grid.ZoneOfRegion(provider, region); ok {
		around = v.siteByZone[zone]
	}
	return cmp.Or(v.siteByRegion[provider+"/"+region], v.siteByRegion[region], around)
}

// cloudOf returns the provider of a node's machine: aws, gcp, azure, or "".
func cloudOf(n *v1.Node) string {
	scheme, _, _ := strings.Cut(n.Spec.ProviderID, ":")
	if scheme == "gce" {
		return "gcp"
	}
	return scheme
}

// nodeFacts is what follows from a node's object and from what a view knows.
type nodeFacts struct {
	node       *v1.Node
	site       *sched.Site
	profile    *energy.Profile
	pue        float64
	from       string // what told the profile
	benchmarks map[string]energy.Benchmark
}

// nodeCache remembers facts of nodes by name. Recognising the hardware of a node takes 3 µs, and filters ask for every
// node of a cluster. Any number of goroutines may use it.
type nodeCache struct {
	byName sync.Map // name → *nodeFacts
	size   atomic.Int64
}

// maxNodes bounds the nodes that are remembered, in a view that lasts while nodes come and go.
const maxNodes = 20_000

// facts are remembered for the very object.
func (v *View) facts(n *v1.Node) *nodeFacts {
	if known, ok := v.nodes.byName.Load(n.Name); ok && known.(*nodeFacts).node == n {
		return known.(*nodeFacts)
	}
	f := &nodeFacts{node: n, site: v.SiteOfNode(n), benchmarks: v.benchmarks[n.Name]}
	p := v.profileOf(n)
	if p != nil && f.benchmarks == nil {
		f.benchmarks = p.Benchmarks
	}
	f.profile, f.pue, f.from = v.hardwareOf(n, p)
	f.pue = cmp.Or(hardware.AnnotatedPUE(n.Annotations), f.pue)
	if v.unsettled { // it lasts as long as the process, and would keep nodes that are gone
		return f
	}
	if _, known := v.nodes.byName.Swap(n.Name, f); !known && v.nodes.size.Add(1) > maxNodes {
		v.nodes.byName.Clear()
		v.nodes.size.Store(0)
	}
	return f
}

// Annotations of nodes by the hybrid scheduler's monitor.
const (
	thesis = "energy.thesis.io/"
	// watts: what the node draws now; not believed if it is older than 30 seconds, or without a time if it last changed
	// more than 5 minutes ago
	thesisWatts = thesis + "current-watts"
	// Unix seconds: when that was measured; without it, it was when the watts last changed
	thesisUpdated = thesis + "last-updated"

	thesisFreshness = 30 * time.Second
	thesisUndated   = 5 * time.Minute
)

// LiveWatts returns what the hybrid scheduler's monitor wrote on a node, unless that is old: a reading is not
// believed for longer than the monitor's own period allows. One without a time is as old as changed says that its last
// change is; the zero time is when that is not known.
func LiveWatts(n *v1.Node, now time.Time, changed func(*v1.Node) time.Time) (energy.Watts, bool) {
	text, ok := n.Annotations[thesisWatts]
	if !ok {
		return 0, false
	}
	watts, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(watts >= 0 && watts <= 1e6) {
		return 0, false
	}
	at, most := strings.TrimSpace(n.Annotations[thesisUpdated]), thesisFreshness
	var age time.Duration
	if at == "" {
		age, most = now.Sub(changed(n)), thesisUndated
	} else {
		updated, err := strconv.ParseFloat(at, 64)
		if err != nil || !(updated >= 0 && updated <= 1e11) {
			return 0, false
		}
		age = now.Sub(time.Unix(int64(updated), 0))
	}
	return energy.Watts(watts), age <= most && age >= -thesisFreshness
}

// WattsWritten returns when the watts on a node were last changed, by what the API server remembers of who wrote what:
// for those who have just read the node. Informers leave it out.
func WattsWritten(n *v1.Node) (at time.Time) {
	for _, m := range n.ManagedFields {
		if m.Time != nil && m.FieldsV1 != nil &&
			bytes.Contains(m.FieldsV1.GetRawBytes(), []byte(`"f:`+thesisWatts+`"`)) {
			at = timeutil.Later(at, m.Time.Time)
		}
	}
	return at
}

// SeenWatts remembers when the watts on nodes were seen to change, for those who follow nodes. What stood there when a
// node was seen first is of no known age.
type SeenWatts struct{ at sync.Map } // by the node's name

// Changed returns when the watts on a node were last seen to change; the zero time: never.
func (s *SeenWatts) Changed(n *v1.Node) time.Time {
	at, _ := s.at.Load(n.Name)
	seen, _ := at.(time.Time)
	return seen
}

// Handler follows nodes.
func (s *SeenWatts) Handler(clock func() time.Time) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			n, m := before.(*v1.Node), after.(*v1.Node)
			if m.Annotations[thesisWatts] != n.Annotations[thesisWatts] {
				s.at.Store(m.Name, clock())
			}
		},
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				s.at.Delete(name.Name)
			}
		},
	}
}

// Allocatable returns what a node offers to pods.
func Allocatable(n *v1.Node) sched.Resources { return policy.ResourcesOf(n.Status.Allocatable) }
