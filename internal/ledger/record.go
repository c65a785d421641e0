package ledger

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// A Record is a scheduling decision with its inputs, so that it can be replayed with another strategy.
type Record struct {
	ID        string         `json:"id"` // random; used for deduplication
	At        time.Time      `json:"at"`
	Action    string         `json:"action"` // place, hold, release or move
	Namespace string         `json:"namespace"`
	OwnerKind string         `json:"ownerKind,omitempty"` // Job, or Pod
	Owner     string         `json:"owner"`
	UID       string         `json:"uid"` // UID of the pod, or of the held Job
	Strategy  string         `json:"strategy"`
	Node      string         `json:"node,omitempty"`
	Start     time.Time      `json:"start,omitzero"` // start of the window
	End       time.Time      `json:"end,omitzero"`
	Energy    energy.Joules  `json:"energyJoules"` // expected energy, as are Carbon and Cost
	Carbon    energy.Grams   `json:"carbonGrams"`
	Cost      float64        `json:"cost"`
	Intensity float64        `json:"carbonIntensity,omitempty"` // in gCO2e per kWh at the chosen site at decision time
	Saving    float64        `json:"saving,omitempty"`          // of a hold: expected fraction of an immediate start
	Saved     energy.Grams   `json:"savedGrams,omitempty"`      // expected saving of emissions
	Reason    string         `json:"reason"`
	Message   string         `json:"message,omitempty"`
	Digest    string         `json:"digest"`             // SHA-256 of the snapshot, in hex
	Snapshot  []byte         `json:"snapshot,omitempty"` // encoded by package codec, gzip; nil if too large
	Quality   energy.Quality `json:"quality"`
}

// A RecordQuery requests the decisions in [From, To), newest first.
type RecordQuery struct {
	From, To   time.Time
	Namespaces []string
	Owner      string // kind/name; empty matches all
	UID        string
	Strategies []string
	Snapshots  bool // include snapshots
	Limit      int  // defaults to 1000
}
