package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EnergyPolicy defines how KubEnergy treats the workloads of a namespace. Its name must be default. The
// EnergyPolicy in the namespace of KubEnergy applies to the whole cluster; namespaces, workload types and workloads
// can override its settings.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=epol,categories=kubenergy
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="the name must be default"
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

// Mode determines which actions KubEnergy may take.
//
// +kubebuilder:validation:Enum=off;shadow;advise;enforce
type Mode string

// Supported modes.
const (
	ModeOff     Mode = "off"     // no decisions are made
	ModeShadow  Mode = "shadow"  // decisions are counted, but workloads are not modified
	ModeAdvise  Mode = "advise"  // decisions are also reported to the owner as events
	ModeEnforce Mode = "enforce" // decisions are enforced
)

// EnergyPolicySpec defines the mode and the default settings of workloads, with overrides by workload type.
type EnergyPolicySpec struct {
	// mode is the mode of the namespace. The label kubenergy.io/mode of the namespace takes precedence. Defaults to
	// the mode of the cluster.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	WorkloadSettings `json:",inline"`

	// maxDelay is the maximum delay of any workload in the namespace, regardless of the delay that the workload
	// requests. The maxDelay of the cluster applies as well.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('744h')",message="must be between 0 and 744h"
	MaxDelay *metav1.Duration `json:"maxDelay,omitempty"`
	// workloadTypes overrides settings for individual workload types.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['batch','service','stateful','system','generic'])",message="keys must be batch, service, stateful, system or generic"
	// +kubebuilder:validation:MaxProperties=5
	WorkloadTypes map[string]WorkloadSettings `json:"workloadTypes,omitempty"`
}

// WorkloadSettings defines the settings of workloads. They can be set for a workload, a workload type, a namespace
// and the cluster, in this order of precedence.
type WorkloadSettings struct {
	// allowedDelay is the maximum delay of the start of workloads that do not specify it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('744h')",message="must be between 0 and 744h"
	AllowedDelay *metav1.Duration `json:"allowedDelay,omitempty"`
	// expectedDuration is the expected run time of workloads that do not specify it, until it is learnt.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('744h')",message="must be greater than 0 and at most 744h"
	ExpectedDuration *metav1.Duration `json:"expectedDuration,omitempty"`
	// +optional
	Hold *HoldSettings `json:"hold,omitempty"`
	// weights defines the cost that placement and start time minimise.
	// +optional
	Weights *Weights `json:"weights,omitempty"`
	// strategy determines how nodes are scored. The strategies ecsched-*, flow-*, min-min and max-min plan all
	// waiting pods together.
	// +optional
	// +kubebuilder:validation:Enum=balanced;carbon;ecsched-carbon;ecsched-dp;ecsched-energy;ecsched-k8s;ecsched-ml;energy;exec;fcfs;flow-carbon;flow-dp;flow-energy;flow-ml;hybrid;hybrid-idle;least-allocated;max-min;min-min;most-allocated;peaks;profile;random;round-robin
	Strategy string `json:"strategy,omitempty"`
	// order determines when waiting pods are scheduled relative to pods of the same priority. FIFO schedules pods in
	// order of arrival. Aging schedules a pod as if it had arrived later by its expected run time, but at most by an
	// hour, so that short pods are scheduled earlier. Defaults to FIFO.
	// +optional
	// +kubebuilder:validation:Enum=FIFO;Aging
	Order string `json:"order,omitempty"`
	// maxPowerWatts is the maximum power at full load of eligible nodes, in watts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=1000000
	MaxPowerWatts *float64 `json:"maxPowerWatts,omitempty"`
	// minEfficiency is the minimum efficiency of eligible nodes, in cores per watt.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	MinEfficiency *float64 `json:"minEfficiency,omitempty"`
	// gpuWorkloadType is the class of the GPU work.
	// +optional
	// +kubebuilder:validation:Enum=inference;training;rendering;generic
	GPUWorkloadType string `json:"gpuWorkloadType,omitempty"`
}

