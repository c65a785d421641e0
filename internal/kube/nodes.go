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

// profileOf returns the profile that the node's label refers to, or otherwise the first profile that selects the
// node. If the label refers to an unknown profile, it returns nil, because a missing profile is better than the
// wrong one.
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

// hardwareOf returns the power profile of a node, the PUE that it implies, and the source of the profile.
func (v *View) hardwareOf(n *v1.Node, p *NodeProfile) (profile *energy.Profile, pue float64, from string) {
	if p != nil {
		return &p.Profile, p.PUE, "PowerProfile " + p.Name
	}
	if name := n.Labels[v1alpha1.LabelPowerProfile]; name != "" {
		return nil, 0, "unknown PowerProfile " + name
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

// detect derives the hardware of a node from its labels, annotations and capacity.
func (v *View) detect(n *v1.Node) (*energy.Profile, hardware.Kind, bool) {
	capacity := n.Status.Capacity
	return cmp.Or(v.defaults.Hardware, hardware.Default()).Detect(n.Labels, n.Annotations, n.Spec.ProviderID,
		capacity.Cpu().Value(), capacity.Memory().Value(), policy.CountGPUs(capacity))
}

// Guess returns a human-readable description of the power of the node's detected hardware, regardless of its
// PowerProfile. It returns "" if the hardware is unknown.
func (v *View) Guess(n *v1.Node) string {
	profile, kind, _ := v.detect(n)
	return hardware.Guess(profile, kind)
}

// Trusted returns the power profile of a node without regard to the reports of its agent, or nil. It is used to
// check the measurements of an agent, which neither its own reports nor a default for all nodes can bound.
func (v *View) Trusted(n *v1.Node) *energy.Profile {
	bare := *n
	bare.Labels = hardware.Untold(n.Labels)
	profile, _, _ := v.hardwareOf(&bare, v.profileOf(&bare))
	if profile == v.defaults.AnyPower {
		return nil
	}
	return profile
}

// Hottest returns the maximum temperature at which the node accepts pods according to its PowerProfile. It returns
// 0 if there is no limit or n is nil.
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

// Hardware returns the power profile of a node, or nil, and a human-readable description of its source.
func (v *View) Hardware(n *v1.Node) (profile *energy.Profile, from string) {
	f := v.facts(n)
	return f.profile, f.from
}

// Node converts a node. The power profile is the one that the node's label refers to, or otherwise one that selects
// the node, or that of the detected hardware, or the default profile. ok is false if there is no profile, in which
// case strategies that consider energy have no opinion.
func (v *View) Node(n *v1.Node, capacity, free sched.Resources, jobs int) (node sched.Node, ok bool) {
	f := v.facts(n)
	return sched.Node{
		Name: n.Name, Site: f.site, Labels: n.Labels,
		Capacity: capacity, Free: free, Jobs: jobs, Profile: f.profile, PUE: f.pue, Benchmarks: f.benchmarks,
		Awake: n.Labels[v1alpha1.LabelPowerState] != v1alpha1.PowerAsleep,
	}, f.profile != nil
}

// SiteOfNode returns the site in the node's label, or otherwise the site with the name of its topology zone, the
// site of its cloud region, or the default site. If the node is not mapped to any site, the returned site has no
// name.
func (v *View) SiteOfNode(n *v1.Node) *sched.Site {
	return cmp.Or(v.siteByName[n.Labels[v1alpha1.LabelSite]], v.siteByName[n.Labels[v1.LabelTopologyZone]],
		v.siteOfRegion(n), v.defaultSite, nowhere)
}

// siteOfRegion returns the site of a node's cloud region, either according to a GridZone or by the grid zone in
// which the region is located. It returns nil if there is none.
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

// cloudOf returns the cloud provider of a node, which is aws, gcp, azure, or "".
func cloudOf(n *v1.Node) string {
	scheme, _, _ := strings.Cut(n.Spec.ProviderID, ":")
	if scheme == "gce" {
		return "gcp"
	}
	return scheme
}

// nodeFacts contains the data derived from a node object and a view.
type nodeFacts struct {
	node       *v1.Node
	site       *sched.Site
	profile    *energy.Profile
	pue        float64
	from       string // source of the profile
	benchmarks map[string]energy.Benchmark
}

// nodeCache caches facts of nodes by name, because detecting the hardware of a node takes 3 µs, and filters look up
// every node of a cluster. It is safe for concurrent use.
type nodeCache struct {
	byName sync.Map // name → *nodeFacts
	size   atomic.Int64
}

// maxNodes limits the size of the cache of a long-lived view while nodes are added and deleted.
const maxNodes = 20_000

// facts returns the facts of a node. They are cached for the same object.
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
	if v.unsettled { // this view exists as long as the process, so its cache would retain deleted nodes
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
	// watts: current power of the node; ignored if older than 30 seconds or, without a time, if it last changed
	// more than 5 minutes ago
	thesisWatts = thesis + "current-watts"
	// Unix seconds: time of that measurement; defaults to the time when the watts last changed
	thesisUpdated = thesis + "last-updated"

	thesisFreshness = 30 * time.Second
	thesisUndated   = 5 * time.Minute
)

// LiveWatts returns the power that the hybrid scheduler's monitor wrote to a node, unless it is older than the
// interval of the monitor permits. If it has no timestamp, its age is that of the last change, which changed
// returns. A zero time means that the last change is unknown.
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

// WattsWritten returns the time of the last change of the power annotation according to the managed fields of the
// node. It is used for nodes that have been read directly, because informers remove the managed fields.
func WattsWritten(n *v1.Node) (at time.Time) {
	for _, m := range n.ManagedFields {
		if m.Time != nil && m.FieldsV1 != nil &&
			bytes.Contains(m.FieldsV1.GetRawBytes(), []byte(`"f:`+thesisWatts+`"`)) {
			at = timeutil.Later(at, m.Time.Time)
		}
	}
	return at
}

// SeenWatts records when the power annotations of nodes were observed to change. The age of the value in the first
// observation of a node is unknown.
type SeenWatts struct{ at sync.Map } // by the node's name

// Changed returns the time of the last observed change of the node's power annotation, or the zero time if there
// was none.
func (s *SeenWatts) Changed(n *v1.Node) time.Time {
	at, _ := s.at.Load(n.Name)
	seen, _ := at.(time.Time)
	return seen
}

// Handler returns an event handler that records changes of nodes.
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

// Allocatable returns the resources that a node offers to pods.
func Allocatable(n *v1.Node) sched.Resources { return policy.ResourcesOf(n.Status.Allocatable) }
