// Package api holds what the controller's HTTP interface says, for both of its ends. docs/reference/api.md describes
// the routes.
package api

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// NodesPower is the answer of GET /api/v1/nodes/power.
type NodesPower struct {
	Nodes []NodePower `json:"nodes"` // by name
	// Members are nodes of other clusters of a federation, as CLUSTER/NODE: nothing is decided by them.
	Members []NodePower `json:"members,omitempty"`
}

// NodePower is what a node draws now, without PUE.
type NodePower struct {
	Node string `json:"node"`
	// Host is the machine that this node is a virtual machine of, by its agent: the host's value includes this one.
	Host    string         `json:"host,omitempty"`
	Watts   float64        `json:"watts"`
	AsOf    time.Time      `json:"asOf"` // by the clock of the controller: when the value was true
	Quality energy.Quality `json:"quality"`
	Source  string         `json:"source"`
	// Implausible says that a model of the hardware contradicts the value; it is then shown and not decided by.
	Implausible bool `json:"implausible,omitempty"`
	// PowerState is what its machine does: asleep, booting or stopping; empty: it is awake.
	PowerState string `json:"powerState,omitempty"`
	// Temperature is that of the hottest sensor of its CPUs and GPUs, by its agent.
	Temperature sched.Heat `json:"temperature,omitzero"`
	// Fresh are UIDs of pods whose energy was seen for the first time in the last minutes: the value includes theirs.
	Fresh []string `json:"fresh,omitempty"`
}

// Hot returns the nodes that are too hot to take pods now, by name, by a clock that is ahead by skew.
func (p *NodesPower) Hot(now time.Time, skew time.Duration) map[string]sched.Heat {
	hot := map[string]sched.Heat{}
	for _, n := range p.Nodes {
		n.Temperature.AsOf = n.Temperature.AsOf.Add(skew)
		if _, refuses := n.Temperature.Refuses(now); refuses {
			hot[n.Node] = n.Temperature
		}
	}
	return hot
}

// NodesTemperature is the answer of GET /api/v1/nodes/temperature.
type NodesTemperature struct {
	Hours []ledger.Temperature `json:"hours"` // by hour and node
}

// WorkloadsPower is the answer of GET /api/v1/workloads/power.
type WorkloadsPower struct {
	Workloads []WorkloadPower `json:"workloads"`
}

// WorkloadPower is what one pod of an owner draws, smoothed over time and over its pods: idle shares are not in it.
type WorkloadPower struct {
	Namespace  string           `json:"namespace"`
	OwnerKind  string           `json:"ownerKind"` // as ledger.Account; of Jobs of a CronJob, the CronJob
	Owner      string           `json:"owner"`
	Watts      float64          `json:"watts"`     // mean
	Deviation  float64          `json:"deviation"` // standard deviation
	Samples    int              `json:"samples"`
	AsOf       time.Time        `json:"asOf"`
	Containers []ContainerPower `json:"containers,omitempty"`
}

// ContainerPower is the part of one of its containers.
type ContainerPower struct {
	Name      string  `json:"name"`
	Watts     float64 `json:"watts"`
	Deviation float64 `json:"deviation"`
}

// PodsPower is the answer of GET /api/v1/pods.
type PodsPower struct {
	Pods []PodPower `json:"pods"`
}

// PodPower is what a pod draws now.
type PodPower struct {
	Namespace string         `json:"namespace"`
	Pod       string         `json:"pod"`
	UID       string         `json:"uid"`
	Node      string         `json:"node"`
	OwnerKind string         `json:"ownerKind,omitempty"`
	Owner     string         `json:"owner,omitempty"`
	Watts     float64        `json:"watts"`     // dynamic and its share of idle
	IdleWatts float64        `json:"idleWatts"` // of them
	AsOf      time.Time      `json:"asOf"`
	Quality   energy.Quality `json:"quality"`
	Source    string         `json:"source"`
}

// Decisions is the answer of GET /api/v1/decisions, and what POST takes.
type Decisions struct {
	Decisions []ledger.Record `json:"decisions"`
}

// MaxForwarded is how many bookings a request to POST /api/v1/clusters/{cluster}/bookings has at most.
const MaxForwarded = 256

// Forwarded is the answer of POST /api/v1/clusters/{cluster}/bookings: every line that is not refused is booked.
type Forwarded struct {
	Booked int `json:"booked"` // lines, now or before
	// Refused says why lines are not booked, by their number from 0: they, or one of their stream before them, never
	// will be as they are.
	Refused map[int]string `json:"refused,omitempty"`
}

// Error is the body of every answer that is no success.
type Error struct {
	Error string `json:"error"`
}
