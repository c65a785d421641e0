// Package perf compares kube-scheduler with and without the KubEnergy plugins in alternating runs.
// docs/measurements/performance.md describes the measurements. Without KUBENERGY_BENCH, the tests only verify that
// the measurements can be run.
package perf
