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
		o := &owner{Consumer: ledger.Consumer{Key: id}}
		if last = uid; isPod {
			o.Key = strings.TrimSuffix(strings.TrimSuffix(id, container), "/")
			o.pod, o.Pod, o.Account = d.pod(uid, node)
		} else {
			o.Pod, o.Account = d.other(id, node)
		}
		own := isPod && o.Pod != ""
		if !own && o.Account.Kind != ledger.System && !quota.admit(node, o.Key, now) {
			o.Consumer = overflow
		}
		owners[i] = o
	}
	return owners
}

// pod returns a pod's entry, nil if it is not in the index. Its name and account are returned for its own node only.
func (d *PodIndex) pod(uid, node string) (e *entry, name string, a ledger.Account) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if e = d.pods.get(uid); e != nil && e.node.Value() == node {
		return e, e.name, d.account(e)
	}
	return e, "", ledger.Account{Kind: ledger.Workload}
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

// other returns the name and the account of a consumer that is not a pod. Identifying a control group may take time, so
// the caller must not hold mu.
func (d *PodIndex) other(id, node string) (name string, a ledger.Account) {
	if vm, ok := energy.VMOf(id); ok {
		return "", ledger.Account{Kind: ledger.VM, Owner: vm}
	}
	path, isGroup := energy.CgroupOf(id)
	if !isGroup { // system and others
		return "", ledger.Account{Kind: ledger.System}
	}
	if d.o.Group != nil {
		if name, a, ok := d.o.Group(node, path); ok {
			return name, a
		}
	}
	return "", ledger.Account{Kind: ledger.Cgroup, Owner: path}
}
