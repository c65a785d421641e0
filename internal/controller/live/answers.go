package live

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Nodes returns the current power of all nodes, sorted by name. The result is recomputed at most once per
// second. Callers share the slices and must not modify them.
func (s *State) Nodes() api.NodesPower { return answer(s, &s.nodeList, nodesEvery, s.listNodes) }

// Workloads returns the expected power of the pods of each owner, sorted by namespace, kind and name. The result is
// recomputed at most once per minute. Callers share the slices and must not modify them.
func (s *State) Workloads() api.WorkloadsPower {
	return answer(s, &s.workloadList, ownersEvery, s.listWorkloads)
}

func answer[T any](s *State, kept *atomic.Pointer[listed[T]], every time.Duration, list func(now time.Time) T) T {
	now := s.o.Now()
	last := kept.Load()
	if last != nil && now.Sub(last.at) < every && !now.Before(last.at) {
		return last.answer
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	last = &listed[T]{list(now), now}
	kept.Store(last)
	return last.answer
}

func (s *State) listNodes(now time.Time) api.NodesPower {
	all := api.NodesPower{Nodes: make([]api.NodePower, 0, len(s.nodes))}
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[name]
		v := n.best(now)
		if v.asOf.IsZero() {
			continue
		}
		p := api.NodePower{
			Node: name, Host: n.host, Watts: rounded(float64(v.power)), AsOf: v.asOf.UTC().Truncate(time.Millisecond),
			Quality: v.quality, Source: v.source, Implausible: v.implausible, Temperature: n.heat,
			Findings: n.findings,
		}
		for _, f := range n.fresh {
			if now.Sub(f.since) <= freshFor && !f.since.After(v.asOf) {
				p.Fresh = append(p.Fresh, f.uid)
			}
		}
		into := &all.Nodes
		if ledger.ClusterOf(name) != "" {
			into = &all.Members
		}
		*into = append(*into, p)
	}
	return all
}

func (s *State) listWorkloads(time.Time) api.WorkloadsPower {
	list := make([]api.WorkloadPower, 0, len(s.owners))
	for key, o := range s.owners {
		if o.power.Samples() == 0 {
			continue
		}
		w := api.WorkloadPower{
			Namespace: key.namespace, OwnerKind: key.kind, Owner: key.name,
			Watts: rounded(float64(o.power.Mean())), Deviation: rounded(float64(o.power.Deviation())),
			Samples: o.power.Samples(), AsOf: o.power.At().Truncate(time.Millisecond),
		}
		for _, p := range o.parts {
			w.Containers = append(w.Containers, api.ContainerPower{
				Name: p.name, Watts: rounded(float64(p.power.Mean())), Deviation: rounded(float64(p.power.Deviation())),
			})
		}
		slices.SortFunc(w.Containers, func(a, b api.ContainerPower) int { return cmp.Compare(a.Name, b.Name) })
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b api.WorkloadPower) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.OwnerKind, b.OwnerKind),
			cmp.Compare(a.Owner, b.Owner))
	})
	return api.WorkloadsPower{Workloads: list}
}

// Pods returns the current power of the pods in a namespace, or of all pods if namespace is "", sorted by namespace
// and name. Pods with an unknown name are returned only for all namespaces.
func (s *State) Pods(namespace string) api.PodsPower {
	list := s.pods(namespace, s.o.Now())
	slices.SortFunc(list, func(a, b api.PodPower) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.UID, b.UID))
	})
	return api.PodsPower{Pods: list}
}

func (s *State) pods(namespace string, now time.Time) []api.PodPower {
	list := []api.PodPower{}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, n := range s.nodes {
		if n.asOf.IsZero() || now.Sub(n.asOf) > podsAfter {
			continue
		}
		for _, p := range n.pods {
			if namespace != "" && p.namespace != namespace {
				continue
			}
			list = append(list, api.PodPower{
				Namespace: p.namespace, Pod: p.name, UID: p.uid, Node: name, OwnerKind: p.ownerKind, Owner: p.ownerName,
				Watts: rounded(float64(p.power)), IdleWatts: rounded(float64(p.idle)),
				AsOf:    n.asOf.UTC().Truncate(time.Millisecond),
				Quality: min(n.quality, energy.Derived), Source: n.source,
			})
		}
	}
	return list
}

// rounded rounds to milliwatts, which is finer than the resolution of power meters.
func rounded(watts float64) float64 { return math.Round(watts*1000) / 1000 }
