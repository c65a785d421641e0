// Package hardware knows what kinds of hardware draw, and which kind a node is.
//
// A [Catalog] holds power models of CPUs, GPUs and memory, and the cloud instance types that are made of them, in the
// format of Compute Gardener's hardware-profiles.yaml. [Catalog.Detect] recognises a node by its labels, annotations
// and capacity, and returns the sum of its components as an energy.Profile. Everything that comes out is estimated, and
// says so. Nodes of equal hardware share one profile, with one name.
//
// What a node is called is never evidence of what it is, and models are compared by their whole names: "node1" is not
// "node10", and "A10" is not "A100". Hardware that is not in the catalogue is unknown; a stand-in, where there is one,
// is marked as such.
//
// The package does no I/O. It imports nothing of Kubernetes but the types of our own API group, so that the conversion
// in package kube, the command line and controllers can all use it.
package hardware

//go:generate go run ../../hack/hardware
