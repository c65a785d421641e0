// Package batch implements the messages between agent and controller: batches of attributed energy, numbered so
// that each is recorded once, and their acknowledgements. The protocol is specified in docs/reference/protocol.md.
package batch

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Version is the version of the protocol in every batch.
const Version = 1

// Stream identifies an unbroken sequence of batches: the state of one agent on one boot of one node. An agent that
// lost its state starts a new epoch.
type Stream struct {
	Node  string `json:"node"`
	Boot  string `json:"boot"`  // the kernel's boot ID
	Epoch string `json:"epoch"` // random
}

// A Batch is the energy of a node and its consumers in an interval. It covers the numbers First to Last of its
// stream, which differ if batches were folded while the controller was unavailable.
type Batch struct {
	Version int    `json:"version"`
	Stream  Stream `json:"stream"`
	First   uint64 `json:"first"` // 1 in a new stream; afterwards the previous Last plus one
	Last    uint64 `json:"last"`

	// Parent identifies the host and the virtual machine that this node runs in, if the host provides them. The
	// energy of the node is then part of the host's energy and excluded from sums over nodes.
	Parent *Parent `json:"parent,omitempty"`

	// Start and End are on the node's wall clock as of the end of the interval. Their difference equals the
	// difference of StartSinceBoot and EndSinceBoot.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// StartSinceBoot and EndSinceBoot are the same times on the node's clock since boot, in nanoseconds. Intervals
	// of one boot never overlap, even if the wall clock changes.
	StartSinceBoot time.Duration `json:"startSinceBoot"`
	EndSinceBoot   time.Duration `json:"endSinceBoot"`
	// Unmeasured is the part of the interval without a meter value or without a running agent.
	Unmeasured time.Duration `json:"unmeasured,omitempty"`

	Source  string         `json:"source"` // the root domain and its meter, e.g. "psys (rapl)"
	Quality energy.Quality `json:"quality"`
	// IdlePolicy is the policy used to divide idle energy: apart, requests or equal; mixed if batches of
	// different policies were folded.
	IdlePolicy string `json:"idlePolicy"`

	Measured energy.Microjoules `json:"measured"`
	Idle     energy.Microjoules `json:"idle"`
	Platform energy.Microjoules `json:"platform"`
	Unknown  energy.Microjoules `json:"unknown"`
	// GPUIdle and GPUUnknown are the parts of Idle and Unknown used by GPUs. Agents of nodes without GPUs omit
	// them, as well as the GPU energy of shares.
	GPUIdle    energy.Microjoules `json:"gpuIdle,omitempty"`
	GPUUnknown energy.Microjoules `json:"gpuUnknown,omitempty"`
	Shares     []energy.Share     `json:"shares"`
}

// Parent identifies the machine that a virtual machine runs on.
type Parent struct {
	Host string `json:"host"`
	VM   string `json:"vm"`
}

// An Ack is the response to a batch. It confirms that the batch is recorded, by this request or an earlier one.
type Ack struct {
	Epoch string `json:"epoch"`
	// Acked is the highest recorded number of the stream without gaps after the acknowledged batch.
	Acked uint64 `json:"acked"`
	// Names contains the names of the batch's pods known to the controller, by pod UID.
	Names map[string]Names `json:"names,omitempty"`
}

// Names contains the human-readable names of a pod.
type Names struct {
	Namespace  string            `json:"namespace"`
	Pod        string            `json:"pod"`
	Containers map[string]string `json:"containers,omitempty"` // container ID → name
}
