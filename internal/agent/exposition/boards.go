package exposition

import (
	"maps"
	"slices"

	"github.com/kubenergy/kubenergy/internal/agent/gpu"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// Board is the state of a GPU.
type Board struct {
	gpu.Board
	Memory map[string]uint64 // in bytes, by consumer; "" for processes of unknown consumers
}

// collectBoards sends the metrics of GPUs, including their part of the energy of consumers.
func (e *Exporter) collectBoards(f *families) {
	if e.status.Boards == nil {
		return
	}
	f.head("kubenergy_gpu_power_watts", "Power of a GPU.", "gpu")
	for _, b := range e.status.Boards {
		if b.Milliwatts != nil {
			f.sample(float64(*b.Milliwatts)/1000, label(b.ID))
		}
	}
	f.head("kubenergy_gpu_busy_ratio", "Busy fraction of a GPU's multiprocessor time.", "gpu")
	for _, b := range e.status.Boards {
		f.sample(b.Busy(), label(b.ID))
	}
	for _, b := range e.status.Boards {
		for _, id := range slices.Sorted(maps.Keys(b.Memory)) {
			k := kindOf(id)
			f.head("kubenergy_gpu_memory_bytes", "Memory of a GPU used by processes, by consumer.",
				append([]string{"gpu", "of"}, kinds[k].labels...)...)
			f.sample(float64(b.Memory[id]), append([]string{label(b.ID), k.String()}, labelsOf(id, k, e.names)...)...)
		}
	}
	total := func(v energy.Microjoules, of string, names, values []string) {
		f.head("kubenergy_gpu_energy_joules_total",
			"Energy of GPUs by kind of consumer. It is included in the energy of containers, idle energy etc.",
			append([]string{"of"}, names...)...)
		f.sample(joules(v), append([]string{of}, values...)...)
	}
	for _, c := range e.consumers {
		if c.account.gpu > 0 {
			total(c.account.gpu, c.kind.String(), kinds[c.kind].labels, c.labels)
		}
	}
	total(e.gpuIdle, "idle", nil, nil)
	total(e.gpuUnknown, "unknown", nil, nil)
	total(e.other.gpu, "other", nil, nil)
	total(e.ended.gpu, "ended", nil, nil)
}