// HoldSettings defines the conditions under which held workloads start.
type HoldSettings struct {
	// rule determines the start time. Plan distributes the cheaper hours among all waiting workloads, subject to the
	// capacity of the nodes. Guarded does so if signals vary enough and capacity is not short. Window waits for the
	// cheapest window of the expected duration. Capacity waits up to 15 minutes for efficient nodes. Threshold waits
	// until carbon intensity and price are within their thresholds.
	// +optional
	// +kubebuilder:validation:Enum=Guarded;Plan;Window;Capacity;Threshold
	Rule string `json:"rule,omitempty"`
	// carbonThreshold is the maximum carbon intensity for Threshold, in gCO2e/kWh.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=10000
	CarbonThreshold *float64 `json:"carbonThreshold,omitempty"`
	// carbonPercentile is a percentile of the carbon intensity during the next 24 hours in the zone, used as
	// threshold. 25 waits for the cleanest quarter.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	CarbonPercentile *float64 `json:"carbonPercentile,omitempty"`
	// priceThreshold is the maximum price for Threshold, in the currency of the zone per kWh.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000
	// +kubebuilder:validation:Maximum=1000000
	PriceThreshold *float64 `json:"priceThreshold,omitempty"`
	// carbon determines whether the carbon intensity is considered. If false, only the price is considered.
	// +optional
	Carbon *bool `json:"carbon,omitempty"`
	// minSaving is the minimum saving of a hold, as a fraction of the cost of an immediate start.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=0.99
	MinSaving *float64 `json:"minSaving,omitempty"`
	// minSavingPerHour is the minimum saving for each hour of delay, as a fraction of the cost of an immediate
	// start. It applies to Guarded, Plan and Window.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=0.99
	MinSavingPerHour *float64 `json:"minSavingPerHour,omitempty"`
	// minSavingGrams is the minimum amount of avoided emissions of a hold, in gCO2e. It applies to Guarded, Plan and
	// Window if the carbon intensity is considered.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	MinSavingGrams *float64 `json:"minSavingGrams,omitempty"`
}

// Weights defines how estimated emissions, waiting time, price and utilisation are combined into one cost, in grams
// of CO2e.
type Weights struct {
	// carbon is the weight of each gram of emissions.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000000
	// +kubebuilder:validation:Maximum=1000000000
	Carbon float64 `json:"carbon,omitempty"`
	// wait is the weight of each hour between submission and completion, in grams.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000000
	// +kubebuilder:validation:Maximum=1000000000
	Wait float64 `json:"wait,omitempty"`
	// price is the weight of each unit of the currency, in grams.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000000
	// +kubebuilder:validation:Maximum=1000000000
	Price float64 `json:"price,omitempty"`
	// utilisation is the weight of the utilisation of the node, in grams for a fully utilised node.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000000
	// +kubebuilder:validation:Maximum=1000000000
	Utilisation float64 `json:"utilisation,omitempty"`
}

// EnergyPolicyStatus defines the observed state of EnergyPolicy.
type EnergyPolicyStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// mode is the effective mode, from the label of the namespace, this policy or the cluster.
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// held is the number of Jobs that are currently held.
	// +optional
	Held int32 `json:"held,omitempty"`
	// shadow counts the holds that would have occurred in the mode enforce since counting started.
	// +optional
	Shadow *ShadowStatus `json:"shadow,omitempty"`
	// namespaces summarises the policies of all namespaces that have their own policy. It is only set in the policy
	// of the cluster. Admission policies read it because they can access only one policy.
	// +optional
	// +kubebuilder:validation:MaxProperties=10000
	Namespaces map[string]NamespaceSummary `json:"namespaces,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceSummary is the part of a namespace's policy that is needed for admission.
type NamespaceSummary struct {
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// delays is true if workloads without annotations may be held.
	// +optional
	Delays bool `json:"delays,omitempty"`
}

// ShadowStatus counts decisions that were not enforced.
type ShadowStatus struct {
	// decided is the number of evaluated workloads.
	Decided int64 `json:"decided"`
	// held is the number of workloads that would have been held.
	Held int64 `json:"held"`
	// savedGrams is the estimated amount of emissions that the holds would have avoided, in grams of CO2e.
	SavedGrams float64 `json:"savedGrams"`
	// last is the time of the last evaluation.
	// +optional
	Last *metav1.Time `json:"last,omitempty"`
}
