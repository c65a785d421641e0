// Package kube converts between Kubernetes' objects and the core's: pods and Jobs into [sched.Job], nodes into
// [sched.Node], files of signals and power profiles into a [View]. It is the only place that knows the names of our
// annotations and labels, and the only one that says what is never held.
//
// Everything that it reads was written by somebody else. Values that make no sense give an error that names the
// annotation, and the caller then treats the object as if nobody had marked it: stock Kubernetes is always the answer
// to nonsense. The package talks to no API server and changes no object.
package kube
