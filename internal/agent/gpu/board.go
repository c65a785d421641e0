// Package gpu attributes the energy of a node's GPUs to consumers. It uses the attribution of package energy for
// each GPU: a GPU is treated as a node with one processor, and the time of its streaming multiprocessors as CPU
// time.
//
// All GPU meters, whether they use NVIDIA's library or DCGM exporter, report a GPU as a [Board].
package gpu

import (
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Board is a reading of one GPU.
type Board struct {
	ID          string         `json:"id"` // UUID
	At          time.Duration  `json:"at"` // time of the reading, since boot
	Millijoules *uint64        `json:"mJ,omitempty"`
	Milliwatts  *uint32        `json:"mW,omitempty"`
	Celsius     *uint32        `json:"C,omitempty"`
	Parts       []Part         `json:"parts"`
	Reading     energy.Reading `json:"-"` // set by the meter, from the counter or the power
}

// Domain returns the energy domain of the GPU's counter.
func (b *Board) Domain() energy.Domain {
	return energy.Domain{Kind: energy.GPU, Name: "gpu-" + strings.ToLower(strings.TrimPrefix(b.ID, "GPU-"))}
}

// Busy returns the fraction of the GPU's multiprocessor time that was busy.
func (b *Board) Busy() (share float64) {
	for i := range b.Parts {
		share += b.Parts[i].SMs * b.Parts[i].Busy
	}
	return share
}
