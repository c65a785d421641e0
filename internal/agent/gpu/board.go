// Package gpu says who used what of the energy of a node's GPUs. It divides each board's energy as package energy
// divides a node's: a board is a node of one processor, and the time of its streaming multiprocessors is the CPU time.
//
// Whatever reads boards, NVIDIA's library or the page of its DCGM exporter, tells of them as a [Board].
package gpu

import (
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// A Board is what was read of a GPU at one instant.
type Board struct {
	ID          string         `json:"id"` // its UUID
	At          time.Duration  `json:"at"` // since boot
	Millijoules *uint64        `json:"mJ,omitempty"`
	Milliwatts  *uint32        `json:"mW,omitempty"`
	Celsius     *uint32        `json:"C,omitempty"`
	Parts       []Part         `json:"parts"`
	Reading     energy.Reading `json:"-"` // of its counter, or of its power over time, as a meter makes it
}

// Domain is that of a board's counter.
func (b *Board) Domain() energy.Domain {
	return energy.Domain{Kind: energy.GPU, Name: "gpu-" + strings.ToLower(strings.TrimPrefix(b.ID, "GPU-"))}
}

// Busy is the share of a board's multiprocessor time in which something ran.
func (b *Board) Busy() (share float64) {
	for i := range b.Parts {
		share += b.Parts[i].SMs * b.Parts[i].Busy
	}
	return share
}

// A Part is a MIG instance of a board, or all of a board that has none.
type Part struct {
	Instance string  `json:"instance,omitempty"` // GPU instance, and its compute instance, as 1/0; "": all of the board
	SMs      float64 `json:"sms"`                // its share of the board's multiprocessors
	Busy     float64 `json:"busy"`               // share of the time since the reading before in which something ran
	// Reported says that SM of the uses is known. Otherwise a part's only consumer is charged with all of it, and where
	// there are several, it is unknown who used it.
	Reported bool  `json:"told,omitempty"`
	Uses     []Use `json:"uses,omitempty"`
}

// A Use is a process on a part, or a container that a page names.
type Use struct {
	PID       int     `json:"pid,omitempty"`
	Namespace string  `json:"-"`
	Pod       string  `json:"-"`
	PodUID    string  `json:"-"`
	Container string  `json:"-"`
	SM        float64 `json:"sm,omitempty"`     // share of the part's multiprocessor time since the reading before
	Memory    uint64  `json:"memory,omitempty"` // bytes of the board's
}

// shares returns who holds a part, and how much of its time each used.
func (p *Part) shares(who func(*Use) string) map[string]float64 {
	shares, unknown := map[string]float64{}, false
	for i := range p.Uses {
		if id := who(&p.Uses[i]); id != "" {
			shares[id] += p.Uses[i].SM
		} else {
			unknown = true
		}
	}
	for id := range shares {
		switch {
		case p.Reported:
		case len(shares) == 1 && !unknown:
			shares[id] = p.Busy
		default:
			shares[id] = 0
		}
	}
	return shares
}
