package karmada

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// Reasons of the Scheduled condition if no cluster was found.
const (
	unschedulable = "Unschedulable"
	noClusterFit  = "NoClusterFit"
)

// Resources of Karmada's API.
var (
	clusterResource = schema.GroupVersionResource{
		Group: "cluster.karmada.io", Version: "v1alpha1", Resource: "clusters",
	}
	rebalancerResource = schema.GroupVersionResource{
		Group: "apps.karmada.io", Version: "v1alpha1", Resource: "workloadrebalancers",
	}
)

// binding contains the required fields of a ResourceBinding (work.karmada.io/v1alpha2), which propagates an object
// to clusters. Other fields are preserved because updates are patches.
type binding struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              bindingSpec   `json:"spec"`
	Status            bindingStatus `json:"status"`

	applied bool // its clusters were selected for the current placement
}

type bindingSpec struct {
	Resource struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Namespace  string `json:"namespace"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
	} `json:"resource"`
	Replicas              int32             `json:"replicas"`
	ReplicaRequirements   *requirements     `json:"replicaRequirements"`
	Components            []json.RawMessage `json:"components"`
	Clusters              []target          `json:"clusters"`
	Placement             *placement        `json:"placement"`
	GracefulEvictionTasks []evictionTask    `json:"gracefulEvictionTasks"`
	SchedulerName         string            `json:"schedulerName"`
	RescheduleTriggeredAt *metav1.Time      `json:"rescheduleTriggeredAt"`
	Suspension            *struct {
		Scheduling *bool `json:"scheduling"`
	} `json:"suspension"`
	WorkloadAffinityGroups json.RawMessage `json:"workloadAffinityGroups"`
}

type evictionTask struct {
	FromCluster string `json:"fromCluster"`
}

func (b *binding) key() string { return b.Namespace + "/" + b.Name }

// suspended reports whether scheduling of the binding is suspended.
func (b *binding) suspended() bool {
	s := b.Spec.Suspension
	return s != nil && s.Scheduling != nil && *s.Scheduling
}

// lacksRoom reports whether a scheduler found no cluster with enough capacity.
func (b *binding) lacksRoom() bool {
	c := meta.FindStatusCondition(b.Status.Conditions, "Scheduled")
	return len(b.Spec.Clusters) == 0 && c != nil && c.Status == metav1.ConditionFalse &&
		(c.Reason == unschedulable || c.Reason == noClusterFit)
}

type bindingStatus struct {
	SchedulerObservedGeneration int64              `json:"schedulerObservedGeneration"`
	LastScheduledTime           *metav1.Time       `json:"lastScheduledTime"`
	Conditions                  []metav1.Condition `json:"conditions"`
	AggregatedStatus            []struct {
		ClusterName string    `json:"clusterName"`
		Status      jobStatus `json:"status"`
	} `json:"aggregatedStatus"`
}

// jobStatus contains the required fields of a Job's status. It is empty for other kinds.
type jobStatus struct {
	Active     int32              `json:"active"`
	Succeeded  int32              `json:"succeeded"`
	Failed     int32              `json:"failed"`
	Conditions []metav1.Condition `json:"conditions"`
}

// target is a cluster with its number of replicas.
type target struct {
	Name     string `json:"name"`
	Replicas int32  `json:"replicas,omitempty"`
}

// requirements contains the requirements of a replica.
type requirements struct {
	NodeClaim *struct {
		HardNodeAffinity *v1.NodeSelector  `json:"hardNodeAffinity"`
		NodeSelector     map[string]string `json:"nodeSelector"`
		Tolerations      []v1.Toleration   `json:"tolerations"`
	} `json:"nodeClaim"`
	ResourceRequest v1.ResourceList `json:"resourceRequest"`
}

// placement contains the required fields of the placement in a PropagationPolicy.
type placement struct {
	ClusterAffinity    *affinity         `json:"clusterAffinity"`
	ClusterAffinities  []json.RawMessage `json:"clusterAffinities"`
	ClusterTolerations []v1.Toleration   `json:"clusterTolerations"`
	SpreadConstraints  []spread          `json:"spreadConstraints"`
	ReplicaScheduling  *struct {
		Type             string `json:"replicaSchedulingType"`
		WeightPreference struct {
			StaticWeightList []json.RawMessage `json:"staticWeightList"`
		} `json:"weightPreference"`
	} `json:"replicaScheduling"`
	WorkloadAffinity json.RawMessage `json:"workloadAffinity"`

	written json.RawMessage // the complete placement
}

type affinity struct {
	LabelSelector *metav1.LabelSelector `json:"labelSelector"`
	FieldSelector *struct {
		MatchExpressions []v1.NodeSelectorRequirement `json:"matchExpressions"`
	} `json:"fieldSelector"`
	ClusterNames []string `json:"clusterNames"`
	Exclude      []string `json:"exclude"`
}

type spread struct {
	ByField   string `json:"spreadByField"`
	ByLabel   string `json:"spreadByLabel"`
	MaxGroups int    `json:"maxGroups"`
	MinGroups int    `json:"minGroups"`
}

// cluster contains the required fields of a Cluster (cluster.karmada.io/v1alpha1).
type cluster struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Provider string     `json:"provider"`
		Region   string     `json:"region"`
		Zone     string     `json:"zone"`
		Zones    []string   `json:"zones"`
		Taints   []v1.Taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		Conditions     []metav1.Condition `json:"conditions"`
		APIEnablements []struct {
			GroupVersion string `json:"groupVersion"`
			Resources    []struct {
				Kind string `json:"kind"`
			} `json:"resources"`
		} `json:"apiEnablements"`
	} `json:"status"`
}

// parse is an informer transform that converts unstructured objects to type T.
func parse[T any](o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	t := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, t); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return t, nil
}

// UnmarshalJSON also compares the placement with the last applied placement.
func (b *binding) UnmarshalJSON(data []byte) error {
	type plain binding
	err := kube.CheckQuantities(data)
	if err == nil {
		err = json.Unmarshal(data, (*plain)(b))
	}
	b.applied = b.Spec.Placement != nil && sameJSON(b.Spec.Placement.written, b.Annotations[appliedPlacement])
	return err
}

// UnmarshalJSON also stores the original JSON, including unknown fields.
func (p *placement) UnmarshalJSON(data []byte) error {
	type plain placement
	p.written = bytes.Clone(data)
	return json.Unmarshal(data, (*plain)(p))
}

func sameJSON(a json.RawMessage, b string) bool {
	var one, other any
	return json.Unmarshal(a, &one) == nil && json.Unmarshal([]byte(b), &other) == nil && reflect.DeepEqual(one, other)
}
