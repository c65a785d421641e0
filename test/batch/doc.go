// Package batch tests batch plans for pending pods with a real control plane, including concurrent schedulers,
// deleted nodes and infeasible batches.
package batch
