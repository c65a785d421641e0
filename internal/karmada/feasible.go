package karmada

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// needs returns the resource request of a replica, as computed by Karmada.
func (b *binding) needs() sched.Resources {
	if b.Spec.ReplicaRequirements == nil {
		return sched.Resources{}
	}
	return policy.ResourcesOf(b.Spec.ReplicaRequirements.ResourceRequest)
}

// maxReplicas is the maximum number of replicas of a binding, because each is placed individually.
const maxReplicas = 10_000

// unsupported returns an error if a binding requires features that only karmada-scheduler supports.
func (b *binding) unsupported() error {
	p := b.Spec.Placement
	switch {
	case p == nil:
		return errors.New("missing spec.placement")
	case len(p.ClusterAffinities) > 0:
		return errors.New("spec.placement.clusterAffinities is not supported: use clusterAffinity")
	case len(p.WorkloadAffinity) > 0 || len(b.Spec.WorkloadAffinityGroups) > 0:
		return errors.New("workload affinity is not supported")
	case len(b.Spec.Components) > 0:
		return errors.New("workloads with several components are not supported")
	case p.ReplicaScheduling != nil && len(p.ReplicaScheduling.WeightPreference.StaticWeightList) > 0:
		return errors.New("spec.placement.replicaScheduling.weightPreference.staticWeightList is not supported: use " +
			"dynamicWeight")
	case b.Spec.Replicas < 0 || b.Spec.Replicas > maxReplicas:
		return fmt.Errorf("spec.replicas is %d, want 0 to %d", b.Spec.Replicas, maxReplicas)
	}
	for _, s := range p.SpreadConstraints {
		if s.ByLabel != "" || s.ByField != "" && s.ByField != "cluster" {
			return fmt.Errorf("spread constraints by %s are not supported, only by cluster", s.ByField+s.ByLabel)
		}
		if s.MinGroups > 1 {
			return errors.New("spread constraints with minGroups above 1 are not supported")
		}
	}
	return nil
}

// most returns the maximum number of clusters of a binding, or 0 if it is not limited.
func (b *binding) most() (groups int) {
	for _, s := range b.Spec.Placement.SpreadConstraints {
		if s.MaxGroups > 0 && (groups == 0 || s.MaxGroups < groups) {
			groups = s.MaxGroups
		}
	}
	return groups
}

// duplicated reports whether each cluster gets all replicas, which is Karmada's default. Bindings of dependencies
// have no placement.
func (b *binding) duplicated() bool {
	p := b.Spec.Placement
	return p == nil || p.ReplicaScheduling == nil || p.ReplicaScheduling.Type != "Divided" || b.Spec.Replicas == 0
}

// clusters returns the names of the clusters that the binding is propagated to.
func (b *binding) clusters() []string {
	return sliceutil.Map(b.Spec.Clusters, func(t target) string { return t.Name })
}

// replicas returns the number of replicas in a cluster.
func replicas(targets []target, cluster string) (n int32) {
	for _, t := range targets {
		if t.Name == cluster {
			n += t.Replicas
		}
	}
	return n
}

// few limits targets to the maximum number of clusters. Clusters with the most existing replicas are preferred.
func (b *binding) few(targets []target) []target {
	most, has := b.most(), b.clusters()
	if most == 0 || len(targets) <= most {
		return targets
	}
	rank := func(t target) int32 {
		if !slices.Contains(has, t.Name) {
			return -1
		}
		return replicas(b.Spec.Clusters, t.Name)
	}
	slices.SortStableFunc(targets, func(x, y target) int { return cmp.Compare(rank(y), rank(x)) })
	return targets[:most]
}

// refuses returns the reason why a binding must not be placed in a cluster, or "". The order of the checks is the
// same as in karmada-scheduler. Taints and missing APIs do not affect existing replicas, because eviction is
// handled by Karmada.
func (b *binding) refuses(c *cluster) string {
	has := slices.Contains(b.clusters(), c.Name)
	_, repelled := kube.Repels(c.Spec.Taints, b.Spec.Placement.ClusterTolerations)
	switch {
	case c.DeletionTimestamp != nil:
		return "the cluster is being deleted"
	case !has && !c.serves(b.Spec.Resource.APIVersion, b.Spec.Resource.Kind):
		return "the cluster does not serve " + b.Spec.Resource.APIVersion + " " + b.Spec.Resource.Kind
	case !has && repelled:
		return "the cluster has an untolerated taint"
	case b.Spec.Placement.ClusterAffinity != nil && !b.Spec.Placement.ClusterAffinity.matches(c):
		return "the cluster affinity does not match"
	case slices.Contains(b.Spec.GracefulEvictionTasks, evictionTask{c.Name}):
		return "the binding is being evicted from the cluster"
	}
	return ""
}

func (c *cluster) serves(version, kind string) bool {
	for _, api := range c.Status.APIEnablements {
		for _, r := range api.Resources {
			if api.GroupVersion == version && r.Kind == kind {
				return true
			}
		}
	}
	return false
}

// pod returns a pod with the node requirements of a replica.
func (b *binding) pod() *v1.Pod {
	p := &v1.Pod{}
	if r := b.Spec.ReplicaRequirements; r != nil && r.NodeClaim != nil {
		p.Spec.NodeSelector, p.Spec.Tolerations = r.NodeClaim.NodeSelector, r.NodeClaim.Tolerations
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: r.NodeClaim.HardNodeAffinity,
		}}
	}
	return p
}

// ready reports whether the cluster has the condition Ready.
func (c *cluster) ready() bool { return meta.IsStatusConditionTrue(c.Status.Conditions, "Ready") }

// matches reports whether a cluster matches all requirements of the affinity, as in karmada-scheduler.
func (a *affinity) matches(c *cluster) bool {
	if slices.Contains(a.Exclude, c.Name) || len(a.ClusterNames) > 0 && !slices.Contains(a.ClusterNames, c.Name) {
		return false
	}
	if a.LabelSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(a.LabelSelector)
		if err != nil || !s.Matches(labels.Set(c.Labels)) {
			return false
		}
	}
	return a.FieldSelector == nil || c.hasFields(a.FieldSelector.MatchExpressions)
}

// hasFields reports whether the provider, region and zones of a cluster match all requirements. Karmada supports
// only the operators In and NotIn.
func (c *cluster) hasFields(required []v1.NodeSelectorRequirement) bool {
	has := map[string][]string{"provider": {c.Spec.Provider}, "region": {c.Spec.Region}, "zone": c.Spec.Zones}
	for _, r := range required {
		one := slices.ContainsFunc(r.Values, func(value string) bool { return slices.Contains(has[r.Key], value) })
		wanted := r.Operator == v1.NodeSelectorOpIn
		if one != wanted || !wanted && r.Operator != v1.NodeSelectorOpNotIn {
			return false
		}
	}
	return true
}
