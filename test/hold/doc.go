// Package hold tests the holding of Jobs and pods on a real control plane, with the kubenergy-scheduler, the admission
// policies and the rights that are shipped: the deadline promise (P1), what is never held, and what happens when
// signals and replicas die.
package hold
