package policy

import (
	"strings"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// gardener is the key prefix of Compute Gardener.
const gardener = "compute-gardener-scheduler.kubernetes.io/"

// Names of the schedulers that KubEnergy's scheduler acts as, including those of other systems.
const (
	SchedulerName         = "kubenergy"
	GardenerSchedulerName = "compute-gardener-scheduler"
	HybridSchedulerName   = "my-energy-scheduler"
)

// Serves reports whether pods with this scheduler name are placed by KubEnergy as a second scheduler.
func Serves(schedulerName string) bool {
	return schedulerName == SchedulerName || schedulerName == GardenerSchedulerName ||
		schedulerName == HybridSchedulerName
}

const gardenerWorkloadType = gardener + "workload-type"

// labelAliases maps pod labels to the equivalent labels of other systems.
var labelAliases = map[string]string{
	v1alpha1.LabelWorkloadType:  gardenerWorkloadType,
	v1alpha1.LabelWorkloadClass: "workload-profile",
}

// lookUpLabel returns the value of a label, or of the equivalent label of another system.
func lookUpLabel(labels map[string]string, key string) string {
	if value, ok := labels[key]; ok {
		return value
	}
	return labels[labelAliases[key]]
}

// Keys of Compute Gardener on namespaces. They are described in its documentation, but not implemented by its code.
const (
	// label, `"enabled"`: opts the namespace in and enables the following two annotations
	gardenerPolicies = gardener + "energy-policies"
	// as on a pod: default for all workloads of the namespace, with the remainder of the pod's key, e.g.
	// `policy-max-scheduling-delay`
	gardenerPolicy = gardener + "policy-"
	// as on a pod: default for one workload type, e.g. `workload-batch-policy-max-scheduling-delay`
	gardenerWorkload = gardener + "workload-"

	gardenerWorkloadPolicy = "-policy-"
)

// gardenerNamespace reports whether the policies of Compute Gardener are enabled in a namespace.
func gardenerNamespace(labels map[string]string) bool { return labels[gardenerPolicies] == "enabled" }

// gardenerKeys converts the policy annotations of a namespace to pod annotations, by workload type. The type ""
// means all types.
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

// gardenerKey parses the key of a policy annotation of a namespace.
func gardenerKey(key string) (workloadType, name string, ok bool) {
	if name, ok = strings.CutPrefix(key, gardenerPolicy); ok {
		return "", name, true
	}
	if key, ok = strings.CutPrefix(key, gardenerWorkload); !ok {
		return "", "", false
	}
	return strings.Cut(key, gardenerWorkloadPolicy)
}
