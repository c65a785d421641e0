package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// Prefixes of the systems that people come from.
const (
	gardener = "compute-gardener-scheduler.kubernetes.io/" // Compute Gardener
	hybrid   = "scheduler.policy/"                         // the hybrid scheduler of the thesis
)

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

// alias is a pod annotation of another system that stands for one of ours.
type alias struct {
	key       string
	translate func(value string) (string, error) // to the form of our own; nil: as it is
	holds     bool                               // what it says is about holding
	effect    string
}

// podAliases is the table: our annotation → theirs.
var podAliases = map[string]alias{
	v1alpha1.AnnotationSkip: {key: gardener + "skip", effect: "neither held nor placed by us"},
	v1alpha1.AnnotationCarbonCounts: {
		key: gardener + "carbon-enabled", holds: true,
		effect: "false: carbon intensity does not hold it",
	},
	v1alpha1.AnnotationCarbonThreshold: {
		key: gardener + "carbon-intensity-threshold", holds: true,
		effect: "held while carbon intensity is above",
	},
	v1alpha1.AnnotationPriceThreshold: {
		key: gardener + "price-threshold", holds: true,
		effect: "held while the price is above",
	},
	v1alpha1.AnnotationAllowedDelay: {key: gardener + "max-scheduling-delay", holds: true, effect: "longest hold"},
	v1alpha1.AnnotationExpectedDuration: {
		key: gardener + "estimated-runtime-hours", translate: hours,
		effect: "expected run time, for the window and for estimates",
	},
	v1alpha1.AnnotationMaxPower: {
		key:    gardener + "max-power-watts",
		effect: "nodes of more power are filtered out",
	},
	v1alpha1.AnnotationMinEfficiency: {
		key:    gardener + "min-efficiency",
		effect: "less efficient nodes are filtered out",
	},
	v1alpha1.AnnotationGPUWorkloadType: {
		key:    gardener + "gpu-workload-type",
		effect: "share of the GPUs' power range that it draws",
	},
	v1alpha1.AnnotationPUE: {key: gardener + "pue", effect: "facility energy per node energy in its estimates"},
	v1alpha1.AnnotationBudgetKWh: {
		key:    gardener + "energy-budget-kwh",
		effect: "energy that it may use over its lifetime",
	},
	v1alpha1.AnnotationBudgetAction: {
		key:    gardener + "energy-budget-action",
		effect: "what happens when that is used up",
	},
	v1alpha1.AnnotationPerformanceWeight: {
		key:    hybrid + "performance-weight",
		effect: "weight of speed against energy in the strategy hybrid",
	},
}

// labelAliases is the same for labels of pods.
var labelAliases = map[string]string{
	v1alpha1.LabelWorkloadType:  gardener + "workload-type",
	v1alpha1.LabelWorkloadClass: "workload-profile",
}

func hours(value string) (string, error) {
	h, err := readNumber(value, 0, longest.Hours())
	if err != nil {
		return "", err
	}
	if h == 0 {
		return "", errors.New("want more than 0")
	}
	return time.Duration(h * float64(time.Hour)).String(), nil
}

// lookUp returns the value of one of our annotations in a map, or of the one that stands for it.
func lookUp(annotations map[string]string, key string) (as alias, value string, ok bool) {
	if value, ok = annotations[key]; ok {
		return alias{key: key}, value, true
	}
	if as, ok = podAliases[key]; ok {
		value, ok = annotations[as.key]
	}
	return as, value, ok
}

// lookUpLabel is the same for labels.
func lookUpLabel(labels map[string]string, key string) string {
	if value, ok := labels[key]; ok {
		return value
	}
	return labels[labelAliases[key]]
}

// ours are all annotations of pods and Jobs that we read or write.
var ours = map[string]bool{
	v1alpha1.AnnotationAllowedDelay: true, v1alpha1.AnnotationFinishBy: true, v1alpha1.AnnotationExpectedDuration: true,
	v1alpha1.AnnotationRunNow: true,
	v1alpha1.AnnotationSkip:   true, v1alpha1.AnnotationStrategy: true, v1alpha1.AnnotationCarbonThreshold: true,
	v1alpha1.AnnotationCarbonPercentile: true,
	v1alpha1.AnnotationPriceThreshold:   true, v1alpha1.AnnotationCarbonCounts: true, v1alpha1.AnnotationMaxPower: true,
	v1alpha1.AnnotationMinEfficiency:   true,
	v1alpha1.AnnotationGPUWorkloadType: true, v1alpha1.AnnotationPUE: true, v1alpha1.AnnotationPerformanceWeight: true,
	v1alpha1.AnnotationBudgetKWh: true, v1alpha1.AnnotationBudgetAction: true, v1alpha1.AnnotationBudgetExceeded: true,
	v1alpha1.AnnotationBudgetExceededBy: true,
	v1alpha1.AnnotationBudgetActions:    true, v1alpha1.AnnotationBudgetSuspendedTill: true,
	v1alpha1.AnnotationBudgetReleased: true,
	v1alpha1.AnnotationHeldUntil:      true, v1alpha1.AnnotationHeldReason: true, v1alpha1.AnnotationLatestStart: true,
	v1alpha1.AnnotationReleasedAt:       true,
	v1alpha1.Prefix + "lab-run-seconds": true, v1alpha1.Prefix + "lab-ports": true, // the lab's
}

// Unsupported returns what is written on an object that another system would obey and we do not, and what looks like
// ours and is not, as sentences.
func Unsupported(annotations ...map[string]string) (sentences []string) {
	for _, a := range annotations {
		for key := range a {
			if strings.HasPrefix(key, v1alpha1.Prefix) && !ours[key] {
				sentences = append(sentences, fmt.Sprintf("annotation %s has no effect: there is none of that name",
					key))
			}
		}
	}
	slices.Sort(sentences)
	return slices.Compact(sentences)
}

// Keys of Compute Gardener on namespaces. Its documents describe them; its own code does not obey them.
const (
	gardenerPolicies       = gardener + "energy-policies" // label: "enabled"
	gardenerPolicy         = gardener + "policy-"         // annotation policy-<key>
	gardenerWorkload       = gardener + "workload-"       // annotation workload-<type>-policy-<key>
	gardenerWorkloadPolicy = "-policy-"
)

// gardenerNamespace reports whether a namespace has Compute Gardener's policies.
func gardenerNamespace(labels map[string]string) bool { return labels[gardenerPolicies] == "enabled" }

// gardenerKeys splits the policy annotations of a namespace: as if written on its pods, for all types ("") and by type.
func gardenerKeys(annotations map[string]string) map[string]map[string]string {
	byType := map[string]map[string]string{}
	put := func(workloadType, key, value string) {
		if byType[workloadType] == nil {
			byType[workloadType] = map[string]string{}
		}
		byType[workloadType][gardener+key] = value
	}
	for key, value := range annotations {
		if rest, ok := strings.CutPrefix(key, gardenerPolicy); ok {
			put("", rest, value)
		} else if rest, ok := strings.CutPrefix(key, gardenerWorkload); ok {
			if workloadType, rest, ok := strings.Cut(rest, gardenerWorkloadPolicy); ok {
				put(workloadType, rest, value)
			}
		}
	}
	return byType
}
