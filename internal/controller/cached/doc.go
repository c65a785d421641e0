// Package cached configures the controller's cache of Kubernetes objects. It trims objects to the fields that some
// component reads, indexes pods by node and Jobs and pods by budget annotations, and registers event handlers.
//
// A cluster may have 150,000 pods. Trimming does not change how the other packages read an object (TestTrim), and
// values that many pods have in common are stored once (TestTrimmedPodsShare). If the API server is unavailable or
// a kind is not installed, watching it is retried indefinitely.
package cached
