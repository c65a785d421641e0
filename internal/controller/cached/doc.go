// Package cached is what the controller keeps of the cluster in memory: objects trimmed to what some part reads, pods
// by their node, what may have a budget for itself, and handlers that are told of every object.
//
// A cluster may have 150,000 pods. What is trimmed still reads the same to every part (TestTrim), and what pods have
// in common is there once (TestTrimmedPodsShare). While the API server is away or a kind is missing, following it is
// tried again for good.
package cached
