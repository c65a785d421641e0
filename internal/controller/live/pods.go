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

// pod is one that the last batch of its node named.
type pod struct {
	uid, namespace, name string
	ownerKind, ownerName string
	owner                *owner // nil: not known
	containers           []container
	power, idle          float32
}

// container leads from an ID to what is expected of containers of its name. There are many: the ID is not kept.
type container struct {
	hash uint64
	of   *part
}

var containerSeed = maphash.MakeSeed()

// A claim is what a pod used in a batch: some of its shares, which follow each other.
type claim struct {
	uid           string
	shares        []energy.Share
	dynamic, idle energy.Microjoules
	ended         bool
}

// claimOf returns the claim that begins with the first of some shares.
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

// attribute divides the power of a batch by pods, and adds it to what is expected of their owners.
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

// setPower sets what a pod draws, and adds it to what is expected of its owner's.
func (s *State) setPower(n *node, p *pod, c *claim, isNew bool, measured time.Duration, asOf time.Time) {
	p.power, p.idle = float32(power(c.dynamic+c.idle, measured)), float32(power(c.idle, measured))
	if isNew && n.met {
		n.notifyFresh(p.uid, asOf)
	}
	// The first and the last batch of a pod cover time in which it did not run.
	if !isNew && !c.ended && p.owner != nil {
		p.owner.power.Add(power(c.dynamic, measured), measured, asOf, smoothing)
		s.containers(p, c.shares, measured, asOf)
	}
}

func power(e energy.Microjoules, over time.Duration) energy.Watts {
	return energy.Watts(float64(e.Joules()) / over.Seconds())
}

// identify takes over who a pod is, which may be learned after its first batch.
func (s *State) identify(p *pod, c *ledger.Consumer) {
	a := &c.Account
	kind, name := a.OwnerKind, a.Owner
	if kind == "Job" && a.Parent != "" {
		kind, name = "CronJob", a.Parent // its Jobs are alike
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

// containers adds what each container drew to what is expected of those of its name.
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
				continue // asked again with the next batch
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

// notifyFresh remembers that a node's value includes a pod from now on.
func (n *node) notifyFresh(uid string, since time.Time) {
	n.fresh = slices.DeleteFunc(n.fresh, func(f freshPod) bool { return since.Sub(f.since) > freshFor })
	if len(n.fresh) >= maxFresh {
		n.fresh = slices.Delete(n.fresh, 0, 1)
	}
	n.fresh = append(n.fresh, freshPod{uid, since})
}
