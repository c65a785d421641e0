// Package fallback lets kube-scheduler's own score plugins decide on a pod unless KubEnergy scores it.
//
// # Purpose
//
// The KubEnergy plugin of a profile may list score plugins that it replaces. They stay enabled, with their arguments
// and weights, and are skipped only in the cycles in which KubEnergy ranks the nodes. In all other cycles the profile
// scores as it would without KubEnergy: in shadow mode, for unmarked pods, without signals or power profiles, and after
// a panic. kube-scheduler reads the plugins to skip from the CycleState, and only the framework itself can set them
// between PreScore and Score. That is why this package wraps the framework of a profile instead of adding plugins.
//
// # Invariants and their tests
//
//   - Without an opinion of KubEnergy, each node's total is that of kube-scheduler's default profile: test/scores
//     TestStockScores, TestSameNodesAsStock.
//   - With an opinion, the replaced plugins contribute nothing: test/scores TestBestNodeWins.
//   - The outcome does not depend on the order of plugins, and an opinion withdrawn after PreScore counts as none:
//     TestRunScorePlugins.
//   - A profile without replaced plugins is left unchanged, and one that replaces a plugin that it does not enable is
//     rejected: TestWrap.
package fallback

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// profile is a framework that skips the replaced score plugins while KubEnergy scores a pod.
type profile struct {
	framework.Framework
	replaced sets.Set[string]
}

// replacer is the KubEnergy plugin of a profile.
type replacer interface {
	Replaces() []string
}

// Otherwise nothing would be replaced, without an error.
var _ replacer = (*place.Energy)(nil)

// Install wraps the profiles of a scheduler. It must be called before the scheduler runs.
func Install(s *scheduler.Scheduler) error {
	for name, f := range s.Profiles {
		wrapped, err := Wrap(f)
		if err != nil {
			return fmt.Errorf("setting up profile %s: %w", name, err)
		}
		s.Profiles[name] = wrapped
	}
	return nil
}

// Wrap returns f with the replaced score plugins of its KubEnergy plugin skipped in the cycles that KubEnergy scores.
// It returns f itself if the profile replaces none, and an error if a replaced plugin is not one of its score plugins.
func Wrap(f framework.Framework) (framework.Framework, error) {
	replaced := sets.New[string]()
	for _, p := range f.EnqueueExtensions() {
		if r, ok := p.(replacer); ok {
			replaced.Insert(r.Replaces()...)
		}
	}
	if len(replaced) == 0 {
		return f, nil
	}
	others := sets.New[string]()
	for _, p := range f.ListPlugins().Score.Enabled {
		others.Insert(p.Name)
	}
	others.Delete(place.EnergyName)
	if unknown := replaced.Difference(others); len(unknown) > 0 {
		return nil, fmt.Errorf("%s replaces %q: want one of the profile's other score plugins, %q", place.EnergyName,
			sets.List(unknown), sets.List(others))
	}
	return &profile{f, replaced}, nil
}

// RunScorePlugins implements [framework.Framework]. KubEnergy is skipped if it had no opinion at PreScore. If it had
// one and failed since then, it gives every node 0, and the nodes are scored again without it.
func (p *profile) RunScorePlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo,
) ([]fwk.NodePluginScores, *fwk.Status) {
	skipped := state.GetSkipScorePlugins()
	if !skipped.Has(place.EnergyName) {
		state.SetSkipScorePlugins(skipped.Union(p.replaced))
		scores, status := p.Framework.RunScorePlugins(ctx, state, pod, nodes)
		if !status.IsSuccess() || slices.ContainsFunc(scores, preferred) {
			return scores, status
		}
		state.SetSkipScorePlugins(skipped.Clone().Insert(place.EnergyName))
	}
	return p.Framework.RunScorePlugins(ctx, state, pod, nodes)
}

// preferred reports whether KubEnergy gives the node a score above 0, as it does to the best node of every ranking.
func preferred(n fwk.NodePluginScores) bool {
	return slices.ContainsFunc(n.Scores, func(s fwk.PluginScore) bool {
		return s.Name == place.EnergyName && s.Score > 0
	})
}
