// Package api defines the request and response bodies of the controller's HTTP API for both clients and the server.
// The routes are documented in docs/reference/api.md.
package api

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// NodesPower is the response of GET /api/v1/nodes/power.
type NodesPower struct {
	Nodes []NodePower `json:"nodes"` // sorted by name
	// Members contains the nodes of other clusters in a federation, named CLUSTER/NODE. They are not used for
	// decisions.
	Members []NodePower `json:"members,omitempty"`
}

// NodePower is the current power of a node, excluding PUE.
type NodePower struct {
	Node string `json:"node"`
	// Host is the host of a node that is a virtual machine, as reported by its agent. The power of the host
	// includes the power of this node.
	Host    string         `json:"host,omitempty"`
	Watts   float64        `json:"watts"`
	AsOf    time.Time      `json:"asOf"` // time of the value by the clock of the controller
	Quality energy.Quality `json:"quality"`
	Source  string         `json:"source"`
	// Implausible is true if the value contradicts the hardware model. Such a value is displayed but not used for
	// decisions.
	Implausible bool `json:"implausible,omitempty"`
	// PowerState is the power state of the machine: asleep, booting or stopping. It is empty if the machine is
	// awake.
	PowerState string `json:"powerState,omitempty"`
	// Temperature is the temperature of the hottest CPU or GPU sensor, as reported by the agent.
	Temperature sched.Heat `json:"temperature,omitzero"`
	// Fresh contains the UIDs of pods that were first measured in the last minutes. The power of the node includes
	// them.
	Fresh []string `json:"fresh,omitempty"`
	// Findings are the problems that the agent has found on the node, in English.
	Findings []string `json:"findings,omitempty"`
}

// Hot returns the temperatures of all nodes that are currently too hot for new pods, by node name. The parameter
// skew is the offset of the local clock from the controller's clock.
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

// NodesTemperature is the response of GET /api/v1/nodes/temperature.
type NodesTemperature struct {
	Hours []ledger.Temperature `json:"hours"` // sorted by hour and node
}

// WorkloadsPower is the response of GET /api/v1/workloads/power.
type WorkloadsPower struct {
	Workloads []WorkloadPower `json:"workloads"`
}

// WorkloadPower is the expected power of one pod of an owner, smoothed over time and over all pods of the owner. It
// excludes the idle power of the node.
type WorkloadPower struct {
	Namespace  string           `json:"namespace"`
	OwnerKind  string           `json:"ownerKind"` // as in ledger.Account; CronJob for its Jobs
	Owner      string           `json:"owner"`
	Watts      float64          `json:"watts"`     // mean
	Deviation  float64          `json:"deviation"` // standard deviation
	Samples    int              `json:"samples"`
	AsOf       time.Time        `json:"asOf"`
	Containers []ContainerPower `json:"containers,omitempty"`
}

// ContainerPower is the power of one container of the pod.
type ContainerPower struct {
	Name      string  `json:"name"`
	Watts     float64 `json:"watts"`
	Deviation float64 `json:"deviation"`
}

// PodsPower is the response of GET /api/v1/pods.
type PodsPower struct {
	Pods []PodPower `json:"pods"`
}

// PodPower is the current power of a pod.
type PodPower struct {
	Namespace string         `json:"namespace"`
	Pod       string         `json:"pod"`
	UID       string         `json:"uid"`
	Node      string         `json:"node"`
	OwnerKind string         `json:"ownerKind,omitempty"`
	Owner     string         `json:"owner,omitempty"`
	Watts     float64        `json:"watts"`     // dynamic power and the pod's share of the idle power
	IdleWatts float64        `json:"idleWatts"` // the idle part of Watts
	AsOf      time.Time      `json:"asOf"`
	Quality   energy.Quality `json:"quality"`
	Source    string         `json:"source"`
}

// Decisions is the response of GET /api/v1/decisions and the request body of POST.
type Decisions struct {
	Decisions []ledger.Record `json:"decisions"`
}

// MaxForwarded is the maximum number of records in a request to POST /api/v1/clusters/{cluster}/bookings.
const MaxForwarded = 256

// Forwarded is the response of POST /api/v1/clusters/{cluster}/bookings. Every line that is not in Refused is
// recorded.
type Forwarded struct {
	Booked int `json:"booked"` // number of lines, including those recorded by earlier requests
	// Refused contains the reasons for rejected lines by line number, starting at 0. A rejected line, or an earlier
	// line of the same stream, is invalid and must not be sent again without changes.
	Refused map[int]string `json:"refused,omitempty"`
}

// Error is the body of all error responses.
type Error struct {
	Error string `json:"error"`
}
