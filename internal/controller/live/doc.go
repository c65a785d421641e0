// Package live holds what nodes, pods and workloads draw just now, in memory: what the scheduler polls and what
// people see in a list of pods. It is told of every booking after it is safe, and of the readings of network meters.
//
// A value says as of when it is true, and how good it is; a reader that decides by it drops what is old. Nothing in
// here is booked: a restart begins with nothing and knows the cluster again after one round of batches.
package live
