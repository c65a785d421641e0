// Package v1alpha1 defines the v1alpha1 API of the kubenergy.io group. kubectl explain prints the comments of its
// types and fields.
//
// +kubebuilder:object:generate=true
// +groupName=kubenergy.io
package v1alpha1

//go:generate go tool -modfile=../../go.tools.mod controller-gen object paths=. crd:allowDangerousTypes=true,maxDescLen=400 output:crd:dir=../../charts/kubenergy/crds
