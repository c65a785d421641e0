package intake

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// An owner is the consumer of a share before its kind is final. Adjacent shares of one pod have one owner.
type owner struct {
	ledger.Consumer
	pod *entry // nil if the consumer is not a pod or the pod is not in the index
}

// overflow is the consumer that replaces consumers of a node beyond its quota of names.
var overflow = ledger.Consumer{Key: batch.Others, Account: ledger.Account{Kind: ledger.System}}

// resolve returns the owners of a batch's shares, in their order. The quota applies to all consumers of the node except
// its own pods and the system.
func (d *PodIndex) resolve(b *batch.Batch, quota *nameQuota, now time.Time) []*owner {
	owners := make([]*owner, len(b.Shares))
	last, node := "", b.Stream.Node
	for i := range b.Shares {
		id := b.Shares[i].ID
		uid, container, isPod := energy.PodOf(id)
		if isPod && uid == last {
			owners[i] = owners[i-1]
			continue
		}
		var o *owner
		if last = uid; isPod {
			o = d.pod(strings.TrimSuffix(strings.TrimSuffix(id, container), "/"), uid, node)
		} else {
			o = d.other(id, node)
		}
		own := isPod && o.Pod != ""
		if !own && o.Account.Kind != ledger.System && !quota.admit(node, o.Key, now) {
			o.Consumer = overflow
		}
		owners[i] = o
	}
	return owners
}

// pod returns the owner of a pod's shares. The name and the account of a pod are set for its own node only.
func (d *PodIndex) pod(key, uid, node string) *owner {
	o := &owner{Consumer: ledger.Consumer{Key: key, Account: ledger.Account{Kind: ledger.Workload}}}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if o.pod = d.pods.get(uid); o.pod != nil && o.pod.node.Value() == node {
		o.Pod, o.Account = o.pod.name, d.account(o.pod)
	}
	return o
}

// account returns the account that a pod is charged to. The caller must hold mu.
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

// other returns the owner of a share that is not a pod's. Identifying a control group may take time, so the caller must
// not hold mu.
func (d *PodIndex) other(id, node string) *owner {
	o := &owner{Consumer: ledger.Consumer{Key: id}}
	if vm, ok := energy.VMOf(id); ok {
		o.Account.Kind, o.Account.Owner = ledger.VM, vm
	} else if path, ok := energy.CgroupOf(id); !ok { // system and others
		o.Account.Kind = ledger.System
	} else if o.Pod, o.Account, ok = d.o.Group(node, path); !ok {
		o.Pod, o.Account = "", ledger.Account{Kind: ledger.Cgroup, Owner: path}
	}
	return o
}
