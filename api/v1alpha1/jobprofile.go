package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// JobProfile contains the run times of the Jobs of its namespace. The controller learns them from Jobs that have
// completed. It is named default. Objects with other names have no effect.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=jp,categories=kubenergy
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Runs",type=integer,JSONPath=`.status.runs`
// +kubebuilder:printcolumn:name="Last completion",type=date,JSONPath=`.status.lastCompletion`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type JobProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec JobProfileSpec `json:"spec,omitempty"`
	// +optional
	Status JobProfileStatus `json:"status,omitempty"`
}

// JobProfileList is a list of JobProfiles.
//
// +kubebuilder:object:root=true
type JobProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []JobProfile `json:"items"`
}

// JobProfileSpec defines which run times are used.
type JobProfileSpec struct {
	// forgetBefore resets the profile: run times of Jobs that completed until this time are not used.
	// `kubenergy forget` sets it.
	// +optional
	ForgetBefore *metav1.Time `json:"forgetBefore,omitempty"`
}

// JobProfileStatus contains the learnt run times. Only the controller writes it.
type JobProfileStatus struct {
	// runs is the number of learnt run times.
	// +optional
	Runs int64 `json:"runs,omitempty"`
	// lastCompletion is the completion time of the last learnt Job.
	// +optional
	LastCompletion *metav1.Time `json:"lastCompletion,omitempty"`
	// lastUID is the UID of the last learnt Job.
	// +optional
	LastUID types.UID `json:"lastUID,omitempty"`
	// forgottenBefore is the value of spec.forgetBefore that has taken effect.
	// +optional
	ForgottenBefore *metav1.Time `json:"forgottenBefore,omitempty"`
	// outcomes are the weights of the predicted quantiles at which run times were, in bins of equal width.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Outcomes []float64 `json:"outcomes,omitempty"`
	// groups are the run times of similar Jobs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=400
	Groups []RunTimeGroup `json:"groups,omitempty"`
}

// RunTimeGroup is a histogram of the run times of similar Jobs, in which older run times have less weight.
type RunTimeGroup struct {
	// level determines which Jobs are similar: 0 for all Jobs, 1 for the same request, 2 for the same owner, and 3
	// for the same owner and request.
	Level int32 `json:"level"`
	// owner is the name of the Jobs without generated suffixes. For runs of a CronJob, it is the name of the CronJob.
	// +optional
	Owner string `json:"owner,omitempty"`
	// milliCPU is the requested CPU of all pods that a Job runs in parallel, in thousandths of a core.
	// +optional
	MilliCPU int64 `json:"milliCPU,omitempty"`
	// memoryBytes is their requested memory, in bytes.
	// +optional
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// milliGPU are their requested GPUs, in thousandths of a device.
	// +optional
	MilliGPU int64 `json:"milliGPU,omitempty"`
	// runs is the number of run times.
	Runs int64 `json:"runs"`
	// last is the number of run times in the profile at the last one of this group.
	Last int64 `json:"last"`
	// unit is the weight of the last run time.
	Unit float64 `json:"unit"`
	// bins are the bins of run times, which have a ratio of 1.05 and start with one second.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=320
	Bins []int32 `json:"bins"`
	// weights are the weights of the run times by bin.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=320
	Weights []float64 `json:"weights"`
}
