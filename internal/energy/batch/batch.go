// Package batch holds what an agent tells the controller: batches of attributed energy, numbered so that each is
// booked once, and the acknowledgements that come back. docs/reference/protocol.md says how they travel.
package batch

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Version is the version of the protocol, in every batch.
const Version = 1

// Stream names an unbroken sequence of batches: one agent's state on one boot of one node. An agent that lost its state
// begins a new epoch.
type Stream struct {
	Node  string `json:"node"`
	Boot  string `json:"boot"`  // the kernel's boot ID
	Epoch string `json:"epoch"` // random
}

// A Batch is what a node and its consumers used in an interval. It covers the numbers First to Last of its stream: more
// than one when batches were folded while the controller was away.
type Batch struct {
	Version int    `json:"version"`
	Stream  Stream `json:"stream"`
	First   uint64 `json:"first"` // 1 in a new stream; afterwards one more than the Last before
	Last    uint64 `json:"last"`

	// Parent names the host and the virtual machine that this node is, where the host says so: its energy is then
	// part of the host's, and sums over nodes leave it out.
	Parent *Parent `json:"parent,omitempty"`

	// Both by the node's wall clock as it stood when the interval ended: their distance is that of the next two.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// The same on the node's clock since boot, in nanoseconds: intervals of one boot never overlap, whatever the wall
	// clock does.
	StartSinceBoot time.Duration `json:"startSinceBoot"`
	EndSinceBoot   time.Duration `json:"endSinceBoot"`
	// Unmeasured is the part of the interval for which no meter gave a value, or no agent ran.
	Unmeasured time.Duration `json:"unmeasured,omitempty"`

	Source  string         `json:"source"` // the root domain and its meter, as "psys (rapl)"
	Quality energy.Quality `json:"quality"`
	// IdlePolicy says how idle energy was shared: apart, requests or equal; mixed if batches of several were folded.
	IdlePolicy string `json:"idlePolicy"`

	Measured energy.Microjoules `json:"measured"`
	Idle     energy.Microjoules `json:"idle"`
	Platform energy.Microjoules `json:"platform"`
	Unknown  energy.Microjoules `json:"unknown"`
	// Of Idle and Unknown, what GPUs used. Agents of nodes without GPUs send neither, nor that of shares.
	GPUIdle    energy.Microjoules `json:"gpuIdle,omitempty"`
	GPUUnknown energy.Microjoules `json:"gpuUnknown,omitempty"`
	Shares     []energy.Share     `json:"shares"`
}

// Parent is the machine that a virtual machine runs on.
type Parent struct {
	Host string `json:"host"`
	VM   string `json:"vm"`
}

// An Ack answers a batch: it was booked, now or before.
type Ack struct {
	Epoch string `json:"epoch"`
	// the highest number of the stream that is booked, without gaps after the batch answered
	Acked uint64 `json:"acked"`
	// Names are those of the batch's pods that the controller knows, by pod UID.
	Names map[string]Names `json:"names,omitempty"`
}

// Names are what people call a pod.
type Names struct {
	Namespace  string            `json:"namespace"`
	Pod        string            `json:"pod"`
	Containers map[string]string `json:"containers,omitempty"` // container ID → name
}
