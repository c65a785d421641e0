// Package hold tests the holding of Jobs and pods on a real control plane with the released kubenergy-scheduler,
// admission policies and permissions. It covers the deadline guarantee (P1), workloads that are never held, and the
// loss of signals and replicas.
package hold
