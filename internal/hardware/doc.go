// Package hardware provides power models of hardware and recognises the hardware of nodes.
//
// A [Catalog] contains power models of CPUs, GPUs and memory, and the components of cloud instance types, in the
// format of Compute Gardener's hardware-profiles.yaml. [Catalog.Detect] recognises a node by its labels,
// annotations and capacity, and returns the sum of its components as an energy.Profile. All results have the
// quality estimated. Nodes with equal hardware share one profile with the same name.
//
// The name of a node is never used to recognise it, and models are compared by their whole names: "node1" does not
// match "node10", and "A10" does not match "A100". Hardware that is not in the catalogue is unknown. Fallback
// profiles are marked as such.
//
// The package does no I/O. Of Kubernetes, it only imports the types of our own API group, so that it can be used by
// package kube, the command line and controllers.
package hardware

//go:generate go run ../../hack/hardware
