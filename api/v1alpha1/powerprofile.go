package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PowerProfile is the power model of a class of hardware.
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

// PowerProfileSpec defines the power consumption of a class of hardware and selects the nodes that belong to it.
//
// +kubebuilder:validation:XValidation:rule="has(self.curve) || has(self.maxWatts)",message="maxWatts or curve is required"
// +kubebuilder:validation:XValidation:rule="!has(self.maxWatts) || !has(self.idleWatts) || self.idleWatts <= self.maxWatts",message="idleWatts must not be greater than maxWatts"
type PowerProfileSpec struct {
	// default determines whether this profile is used for nodes without a profile label, without a matching profile
	// and with unrecognised hardware.
	// +optional
	Default bool `json:"default,omitempty"`
	// nodeSelector selects the nodes that use this profile by their labels. The label kubenergy.io/power-profile of
	// a node takes precedence.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// idleWatts is the power of an idle node, in watts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	IdleWatts float64 `json:"idleWatts,omitempty"`
	// maxWatts is the power at full load, in watts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxWatts float64 `json:"maxWatts,omitempty"`
	// exponent is the exponent of the power model P(u) = idle + (max − idle)·u^exponent. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Exponent float64 `json:"exponent,omitempty"`
	// curve lists measured points, which replace idleWatts, maxWatts and exponent.
	// +optional
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=101
	Curve []CurvePoint `json:"curve,omitempty"`
	// sleepWatts is the power of a sleeping machine, in watts. If not set, the machine never sleeps.
	// kubenergy-power also requires bootSeconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SleepWatts *float64 `json:"sleepWatts,omitempty"`
	// wakeUpJoules is the energy of one boot in addition to sleepWatts, in joules: the energy at the wall from the
	// wake-up request until the node is Ready, minus sleepWatts for the same time.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WakeUpJoules float64 `json:"wakeUpJoules,omitempty"`
	// bootSeconds is the time from the wake-up request until the node can run pods, in seconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	BootSeconds float64 `json:"bootSeconds,omitempty"`
	// gpuIdleWatts is the power of each idle GPU, in watts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUIdleWatts float64 `json:"gpuIdleWatts,omitempty"`
	// gpuMaxWatts is the power of each GPU at full load, in watts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUMaxWatts float64 `json:"gpuMaxWatts,omitempty"`
	// gpuClasses maps classes of GPU work, such as inference, training or rendering, to their power as a fraction
	// of the range between idle and full load.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	GPUClasses map[string]float64 `json:"gpuClasses,omitempty"`
	// memoryWatts is the part of the range between idleWatts and maxWatts that fully used memory consumes, in
	// watts. If not set, the power of memory is not modelled separately and follows the CPU. It cannot be combined
	// with a curve.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryWatts float64 `json:"memoryWatts,omitempty"`
	// maxTemperatureCelsius is the maximum temperature of the hottest CPU or GPU sensor, in degrees Celsius.
	// KubEnergy's scheduler places no pods on a hotter node until its temperature is 5 degrees below the maximum.
	// If not set, there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=150
	MaxTemperatureCelsius int32 `json:"maxTemperatureCelsius,omitempty"`
	// pue is the facility energy divided by the energy of the node. Defaults to the PUE of the zone.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	PUE *float64 `json:"pue,omitempty"`
	// benchmarks lists the measured performance and power for each workload class.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Benchmarks []Benchmark `json:"benchmarks,omitempty"`
	// quality determines how the values were obtained: measured by a meter, derived from measurements, or estimated
	// by a model.
	// +optional
	// +kubebuilder:validation:Enum=measured;derived;estimated
	// +kubebuilder:default=estimated
	Quality string `json:"quality,omitempty"`
	// source is the publication that contains the values.
	// +optional
	Source string `json:"source,omitempty"`
}

// CurvePoint is the power of a node at a given utilisation.
type CurvePoint struct {
	// utilisation is the utilisation of the node, from 0 to 1.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	Utilisation float64 `json:"utilisation"`
	// watts is the power of the node at this utilisation, in watts.
	// +kubebuilder:validation:Minimum=0
	Watts float64 `json:"watts"`
}

// Benchmark contains the measured performance and power of a node for a workload class.
type Benchmark struct {
	// class is the workload class, e.g. training, inference or sequential.
	// +kubebuilder:validation:MinLength=1
	Class string `json:"class"`
	// rate is the amount of work per unit of time. All nodes must use the same unit for a class.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	Rate float64 `json:"rate"`
	// watts is the power of the node under this load, in watts.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	Watts float64 `json:"watts"`
	// idleWatts is the power of the node before the benchmark, in watts.
	// +kubebuilder:validation:Minimum=0
	IdleWatts float64 `json:"idleWatts"`
}

// PowerProfileStatus defines the observed state of PowerProfile.
type PowerProfileStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// nodes is the number of nodes that use this profile.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
