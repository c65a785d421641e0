package kube

import (
	"cmp"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/hardware"
	"github.com/kubenergy/kubenergy/sched"
)

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
	if _, known := v.nodes.byName.Swap(n.Name, f); !known && v.nodes.size.Add(1) > maxNodes {
		v.nodes.byName.Clear()
		v.nodes.size.Store(0)
	}
	return f
}
