package ledger

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// A Record is a decision, with what it depended on, so that it can be made again under another strategy.
type Record struct {
	ID        string         `json:"id"` // random; the same record told twice is one
	At        time.Time      `json:"at"`
	Action    string         `json:"action"` // place, hold, release or move
	Namespace string         `json:"namespace"`
	OwnerKind string         `json:"ownerKind,omitempty"` // Job, or Pod
	Owner     string         `json:"owner"`
	UID       string         `json:"uid"` // of the pod, or of the Job that is held
	Strategy  string         `json:"strategy"`
	Node      string         `json:"node,omitempty"`
	Start     time.Time      `json:"start,omitzero"` // of the window
	End       time.Time      `json:"end,omitzero"`
	Energy    energy.Joules  `json:"energyJoules"` // expected, as the two that follow
	Carbon    energy.Grams   `json:"carbonGrams"`
	Cost      float64        `json:"cost"`
	Intensity float64        `json:"carbonIntensity,omitempty"` // gCO2e per kWh at the chosen site when it was decided
	Saving    float64        `json:"saving,omitempty"`          // of a hold: share of a start at once, expected
	Saved     energy.Grams   `json:"savedGrams,omitempty"`      // and of emissions
	Reason    string         `json:"reason"`
	Message   string         `json:"message,omitempty"`
	Digest    string         `json:"digest"`             // SHA-256 of the snapshot, in hex
	Snapshot  []byte         `json:"snapshot,omitempty"` // as package codec encodes it, gzip; nil where it is too large
	Quality   energy.Quality `json:"quality"`
}

// A RecordQuery asks for decisions in [From, To), the youngest first.
type RecordQuery struct {
	From, To   time.Time
	Namespaces []string
	Owner      string // kind/name; "": any
	UID        string
	Strategies []string
	Snapshots  bool // with them
	Limit      int  // 0: 1000
}
