// Package karmada makes Karmada schedule workloads in the clusters and at the times with the lowest cost. Karmada
// remains the owner of its objects, and the policies of users are never changed.
//
// The start time is controlled by an admission policy that creates the bindings of Jobs with suspended scheduling.
// The hold loop of the federation, package hold, holds the Jobs, and the [Driver] releases a binding when its Job
// is not suspended. The clusters are selected by an estimator for karmada-scheduler: it reports replicas only for
// the best clusters with enough capacity for the whole binding. Bindings with schedulerName: kubenergy in their
// policy are scheduled by the Driver itself.
package karmada
