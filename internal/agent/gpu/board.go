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
