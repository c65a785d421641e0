package policy

import (
	"strings"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// gardener begins the keys of Compute Gardener.
const gardener = "compute-gardener-scheduler.kubernetes.io/"

// Names of schedulers that pods of those systems ask for; we serve them.
const (
	SchedulerName         = "kubenergy"
	GardenerSchedulerName = "compute-gardener-scheduler"
	HybridSchedulerName   = "my-energy-scheduler"
)

// Serves reports whether pods that ask for a scheduler of this name are ours to place, as a second scheduler.
func Serves(schedulerName string) bool {
	return schedulerName == SchedulerName || schedulerName == GardenerSchedulerName ||
		schedulerName == HybridSchedulerName
}

const gardenerWorkloadType = gardener + "workload-type"

// labelAliases are labels of pods of other systems that stand for ours.
var labelAliases = map[string]string{
	v1alpha1.LabelWorkloadType:  gardenerWorkloadType,
	v1alpha1.LabelWorkloadClass: "workload-profile",
}

// lookUpLabel returns the value of one of our labels, or of the one that stands for it.
func lookUpLabel(labels map[string]string, key string) string {
	if value, ok := labels[key]; ok {
		return value
	}
	return labels[labelAliases[key]]
}

// Keys of Compute Gardener on namespaces. Its documents describe them; its own code does not obey them.
const (
	// label, `"enabled"`: opts the namespace in, and lets the two annotations count
	gardenerPolicies = gardener + "energy-policies"
	// as on a pod: what holds for all workloads of the namespace, by the rest of the pod's key, as
	// `policy-max-scheduling-delay`
	gardenerPolicy = gardener + "policy-"
	// as on a pod: the same for one workload type, as `workload-batch-policy-max-scheduling-delay`
	gardenerWorkload = gardener + "workload-"

	gardenerWorkloadPolicy = "-policy-"
)

// gardenerNamespace reports whether a namespace has Compute Gardener's policies.
func gardenerNamespace(labels map[string]string) bool { return labels[gardenerPolicies] == "enabled" }

// gardenerKeys splits the policy annotations of a namespace: as if written on its pods, for all types ("") and by type.
func gardenerKeys(annotations map[string]string) map[string]map[string]string {
	byType := map[string]map[string]string{}
	for key, value := range annotations {
		if workloadType, name, ok := gardenerKey(key); ok {
			if byType[workloadType] == nil {
				byType[workloadType] = map[string]string{}
			}
			byType[workloadType][gardener+name] = value
		}
	}
	return byType
}

// gardenerKey takes a policy annotation of a namespace apart.
func gardenerKey(key string) (workloadType, name string, ok bool) {
	if name, ok = strings.CutPrefix(key, gardenerPolicy); ok {
		return "", name, true
	}
	if key, ok = strings.CutPrefix(key, gardenerWorkload); !ok {
		return "", "", false
	}
	return strings.Cut(key, gardenerWorkloadPolicy)
}
