package kube

import (
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// Keys on nodes: the live watts of the hybrid scheduler's monitor.
const (
	thesis          = "energy.thesis.io/"
	thesisWatts     = thesis + "current-watts"
	thesisUpdated   = thesis + "last-updated" // Unix seconds
	thesisFreshness = 30 * time.Second
)

// LiveWatts returns what the hybrid scheduler's monitor wrote on a node, unless that is old: a reading is not
// believed for longer than the monitor's own period allows.
func LiveWatts(n *v1.Node, now time.Time) (energy.Watts, bool) {
	text, ok := n.Annotations[thesisWatts]
	if !ok {
		return 0, false
	}
	watts, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(watts >= 0 && watts <= 1e6) {
		return 0, false
	}
	updated, err := strconv.ParseFloat(strings.TrimSpace(n.Annotations[thesisUpdated]), 64)
	if err != nil || !(updated >= 0 && updated <= 1e11) {
		return 0, false
	}
	age := now.Sub(time.Unix(int64(updated), 0))
	return energy.Watts(watts), age <= thesisFreshness && age >= -thesisFreshness
}

// Allocatable returns what a node offers to pods.
func Allocatable(n *v1.Node) sched.Resources { return policy.ResourcesOf(n.Status.Allocatable) }
