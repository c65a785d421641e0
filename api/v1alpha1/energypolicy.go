package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EnergyPolicy says what KubEnergy may do with the workloads of a namespace. It is named default. The one in
// KubEnergy's own namespace is that of the cluster: it holds wherever a namespace, a workload type or a workload says
// nothing else.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=epol,categories=kubenergy
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="there is one EnergyPolicy in a namespace, named default"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.mode`
// +kubebuilder:printcolumn:name="Rule",type=string,JSONPath=`.spec.hold.rule`,priority=1
// +kubebuilder:printcolumn:name="Allowed delay",type=string,JSONPath=`.spec.allowedDelay`
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.held`
// +kubebuilder:printcolumn:name="Would hold",type=integer,JSONPath=`.status.shadow.held`,priority=1
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EnergyPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec EnergyPolicySpec `json:"spec"`
	// +optional
	Status EnergyPolicyStatus `json:"status,omitempty"`
}

// EnergyPolicyList is a list of EnergyPolicies.
//
// +kubebuilder:object:root=true
type EnergyPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EnergyPolicy `json:"items"`
}

// Mode says how far KubEnergy goes.
//
// +kubebuilder:validation:Enum=off;shadow;advise;enforce
type Mode string

// The modes.
const (
	ModeOff     Mode = "off"     // nothing is decided
	ModeShadow  Mode = "shadow"  // decisions are counted, nothing is touched
	ModeAdvise  Mode = "advise"  // decisions are also told to the owner, as events
	ModeEnforce Mode = "enforce" // decisions are carried out
)

// EnergyPolicySpec says how far KubEnergy goes, and the settings of workloads by type.
type EnergyPolicySpec struct {
	// The label kubenergy.io/mode of the namespace comes first; by default the cluster's mode.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	WorkloadSettings `json:",inline"`

	// No hold of this namespace lasts longer, whatever a workload asks for. That of the cluster holds as well.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('744h')",message="want 0 to 744h"
	MaxDelay *metav1.Duration `json:"maxDelay,omitempty"`
	// What differs by workload type.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['batch','service','stateful','system','generic'])",message="workload types are batch, service, stateful, system and generic"
	// +kubebuilder:validation:MaxProperties=5
	WorkloadTypes map[string]WorkloadSettings `json:"workloadTypes,omitempty"`
}

// WorkloadSettings are what a workload, a workload type, a namespace and the cluster may say, in this order.
type WorkloadSettings struct {
	// How long the start of a workload that does not say so itself may be put off.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('744h')",message="want 0 to 744h"
	AllowedDelay *metav1.Duration `json:"allowedDelay,omitempty"`
	// How long a workload that does not say so itself is expected to run.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('744h')",message="want more than 0, up to 744h"
	ExpectedDuration *metav1.Duration `json:"expectedDuration,omitempty"`
	// +optional
	Hold *HoldSettings `json:"hold,omitempty"`
	// What cost means, for where and for when.
	// +optional
	Weights *Weights `json:"weights,omitempty"`
	// How nodes are scored, or, by one of ecsched-, flow-, min-min and max-min, how all waiting pods are planned
	// together.
	// +optional
	// +kubebuilder:validation:Enum=balanced;carbon;ecsched-carbon;ecsched-dp;ecsched-energy;ecsched-k8s;ecsched-ml;energy;exec;fcfs;flow-carbon;flow-dp;flow-energy;flow-ml;hybrid;hybrid-idle;least-allocated;max-min;min-min;most-allocated;peaks;profile;random;round-robin
	Strategy string `json:"strategy,omitempty"`
	// Only nodes whose full power is at most this.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=1000000
	MaxPowerWatts *float64 `json:"maxPowerWatts,omitempty"`
	// Only nodes that are at least so efficient.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	MinEfficiency *float64 `json:"minEfficiency,omitempty"`
	// Class of GPU work.
	// +optional
	// +kubebuilder:validation:Enum=inference;training;rendering;generic
	GPUWorkloadType string `json:"gpuWorkloadType,omitempty"`
}

// HoldSettings say what a hold waits for.
type HoldSettings struct {
	// Window waits for the cheapest window of the workload's duration. Plan shares the cheaper hours out among all that
	// waits, as far as machines have room. Threshold waits until carbon intensity and price are not above their
	// thresholds.
	// +optional
	// +kubebuilder:validation:Enum=Window;Threshold;Plan
	Rule string `json:"rule,omitempty"`
	// In gCO2e/kWh.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=10000
	CarbonThreshold *float64 `json:"carbonThreshold,omitempty"`
	// Percentile of the zone's next 24 hours: 25 waits for the cleanest quarter.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	CarbonPercentile *float64 `json:"carbonPercentile,omitempty"`
	// In the zone's currency per kWh.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000
	// +kubebuilder:validation:Maximum=1000000
	PriceThreshold *float64 `json:"priceThreshold,omitempty"`
	// Whether carbon intensity counts: false leaves price alone.
	// +optional
	Carbon *bool `json:"carbon,omitempty"`
	// Share of the cost of starting at once that a hold must save.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=0.99
	MinSaving *float64 `json:"minSaving,omitempty"`
	// Share of that cost that each hour of waiting must save, where Window or Plan chooses the start.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=0.99
	MinSavingPerHour *float64 `json:"minSavingPerHour,omitempty"`
	// Emissions that a hold must save, in gCO2e, where Window or Plan chooses the start and carbon counts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	MinSavingGrams *float64 `json:"minSavingGrams,omitempty"`
}

// Weights turn an estimate into one number, in grams of CO2e.
type Weights struct {
	// Per gram emitted.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000000
	// +kubebuilder:validation:Maximum=1000000000
	Carbon float64 `json:"carbon,omitempty"`
	// Grams per hour between submission and finish.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000000
	// +kubebuilder:validation:Maximum=1000000000
	Wait float64 `json:"wait,omitempty"`
	// Grams per unit of money.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000000
	// +kubebuilder:validation:Maximum=1000000000
	Price float64 `json:"price,omitempty"`
	// Grams at a fully used node.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000000
	// +kubebuilder:validation:Maximum=1000000000
	Utilisation float64 `json:"utilisation,omitempty"`
}

// EnergyPolicyStatus is what follows from the policy.
type EnergyPolicyStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Mode that holds: of the namespace's label, of the policy, or of the cluster.
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// Jobs that are held now.
	// +optional
	Held int32 `json:"held,omitempty"`
	// What would have happened under enforce, since it was first counted.
	// +optional
	Shadow *ShadowStatus `json:"shadow,omitempty"`
	// Of the cluster's policy: what the namespaces say that have a policy of their own. Admission reads it here,
	// since it can look at one policy only.
	// +optional
	// +kubebuilder:validation:MaxProperties=10000
	Namespaces map[string]NamespaceSummary `json:"namespaces,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceSummary is what admission must know of a namespace's policy.
type NamespaceSummary struct {
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// Workloads that say nothing may wait.
	// +optional
	Delays bool `json:"delays,omitempty"`
}

// ShadowStatus counts decisions that were not carried out.
type ShadowStatus struct {
	// Workloads that were looked at.
	Decided int64 `json:"decided"`
	// Workloads that would have been held.
	Held int64 `json:"held"`
	// Estimated emissions that the holds would have avoided.
	SavedGrams float64 `json:"savedGrams"`
	// When the last one was looked at.
	// +optional
	Last *metav1.Time `json:"last,omitempty"`
}
