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

// appendBoards appends the metrics of GPUs, including their part of the energy of consumers.
func (e *Exporter) appendBoards(t *text) {
	if e.status.Boards == nil {
		return
	}
	const power, busy, memory = "kubenergy_gpu_power_watts", "kubenergy_gpu_busy_ratio", "kubenergy_gpu_memory_bytes"
	t.head(power, "Power of a GPU.")
	for _, b := range e.status.Boards {
		if b.Milliwatts != nil {
			t.sample(power, e.labels("gpu", b.ID), "").float(float64(*b.Milliwatts) / 1000)
		}
	}
	t.head(busy, "Busy fraction of a GPU's multiprocessor time.")
	for _, b := range e.status.Boards {
		t.sample(busy, e.labels("gpu", b.ID), "").float(b.Busy())
	}
	t.head(memory, "Memory of a GPU used by processes, by consumer.")
	for _, b := range e.status.Boards {
		for _, id := range slices.Sorted(maps.Keys(b.Memory)) {
			c := consumer{id: id, kind: kindOf(id)}
			labels := c.appendLabels(e.labels("gpu", b.ID, "of", c.kind.String()), e.names)
			t.sample(memory, labels, "").count(b.Memory[id])
		}
	}
	const used = "kubenergy_gpu_energy_joules_total"
	t.head(used, "Energy of GPUs by kind of consumer. It is included in the energy of containers, idle energy etc.")
	for _, c := range e.consumers {
		if c.account.gpu > 0 {
			t.sample(used, c.labels, `,of="`+c.kind.String()+`"`).joules(c.account.gpu)
		}
	}
	for i, v := range []energy.Microjoules{e.gpuIdle, e.gpuUnknown, e.other.gpu, e.ended.gpu} {
		t.sample(used, e.labels("of", []string{"idle", "unknown", "other", "ended"}[i]), "").joules(v)
	}
}
