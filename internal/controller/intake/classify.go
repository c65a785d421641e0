package intake

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// lateAfter is the age of the start of an interval beyond which a batch is late. Budgets do not act on late batches.
const lateAfter = time.Hour

func isLate(b *batch.Batch, received time.Time) bool { return received.Sub(b.Start) > lateAfter }

// classify returns the consumers that the shares of a batch are charged to. Energy of a pod that runs on another node,
// or was created after the batch, is Foreign: no account but the node's own is charged. Workloads of a late batch are
// Late.
func classify(b *batch.Batch, owners []*owner, now time.Time) []*ledger.Consumer {
	consumers := make([]*ledger.Consumer, len(owners))
	for i, o := range owners {
		c := &o.Consumer
		switch workload := c.Account.Kind == ledger.Workload; {
		case i > 0 && o == owners[i-1]:
			c = consumers[i-1]
		case o.pod.lived(b) <= 0, workload && o.pod.elsewhere(b.Stream.Node):
			c = &ledger.Consumer{Key: c.Key, Account: ledger.Account{Kind: ledger.Foreign}}
		case workload && isLate(b, now):
			c = new(*c)
			c.Account.Kind = ledger.Late
		}
		consumers[i] = c
	}
	return consumers
}

// elsewhere reports whether a pod is known to run on another node.
func (e *entry) elsewhere(node string) bool {
	return e != nil && e.node.Value() != "" && e.node.Value() != node
}
