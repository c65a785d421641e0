package exposition

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

const qualities = int(energy.Measured) + 1

// Modes: why energy is a consumer's.
const (
	dynamic = iota // because it computed
	shared         // its part of what the node draws anyway
	modes
)

// An account is what one consumer, or several, used since the agent began.
type account struct {
	energy [modes][qualities]energy.Microjoules
	gpu    energy.Microjoules // of it, what GPUs used
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

// kind is a kind of consumers: each has metrics of its own.
type kind uint8

const (
	kindContainer kind = iota // also what a pod used beyond its living containers, with an empty container_id
	kindVM
	kindCgroup
	kindSystem
	kindUnknown
)

// String returns what labels call a kind.
func (k kind) String() string {
	return [...]string{"container", "vm", "cgroup", "system", "unknown"}[k]
}

func kindOf(id string) kind {
	if _, _, ok := energy.PodOf(id); ok {
		return kindContainer
	}
	if _, ok := energy.VMOf(id); ok {
		return kindVM
	}
	if _, ok := energy.CgroupOf(id); ok {
		return kindCgroup
	}
	if id == energy.System {
		return kindSystem
	}
	return kindUnknown
}

// A consumer has series of its own.
type consumer struct {
	id      string
	kind    kind
	labels  []byte
	account account
	quality energy.Quality // of its last share
	seen    time.Duration
	ended   bool
	endedAt time.Duration
}

func (c *consumer) isOf(podUID string) bool {
	uid, _, ok := energy.PodOf(c.id)
	return ok && uid == podUID
}
