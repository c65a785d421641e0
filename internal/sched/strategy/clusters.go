package strategy

import (
	"maps"
	"slices"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
)

// clusters contains placements that are only used in simulations, because a single cluster leaves no choice.
var clusters = map[string]placing{
	"home": {
		placement.SendTo(placement.Home), alike | relative | seeded,
		"the cluster where the job was submitted, and least-allocated within it",
	},
	"karmada-dynamic": {
		placement.SendTo(placement.AvailableReplicas), relative | seeded,
		"the cluster with the highest dynamic weight in Karmada, and least-allocated within it",
	},
	"karmada-static": {
		placement.SendTo(placement.StaticWeights), alike | relative | seeded,
		"the cluster by static weights as in Karmada, regardless of capacity, and least-allocated within it",
	},
	"lowest-now": {
		placement.SendTo(placement.LowestNow), alike | relative | seeded,
		"the cluster with capacity and the lowest current intensity, and least-allocated within it",
	},
}

// Clusters returns the sorted names of the placements that [ByName] accepts but [New] does not.
func Clusters() []string { return slices.Sorted(maps.Keys(clusters)) }

// bindings contains the cluster rules that do not depend on free capacity.
var bindings = map[string]placement.ClusterRule{"home": placement.Home, "karmada-static": placement.StaticWeights}

// Bound returns the names of the sites where g can run j, regardless of free capacity. If empty, j can run at every
// site.
func (g *Greedy) Bound(s *sched.Snapshot, j *sched.Job) []string {
	left, _, _ := parts(g.name)
	if rule := bindings[left]; rule != nil {
		if site, ok := rule(&placement.Costing{Snapshot: s, Job: j}); ok {
			return []string{site}
		}
	}
	return j.Sites
}
