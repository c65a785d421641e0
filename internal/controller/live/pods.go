package live

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// pod is a pod in the last batch of its node.
type pod struct {
	uid, namespace, name string
	ownerKind, ownerName string
	owner                *owner // nil if unknown
	containers           []container
	power, idle          float32
}

// container maps the hash of a container ID to the statistics of its container name. The ID is not stored, to save
// memory.
type container struct {
	hash uint64
	of   *part
}

var containerSeed = maphash.MakeSeed()

// A claim is the energy of a pod in a batch: the sum of its consecutive shares.
type claim struct {
	uid           string
	shares        []energy.Share
	dynamic, idle energy.Microjoules
	ended         bool
}

// claimOf returns the claim of the pod that the first share belongs to. The slice must not be empty.
func claimOf(shares []energy.Share) claim {
	uid, _, _ := energy.PodOf(shares[0].ID)
	c := claim{uid: uid}
	for i := range shares {
		s := &shares[i]
		if next, _, ok := energy.PodOf(s.ID); !ok || next != uid {
			break
		}
		c.dynamic += s.Dynamic
		c.idle += s.Idle
		c.ended = c.ended || s.Ended
		c.shares = shares[:i+1]
	}
	return c
}

// attribute sets the power of each pod in a batch and adds it to the statistics of the pod's owner.
func (s *State) attribute(n *node, b *ledger.Booking, measured time.Duration, asOf time.Time) {
	before := n.pods
	n.pods = make(map[string]*pod, len(before))
	shares := b.Batch.Shares[:min(len(b.Batch.Shares), len(b.Consumers))]
	for i := 0; i < len(shares); {
		if _, _, isPod := energy.PodOf(shares[i].ID); !isPod || b.Consumers[i].Account.Kind != ledger.Workload {
			i++
			continue
		}
		c := claimOf(shares[i:])
		p := cmp.Or(n.pods[c.uid], before[c.uid])
		isNew := p == nil
		if isNew {
			p = &pod{uid: strings.Clone(c.uid)}
		}
		n.pods[p.uid] = p
		s.identify(p, b.Consumers[i])
		s.setPower(n, p, &c, isNew, measured, asOf)
		i += len(c.shares)
	}
	n.met = true
}

// setPower sets the current power of a pod and adds a sample to the statistics of its owner.
func (s *State) setPower(n *node, p *pod, c *claim, isNew bool, measured time.Duration, asOf time.Time) {
	p.power, p.idle = float32(power(c.dynamic+c.idle, measured)), float32(power(c.idle, measured))
	if isNew && n.met {
		n.notifyFresh(p.uid, asOf)
	}
	// The pod did not run for the whole time of its first and last batches.
	if !isNew && !c.ended && p.owner != nil {
		p.owner.power.Add(power(c.dynamic, measured), measured, asOf, smoothing)
		s.containers(p, c.shares, measured, asOf)
	}
}

func power(e energy.Microjoules, over time.Duration) energy.Watts {
	return energy.Watts(float64(e.Joules()) / over.Seconds())
}

// identify updates the names of a pod and its owner. They may be unknown in the first batch.
func (s *State) identify(p *pod, c *ledger.Consumer) {
	a := &c.Account
	kind, name := a.OwnerKind, a.Owner
	if kind == "Job" && a.Parent != "" {
		kind, name = "CronJob", a.Parent // all Jobs of a CronJob share their statistics
	}
	if p.owner != nil && !p.owner.gone && p.namespace == a.Namespace && p.ownerKind == kind && p.ownerName == name &&
		p.name == c.Pod {
		return
	}
	*p = pod{uid: p.uid, namespace: a.Namespace, name: c.Pod, ownerKind: kind, ownerName: name}
	if a.Namespace != "" && name != "" {
		p.owner = s.ownerOf(ownerKey{a.Namespace, kind, name})
	}
}

// containers adds the power of each container to the statistics of its container name.
func (s *State) containers(p *pod, shares []energy.Share, measured time.Duration, asOf time.Time) {
	for i := range shares {
		uid, id, _ := energy.PodOf(shares[i].ID)
		if id == "" {
			continue
		}
		hash := maphash.String(containerSeed, id)
		k := slices.IndexFunc(p.containers, func(c container) bool { return c.hash == hash })
		if k < 0 {
			name := s.o.Container(uid, id)
			if name == "" {
				continue // retried with the next batch
			}
			k = len(p.containers)
			if k >= maxContainers {
				continue
			}
			p.containers = append(slices.Clip(p.containers), container{hash, p.owner.part(name)})
		}
		if of := p.containers[k].of; of != nil {
			of.power.Add(power(shares[i].Dynamic, measured), measured, asOf, smoothing)
		}
	}
}

// notifyFresh records that the power of the node includes the pod from now on.
func (n *node) notifyFresh(uid string, since time.Time) {
	n.fresh = slices.DeleteFunc(n.fresh, func(f freshPod) bool { return since.Sub(f.since) > freshFor })
	if len(n.fresh) >= maxFresh {
		n.fresh = slices.Delete(n.fresh, 0, 1)
	}
	n.fresh = append(n.fresh, freshPod{uid, since})
}
