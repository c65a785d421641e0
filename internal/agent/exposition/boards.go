package exposition

import (
	"maps"
	"slices"

	"github.com/kubenergy/kubenergy/internal/agent/gpu"
)

// Board is the state of a GPU.
type Board struct {
	gpu.Board
	Memory map[string]uint64 // in bytes, by consumer; "" for processes of unknown consumers
}

// writeBoards writes the metrics of GPUs, including their part of the energy of consumers.
func (e *Exporter) writeBoards(p *page) {
	if e.status.Boards == nil {
		return
	}
	p.family("kubenergy_gpu_power_watts", "Power of a GPU.")
	for _, b := range e.status.Boards {
		if b.Milliwatts != nil {
			p.sample(float64(*b.Milliwatts)/1000, pairs("gpu", b.ID))
		}
	}
	p.family("kubenergy_gpu_busy_ratio", "Busy fraction of a GPU's multiprocessor time.")
	for _, b := range e.status.Boards {
		p.sample(b.Busy(), pairs("gpu", b.ID))
	}
	p.family("kubenergy_gpu_memory_bytes", "Memory of a GPU used by processes, by consumer.")
	for _, b := range e.status.Boards {
		for _, id := range slices.Sorted(maps.Keys(b.Memory)) {
			k, labels := identify(id, podNames{})
			if at, found := e.position(id); found {
				labels = e.consumers[at].labels
			}
			p.sample(float64(b.Memory[id]), pairs("gpu", b.ID, "of", k.String()), labels)
		}
	}
	p.family("kubenergy_gpu_energy_joules_total",
		"Energy of GPUs by kind of consumer. It is included in the energy of containers, idle energy etc.")
	for _, c := range e.consumers {
		if c.account.gpu > 0 {
			p.sample(joules(c.account.gpu), pairs("of", c.kind.String()), c.labels)
		}
	}
	p.sample(joules(e.gpuIdle), pairs("of", "idle"))
	p.sample(joules(e.gpuUnknown), pairs("of", "unknown"))
	p.sample(joules(e.other.account.gpu), pairs("of", "other"))
	p.sample(joules(e.ended.account.gpu), pairs("of", "ended"))
}
