// Package plugin puts the core's decisions into kube-scheduler: [Energy] says where marked pods run, [Hold] keeps
// bare pods from being tried before their time. It converts and obeys; every decision is made in package sched or by
// the [Gate]. Whoever builds a scheduler of their own with these plugins puts scheduler/parking in front of its
// queue, or held pods cost it time whenever anything happens in the cluster.
//
// Whatever goes wrong in here, be it missing or stale knowledge, annotations that make no sense or a panic, ends in
// what stock kube-scheduler would have done. Nothing waits, calls the network or writes to the API server.
package place
