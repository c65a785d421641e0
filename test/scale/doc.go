// Package scale measures KubEnergy programs in a large cluster with many nodes and pods on a real API server and
// the load of an agent on each node.
package scale
