// Package perf measures what our plugins cost kube-scheduler, beside kube-scheduler without them, in turns and in one
// run. docs/measurements/performance.md says what each measurement is and how to run it; a run of the tests without
// KUBENERGY_BENCH only shows that the measurements work.
package perf
