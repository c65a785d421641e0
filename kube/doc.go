// Package kube converts between Kubernetes' objects and the core's: nodes into [sched.Node], the objects of our API and
// files of signals and power profiles into a [View], decisions into patches. What a workload may wait for is said by
// package policy.
package kube
