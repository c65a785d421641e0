// Package karmada has Karmada send work to the cluster with room where it costs least, and when. Karmada stays in
// charge of what it owns: policies of users are read and never written.
//
// When: bindings of Jobs are created with scheduling suspended, by an admission policy, where Jobs may be held at all.
// The hold loop of the federation, package hold, holds the Jobs themselves; the [Driver] lets a binding go once its Job
// is not suspended. Where: its estimator answers the question that karmada-scheduler asks of each cluster, how many
// replicas it has room for, such that the best clusters with room for all of a binding are the answer. Bindings whose
// policy says schedulerName: kubenergy are scheduled by the Driver itself.
package karmada
