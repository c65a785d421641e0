package agent

import (
	"sync/atomic"

	"github.com/kubenergy/kubenergy/internal/agent/exposition"
	"github.com/kubenergy/kubenergy/internal/agent/gpu"
	"github.com/kubenergy/kubenergy/internal/agent/meter"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// gpus holds the state of GPU metering.
type gpus struct {
	meter       *meter.Boards // nil if no GPUs are metered
	attribution *gpu.Attribution
	// names are those of the last acknowledgement, by pod UID; nil before the first one
	names atomic.Pointer[map[string]batch.Names]
}

// openGPUs selects the GPU meter. GPUs are not metered in a virtual machine if its energy is reported by the host,
// because the host subtracts the reported energy from the energy that it attributed to the machine, and the latter
// does not include GPUs.
func (a *agent) openGPUs() {
	a.gpus.attribution = gpu.NewAttribution(a.attributing)
	boards, found := meter.Of[*meter.Boards](a.meters) // the first one, NVML, if there are two
	if _, guest := meter.Of[*meter.Guest](a.meters); guest && found {
		a.log.Warn("Disabled GPU metering, because the host reports the energy of this virtual machine without GPUs")
		return
	}
	a.gpus.meter = boards
}

// bookGPUs adds the energy of GPUs to the node's attribution.
func (a *agent) bookGPUs() {
	if a.gpus.meter == nil {
		return
	}
	a.gpus.attribution.Observe(a.gpus.meter.Boards(), a.consumerOf, &a.attribution)
	a.status.Source = a.root.Source() + " + gpu (" + a.gpus.meter.Name() + ")"
}

// withoutGPUs subtracts the energy of GPUs, which is recorded separately, from readings of the whole machine.
func (a *agent) withoutGPUs(root []energy.Reading) {
	if a.gpus.attribution.TakeOut(root) {
		a.log.Warn("Adding the energy of GPUs to that of the machine, because it exceeds the machine's "+
			"readings", "root", a.root.Source())
	}
}

// showGPUs updates the GPUs in the status.
func (a *agent) showGPUs() {
	if a.gpus.meter == nil {
		return
	}
	a.status.Boards = []exposition.Board{}
	for _, b := range a.gpus.meter.Boards() {
		memory := map[string]uint64{}
		for i := range b.Parts {
			for k := range b.Parts[i].Uses {
				u := &b.Parts[i].Uses[k]
				memory[a.consumerOf(u)] += u.Memory
			}
		}
		a.status.Boards = append(a.status.Boards, exposition.Board{Board: b, Memory: memory})
	}
}

func (a *agent) consumerOf(u *gpu.Use) string {
	if u.PID != 0 {
		return a.host.ConsumerOf(u.PID)
	}
	return a.gpus.consumerOf(u)
}

// consumerOf resolves pod and container names, as used by DCGM exporter, to a consumer ID.
func (g *gpus) consumerOf(u *gpu.Use) string {
	uid := u.PodUID
	if names := g.names.Load(); names != nil {
		for of, n := range *names {
			if n.Namespace != u.Namespace || n.Pod != u.Pod || u.PodUID != "" && u.PodUID != of {
				continue
			}
			uid = of
			for id, name := range n.Containers {
				if name == u.Container {
					return energy.ContainerID(uid, id)
				}
			}
		}
	}
	if id := energy.ContainerID(uid, ""); uid != "" && batch.CheckConsumer(id) == nil {
		return id
	}
	return ""
}
