// Package parity tests that simulations match real runs. Given the same scenario one arrival at a time, the
// simulator and kube-scheduler with the KubEnergy plugins choose the same node for every job.
package parity
