package kube

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/kube/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube/hardware"
	"github.com/kubenergy/kubenergy/sched"
)

// assembly puts the contents of a view together from objects, one after the other in the order of their names. An object
// that makes no sense is left out.
type assembly struct {
	Contents
	log        *slog.Logger
	digest     []string
	hasDefault bool
}

// seen adds to the digest what identifies the part of an object that a view depends on.
func (a *assembly) seen(kind string, o metav1.Object, version any) {
	a.digest = append(a.digest, fmt.Sprintf("%s %s/%s %s %v", kind, o.GetNamespace(), o.GetName(), o.GetUID(), version))
}

func (a *assembly) refuse(kind string, o metav1.Object, err error) {
	a.log.Warn("cannot be used: deciding without it", "kind", kind, "name", o.GetName(), "error", err)
}

// addZone makes a site of a zone. The default one stands first.
func (a *assembly) addZone(z *v1alpha1.GridZone) {
	a.seen("GridZone", z, fmt.Sprint(z.Generation, stamp(z.Status.Carbon), stamp(z.Status.Price)))
	site, err := Site(z)
	if err == nil {
		err = CheckSite(site)
	}
	if err != nil {
		a.refuse("GridZone", z, err)
		return
	}
	if z.Spec.Default && !a.hasDefault {
		a.hasDefault = true
		a.Sites = append([]*sched.Site{site}, a.Sites...)
	} else {
		a.Sites = append(a.Sites, site)
	}
	for _, region := range z.Spec.Regions {
		if _, taken := a.Regions[region]; !taken {
			a.Regions[region] = site.Name
		}
	}
}

// stamp identifies a signal.
func stamp(s *v1alpha1.SignalStatus) string {
	if s == nil {
		return "-"
	}
	sum := 0.0
	for i, v := range s.Values {
		sum += v * float64(i+1)
	}
	asOf := int64(0)
	if s.AsOf != nil {
		asOf = s.AsOf.Unix()
	}
	return fmt.Sprint(s.Source, asOf, s.Start.Unix(), s.Step, len(s.Values), math.Float64bits(sum))
}

// Site returns what a GridZone says. A zone without a status is a site without signals.
func Site(z *v1alpha1.GridZone) (*sched.Site, error) {
	site := &sched.Site{Name: z.Name, Zone: grid.Zone(z.Spec.Zone)}
	if z.Spec.PUE != nil {
		site.PUE = *z.Spec.PUE
	}
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

// Signal returns a signal as the core sees it; the absent one where there is no status.
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

func (a *assembly) addProfile(p *v1alpha1.PowerProfile) {
	a.seen("PowerProfile", p, p.Generation)
	profile, pue, err := hardware.FromPowerProfile(p)
	if err != nil {
		a.refuse("PowerProfile", p, err)
		return
	}
	node := &NodeProfile{Profile: *profile, Selector: p.Spec.NodeSelector, PUE: pue}
	for _, b := range p.Spec.Benchmarks {
		if node.Benchmarks == nil {
			node.Benchmarks = map[string]energy.Benchmark{}
		}
		measured := energy.Benchmark{Rate: b.Rate, Power: energy.Watts(b.Watts), Idle: energy.Watts(b.IdleWatts)}
		node.Benchmarks[b.Class] = measured
		// Where a knowledge base tells work on GPUs apart, this profile does not.
		if onGPU := hardware.OnGPU(b.Class); node.Benchmarks[onGPU] == (energy.Benchmark{}) {
			node.Benchmarks[onGPU] = measured
		}
	}
	a.Profiles = append(a.Profiles, node)
	if p.Spec.Default && a.DefaultProfile == "" {
		a.DefaultProfile = p.Name
	}
}

func (a *assembly) addPolicy(p *v1alpha1.EnergyPolicy) {
	a.seen("EnergyPolicy", p, p.Generation)
	if err := ReadPolicy(p); err != nil {
		a.refuse("EnergyPolicy", p, err)
		return
	}
	a.Policies = append(a.Policies, p)
}

// addNamespace takes note of namespaces that say something to us.
func (a *assembly) addNamespace(n *v1.Namespace) {
	if ModeOf(n.Labels) == "" && !gardenerNamespace(n.Labels) {
		return
	}
	marks := NamespaceMarks{Name: n.Name, Labels: n.Labels, Annotations: map[string]string{}}
	for key, value := range n.Annotations {
		if strings.HasPrefix(key, gardener) {
			marks.Annotations[key] = value
		}
	}
	a.seen("Namespace", n, fmt.Sprint(n.Labels[LabelMode], gardenerNamespace(n.Labels), marks.Annotations)) // maps print sorted
	a.Namespaces = append(a.Namespaces, marks)
}

func (a *assembly) addKnowledge(m *v1.ConfigMap) {
	a.seen("ConfigMap", m, m.ResourceVersion)
	byClass, warnings, err := hardware.ReadKnowledgeBase([]byte(m.Data[KnowledgeBaseKey]))
	if err != nil {
		a.refuse("ConfigMap", m, err)
		return
	}
	for _, w := range warnings {
		a.log.Warn("knowledge base", "name", m.Name, "warning", w)
	}
	a.Benchmarks = byClass
}

// LiveWatts returns what the hybrid scheduler's monitor wrote on a node, unless that is old.
func LiveWatts(n *v1.Node, now time.Time) (energy.Watts, bool) {
	if len(n.Annotations) == 0 {
		return 0, false
	}
	w, ok := liveWatts(n, now)
	return energy.Watts(w), ok
}
