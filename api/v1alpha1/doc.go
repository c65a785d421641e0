// Package v1alpha1 holds the objects that KubEnergy adds to Kubernetes. Its comments are the documentation that
// kubectl explain shows.
//
// +kubebuilder:object:generate=true
// +groupName=kubenergy.io
package v1alpha1

//go:generate go tool -modfile=../../go.tools.mod controller-gen object paths=. crd:allowDangerousTypes=true,maxDescLen=400 output:crd:dir=../../charts/kubenergy/crds
