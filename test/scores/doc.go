// Package scores compares the total scores of the shipped configurations with those of stock kube-scheduler, in its own
// framework with all of its plugins and on a real control plane. They must be equal for pods on which KubEnergy has no
// opinion.
package scores
