// Package scores compares the total scores of the released configurations with those of kube-scheduler, both in the
// framework with all default plugins and on a real control plane. They must be equal for pods on which KubEnergy
// has no opinion.
package scores
