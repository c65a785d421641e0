package exposition

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

const qualities = int(energy.Measured) + 1

// Modes of energy.
const (
	dynamic = iota // caused by the consumer's activity
	shared         // the consumer's part of idle energy
	modes
)

// account contains the totals of one or several consumers since the agent started.
type account struct {
	energy [modes][qualities]energy.Microjoules
	gpu    energy.Microjoules // part of energy that GPUs used
	cpu    time.Duration
}

func (a *account) add(b *account) {
	for mode := range b.energy {
		for quality, v := range b.energy[mode] {
			a.energy[mode][quality] += v
		}
	}
	a.gpu += b.gpu
	a.cpu += b.cpu
}

// kind is a kind of consumers. Each kind has its own metrics.
type kind uint8

const (
	kindContainer kind = iota // also a pod in addition to its running containers, with an empty container_id
	kindVM
	kindCgroup
	kindSystem
	kindOther   // consumers beyond the maximum number with their own series
	kindEnded   // ended consumers with removed series
	kindUnknown // processes of unknown consumers
)

// String returns the name of the kind in labels.
func (k kind) String() string {
	return [...]string{"container", "vm", "cgroup", "system", "other", "ended", "unknown"}[k]
}

// identify returns the kind of a consumer and the labels that identify it among consumers of the same kind. Unknown
// names are empty, which is equivalent to an absent label in Prometheus.
func identify(id string, names podNames) (k kind, labels string) {
	if uid, container, ok := energy.PodOf(id); ok {
		return kindContainer, pairs("pod_uid", uid, "container_id", container, "namespace", names.namespace,
			"pod", names.pod, "container", names.container)
	}
	if name, ok := energy.VMOf(id); ok {
		return kindVM, pairs("vm", name)
	}
	if path, ok := energy.CgroupOf(id); ok {
		return kindCgroup, pairs("cgroup", path)
	}
	if id == energy.System {
		return kindSystem, ""
	}
	return kindUnknown, ""
}

// podNames are the names of a container. They are empty while they are unknown.
type podNames struct{ namespace, pod, container string }

// consumer is a consumer with its own series.
type consumer struct {
	id      string
	kind    kind
	names   podNames
	labels  string
	account account
	quality energy.Quality // quality of the last interval
	seen    time.Duration
	ended   bool
	endedAt time.Duration
}

// podOf returns the UID of the pod that a consumer belongs to, or "" for other consumers.
func podOf(id string) string {
	uid, _, _ := energy.PodOf(id)
	return uid
}
