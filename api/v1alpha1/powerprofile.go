package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PowerProfile is the power model of a kind of hardware.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=pp,categories=kubenergy
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Idle W",type=number,JSONPath=`.spec.idleWatts`
// +kubebuilder:printcolumn:name="Max W",type=number,JSONPath=`.spec.maxWatts`
// +kubebuilder:printcolumn:name="GPU max W",type=number,JSONPath=`.spec.gpuMaxWatts`,priority=1
// +kubebuilder:printcolumn:name="Quality",type=string,JSONPath=`.spec.quality`,priority=1
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PowerProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PowerProfileSpec `json:"spec"`
	// +optional
	Status PowerProfileStatus `json:"status,omitempty"`
}

// PowerProfileList is a list of PowerProfiles.
//
// +kubebuilder:object:root=true
type PowerProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PowerProfile `json:"items"`
}

// PowerProfileSpec says what a node of the kind draws, and which nodes are of the kind.
//
// +kubebuilder:validation:XValidation:rule="has(self.curve) || has(self.maxWatts)",message="give maxWatts, or a curve"
// +kubebuilder:validation:XValidation:rule="!has(self.maxWatts) || !has(self.idleWatts) || self.idleWatts <= self.maxWatts",message="idleWatts must not be above maxWatts"
type PowerProfileSpec struct {
	// Nodes that name no profile, that no profile selects, and whose hardware is not recognised, have this one.
	// +optional
	Default bool `json:"default,omitempty"`
	// Labels of the nodes that have this profile. A node's label kubenergy.io/power-profile comes first.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Power without load.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	IdleWatts float64 `json:"idleWatts,omitempty"`
	// Power at full load.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxWatts float64 `json:"maxWatts,omitempty"`
	// P(u) = idle + (max − idle)·u^exponent; by default 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Exponent float64 `json:"exponent,omitempty"`
	// Measured points, in place of idle, max and exponent.
	// +optional
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=101
	Curve []CurvePoint `json:"curve,omitempty"`
	// Power of a machine that sleeps; by default it never does. What kubenergy-power puts to sleep needs bootSeconds
	// too.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SleepWatts *float64 `json:"sleepWatts,omitempty"`
	// Energy of one boot beyond sleepWatts: what a meter at the wall counts from the order to wake until the node is
	// Ready, less sleepWatts for as long.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WakeUpJoules float64 `json:"wakeUpJoules,omitempty"`
	// Seconds from the order to wake until work can begin.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	BootSeconds float64 `json:"bootSeconds,omitempty"`
	// Power of each GPU that is not in use.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUIdleWatts float64 `json:"gpuIdleWatts,omitempty"`
	// Power of each GPU at full load.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUMaxWatts float64 `json:"gpuMaxWatts,omitempty"`
	// Share of the range between idle and full load that a class of GPU work draws: inference, training, rendering.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	GPUClasses map[string]float64 `json:"gpuClasses,omitempty"`
	// What memory draws, of the way from idleWatts to maxWatts, when all of it is in use; by default it is not told
	// apart, and follows the CPU. It does not go with a curve.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryWatts float64 `json:"memoryWatts,omitempty"`
	// Degrees Celsius of the hottest sensor of its CPUs and GPUs, above which a node takes no pods that our scheduler
	// places, until it is 5 degrees below; by default there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=150
	MaxTemperatureCelsius int32 `json:"maxTemperatureCelsius,omitempty"`
	// How many times the energy of the node itself the facility draws for it; by default that of its zone.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	PUE *float64 `json:"pue,omitempty"`
	// Measured work and power per class of workload.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Benchmarks []Benchmark `json:"benchmarks,omitempty"`
	// How the numbers were found: from a meter, computed from one, or by a model.
	// +optional
	// +kubebuilder:validation:Enum=measured;derived;estimated
	// +kubebuilder:default=estimated
	Quality string `json:"quality,omitempty"`
	// Where the numbers were published.
	// +optional
	Source string `json:"source,omitempty"`
}

// CurvePoint is power at a utilisation.
type CurvePoint struct {
	// Share of the node that is busy.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	Utilisation float64 `json:"utilisation"`
	// Power of the node then.
	// +kubebuilder:validation:Minimum=0
	Watts float64 `json:"watts"`
}

// Benchmark is how fast a node of the kind does a class of work, and what it draws meanwhile.
type Benchmark struct {
	// Class of workload, as pods name it in the label workload-profile: training, inference, sequential.
	// +kubebuilder:validation:MinLength=1
	Class string `json:"class"`
	// Work per unit of time; the unit is the same for all nodes of a class.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	Rate float64 `json:"rate"`
	// Power of the node under this load.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	Watts float64 `json:"watts"`
	// Power of the node before.
	// +kubebuilder:validation:Minimum=0
	IdleWatts float64 `json:"idleWatts"`
}

// PowerProfileStatus says whether the profile can be used, and by how many.
type PowerProfileStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Nodes of this kind.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
