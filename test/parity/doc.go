// Package parity holds the test that what is simulated is what runs: the simulator and the real kube-scheduler with our
// plugins, given the same scenario one arrival at a time, choose the same node for every job.
package parity
