package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all objects in this package.
var GroupVersion = schema.GroupVersion{Group: "kubenergy.io", Version: "v1alpha1"}

// AddToScheme registers all types of this package with the scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&GridZone{}, &GridZoneList{}, &PowerProfile{}, &PowerProfileList{}, &EnergyPolicy{}, &EnergyPolicyList{},
		&EnergyBudget{}, &EnergyBudgetList{}, &JobProfile{}, &JobProfileList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
