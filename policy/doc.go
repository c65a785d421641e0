// Package policy says who may wait for what: it reads what people and other systems write on pods, Jobs and
// namespaces, settles it with the EnergyPolicies and the defaults of the cluster, and knows what is never held.
//
// Everything that it reads was written by somebody else. Values that make no sense give an error that names the
// annotation, and the caller then treats the object as if nobody had marked it: stock Kubernetes is always the answer
// to nonsense. The package talks to no API server and changes no object.
package policy
