package intake

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// account returns what a pod is charged under.
func (d *PodIndex) account(e *entry) ledger.Account {
	a := e.account.Value()
	a.Owner = e.owner
	if d.o.TeamOf != nil {
		a.Team = d.o.TeamOf(a.Namespace, a.Team)
	}
	if a.OwnerKind == "Job" {
		a.Parent = d.parents.get(types.NamespacedName{Namespace: a.Namespace, Name: e.owner})
	}
	return a
}

// resolution is who the consumers of a batch are.
type resolution struct {
	consumers []*ledger.Consumer
	names     []named            // of the node's own pods, in the order of the shares
	foreign   energy.Microjoules // said of pods that run elsewhere
	nameless  int                // pods that no informer has told of
	late      bool               // what pods used is booked as late
}

// resolve says who the shares of a node's batch are. What is told of a pod beyond what it can have used since it was
// made becomes unknown energy.
func (d *PodIndex) resolve(b *batch.Batch, l *Limits, news *nameQuota, now time.Time) resolution {
	node, shares := b.Stream.Node, b.Shares
	r := resolution{consumers: make([]*ledger.Consumer, len(shares)), late: now.Sub(b.Start) > lateAfter}
	var last *ledger.Consumer // the pod of the share before: shares are sorted
	var lastUID string
	var lastEntry *entry
	var young *allowance
	for i := range shares {
		s, c := &shares[i], last
		podUID, containerID, isPod := energy.PodOf(s.ID)
		if !isPod {
			r.consumers[i] = d.apart(s.ID, node, news, now)
			if c := r.consumers[i]; r.late && c.Account.Kind == ledger.Workload {
				c.Account.Kind = ledger.Late
			}
			continue
		}
		if c == nil || podUID != lastUID {
			var e *entry
			e, c = d.pod(podUID, strings.TrimSuffix(strings.TrimSuffix(s.ID, containerID), "/"), node, news, now)
			young = e.allowance(b, l)
			if young.none() {
				c.Pod, c.Account = "", ledger.Account{Kind: ledger.Foreign}
			} else if r.late && c.Account.Kind == ledger.Workload {
				c.Account.Kind = ledger.Late
			}
			last, lastUID, lastEntry = c, podUID, e
		}
		r.consumers[i] = c
		gpu := s.GPU
		b.Unknown += young.cap(s)
		s.GPU = min(gpu, s.Dynamic+s.Idle)
		b.GPUUnknown += gpu - s.GPU
		switch c.Account.Kind {
		case ledger.Foreign:
			r.foreign += s.Dynamic + s.Idle
		case ledger.Workload, ledger.Late:
			r.name(c, podUID, containerID, lastEntry)
		}
	}
	return r
}

// pod returns the entry of a pod, nil if it is not in the index, and its consumer, as its node may name it.
func (d *PodIndex) pod(uid, key, node string, news *nameQuota, now time.Time) (*entry, *ledger.Consumer) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	e, c := d.pods.get(uid), &ledger.Consumer{Key: key, Account: ledger.Account{Kind: ledger.Workload}}
	switch {
	case e != nil && e.node.Value() == node:
		c.Pod, c.Account = e.name, d.account(e)
	case !news.admit(node, key, now):
		return e, overflow()
	case e != nil && e.node.Value() != "":
		c.Account.Kind = ledger.Foreign
	}
	return e, c
}

// apart returns the consumer of a share that is not a pod's. Identifying a control group may take time, so the caller
// must not hold mu.
func (d *PodIndex) apart(id, node string, news *nameQuota, now time.Time) *ledger.Consumer {
	c := &ledger.Consumer{Key: id}
	path, isGroup := energy.CgroupOf(id)
	if vm, ok := energy.VMOf(id); ok {
		c.Account.Kind, c.Account.Owner = ledger.VM, vm
	} else if !isGroup { // system and others
		c.Account.Kind = ledger.System
		return c
	} else if name, a, ok := d.o.Group(node, path); ok {
		c.Pod, c.Account = name, a
	} else {
		c.Account.Kind, c.Account.Owner = ledger.Cgroup, path
	}
	if !news.admit(node, id, now) {
		return overflow()
	}
	return c
}

// overflow is who stands for consumers that a node has named too many of.
func overflow() *ledger.Consumer {
	return &ledger.Consumer{Key: batch.Others, Account: ledger.Account{Kind: ledger.System}}
}

// name notes what a pod and its container are called, for the acknowledgement.
func (r *resolution) name(c *ledger.Consumer, podUID, containerID string, e *entry) {
	if c.Pod == "" {
		r.nameless++
		return
	}
	if last := len(r.names) - 1; last < 0 || r.names[last].uid != podUID {
		r.names = append(r.names, named{uid: podUID, namespace: c.Account.Namespace, pod: c.Pod})
	}
	if containerID == "" {
		return
	}
	if name := e.container(containerID); name != "" {
		n := &r.names[len(r.names)-1]
		if n.containers == nil {
			n.containers = make([]namedContainer, 0, len(e.containers))
		}
		n.containers = append(n.containers, namedContainer{containerID, name})
	}
}
