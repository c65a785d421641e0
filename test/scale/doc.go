// Package scale measures our programs at the size of a large cluster: many nodes and pods on a real API server, and
// an agent's load for each of them.
package scale
