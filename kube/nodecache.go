package kube

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/hardware"
	"github.com/kubenergy/kubenergy/sched"
)

// nodeFacts is what follows from a node's object, and from what a view knows besides signals and policies.
type nodeFacts struct {
	node       weak.Pointer[v1.Node] // whoever remembers it does not keep it
	site       int                   // index, or none
	profile    *energy.Profile
	pue        float64
	from       string // what told the profile
	benchmarks map[string]energy.Benchmark
}

const none = -1

// facts are remembered for the very object: the scheduler asks for the same nodes in every cycle.
func (v *View) facts(n *v1.Node) *nodeFacts {
	if f := v.nodes.of(n); f != nil {
		return f
	}
	f := &nodeFacts{node: weak.Make(n), site: slices.Index(v.sites, v.SiteOfNode(n)), benchmarks: v.benchmarks[n.Name]}
	p := v.profileOf(n)
	if p != nil && f.benchmarks == nil {
		f.benchmarks = p.Benchmarks
	}
	f.profile, f.pue, f.from = v.hardwareOf(n, p)
	f.pue = cmp.Or(hardware.AnnotatedPUE(n.Annotations), f.pue)
	v.nodes.keep(n.Name, f)
	return f
}

// site returns the site of a node. Sites have a signal, so every view has its own.
func (v *View) site(f *nodeFacts) *sched.Site {
	if f.site == none {
		return nowhere
	}
	return v.sites[f.site]
}

// adopt takes over what an earlier view has found out about nodes if it would find out the same: signals change every
// few minutes, hardware hardly ever.
func (v *View) adopt(before *View) {
	if before != nil && before.nodes != nil && v.sameHardware(before) {
		v.nodes = before.nodes
	}
}

func (v *View) sameHardware(w *View) bool {
	sameSite := func(a, b *sched.Site) bool {
		return a == b || a != nil && b != nil && a.Name == b.Name && a.Zone == b.Zone
	}
	return slices.EqualFunc(v.sites, w.sites, sameSite) && sameSite(v.defaultSite, w.defaultSite) &&
		maps.EqualFunc(v.siteByRegion, w.siteByRegion, sameSite) &&
		reflect.DeepEqual(v.profiles, w.profiles) && reflect.DeepEqual(v.defaultProfile, w.defaultProfile) &&
		maps.Equal(v.nodePower, w.nodePower) && v.catalog == w.catalog &&
		maps.EqualFunc(v.benchmarks, w.benchmarks, maps.Equal[map[string]energy.Benchmark])
}

// nodeCache remembers facts of nodes, by name, for as long as the nodes' objects live. Any number of goroutines may use
// it.
type nodeCache struct {
	byName sync.Map // name → *nodeFacts
	size   atomic.Int64
	swept  atomic.Int64 // how many were left by the last sweep
	sweeps sync.Mutex
}

// A cache of fewer entries is not worth a sweep.
const fewNodes = 128

func (c *nodeCache) of(n *v1.Node) *nodeFacts {
	if c == nil {
		return nil
	}
	if known, ok := c.byName.Load(n.Name); ok {
		if f := known.(*nodeFacts); f.node.Value() == n {
			return f
		}
	}
	return nil
}

func (c *nodeCache) keep(name string, f *nodeFacts) {
	if c == nil {
		return
	}
	if _, known := c.byName.Swap(name, f); known {
		return
	}
	if c.size.Add(1) > max(2*c.swept.Load(), fewNodes) && c.sweeps.TryLock() {
		c.sweep()
		c.sweeps.Unlock()
	}
}

// sweep drops the nodes that are gone.
func (c *nodeCache) sweep() {
	c.byName.Range(func(name, known any) bool {
		if known.(*nodeFacts).node.Value() == nil && c.byName.CompareAndDelete(name, known) {
			c.size.Add(-1)
		}
		return true
	})
	c.swept.Store(c.size.Load())
}
