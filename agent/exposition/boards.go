package exposition

import (
	"maps"
	"slices"

	"github.com/kubenergy/kubenergy/energy"
)

// A Board is what a GPU of the node does now.
type Board struct {
	ID     string
	Power  energy.Watts
	Busy   float64           // share of its multiprocessor time
	Memory map[string]uint64 // bytes, by consumer; "": of processes whose consumer is not known
}

// SetBoards tells what the node's GPUs do. It keeps what it is given.
func (e *Exporter) SetBoards(boards []Board) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.boards = boards
}

// appendBoards appends what GPUs do, and what of the energy on the page they used.
func (e *Exporter) appendBoards(t *text) {
	if len(e.boards) == 0 {
		return
	}
	t.head("kubenergy_gpu_power_watts", "Power that a GPU draws.")
	for _, b := range e.boards {
		t.sample("kubenergy_gpu_power_watts", e.labels("gpu", b.ID), "").float(float64(b.Power))
	}
	t.head("kubenergy_gpu_busy_ratio", "Share of a GPU's multiprocessor time in which something ran.")
	for _, b := range e.boards {
		t.sample("kubenergy_gpu_busy_ratio", e.labels("gpu", b.ID), "").float(b.Busy)
	}
	t.head("kubenergy_gpu_memory_bytes", "Memory of a GPU that processes hold, by who they belong to.")
	for _, b := range e.boards {
		for _, id := range slices.Sorted(maps.Keys(b.Memory)) {
			c := consumer{id: id, kind: kindOf(id)}
			labels := c.appendLabels(e.labels("gpu", b.ID, "of", c.kind.String()), e.names)
			t.sample("kubenergy_gpu_memory_bytes", labels, "").count(b.Memory[id])
		}
	}
	const used = "kubenergy_gpu_energy_joules_total"
	t.head(used, "Energy that GPUs used, by who it is attributed to: part of the energy of containers, idle and so on.")
	for _, c := range e.consumers {
		if c.account.gpu > 0 {
			t.sample(used, c.labels, `,of="`+c.kind.String()+`"`).joules(c.account.gpu)
		}
	}
	for _, own := range []struct {
		of   string
		used energy.Microjoules
	}{{"idle", e.gpuIdle}, {"unknown", e.gpuUnknown}, {"other", e.other.gpu}, {"ended", e.ended.gpu}} {
		t.sample(used, e.labels("of", own.of), "").joules(own.used)
	}
}
