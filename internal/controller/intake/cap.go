package intake

import (
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// youngSlack is added to the age of a pod, because the node's clock may be behind that of the API server.
const youngSlack = 15 * time.Minute

// capShares returns a batch in which the shares of each pod that was created during the interval are limited to the
// maximum that the node can have spent on it since. The excess becomes unknown energy. Shares of pods created after the
// batch remain as they are, because those pods are not charged.
func capShares(b batch.Batch, owners []*owner, l *Limits) batch.Batch {
	claimed := b.Shares
	var spare energy.Microjoules // what the pod can have used beyond the shares that were capped
	var cpu time.Duration        // likewise
	for i, o := range owners {
		lived := o.pod.lived(&b)
		if lived <= 0 || lived >= b.End.Sub(b.Start) {
			continue
		}
		if i == 0 || o != owners[i-1] {
			spare = energy.Microjoules(overPower * float64(l.MaxPower) * lived.Seconds() * 1e6) //nolint:mnd // µJ
			cpu = time.Duration(overCores * l.Cores * float64(lived))
		}
		if &b.Shares[0] == &claimed[0] { // not copied yet
			b.Shares = slices.Clone(claimed)
		}
		s, was := &b.Shares[i], &claimed[i]
		s.Dynamic = min(s.Dynamic, spare)
		s.Idle = min(s.Idle, spare-s.Dynamic)
		s.GPU, s.CPU = min(s.GPU, s.Dynamic+s.Idle), min(s.CPU, cpu)
		spare, cpu = spare-s.Dynamic-s.Idle, cpu-s.CPU
		b.Unknown += was.Dynamic + was.Idle - s.Dynamic - s.Idle
		b.GPUUnknown += was.GPU - s.GPU
	}
	return b
}

// lived returns for how long a pod can have existed at the end of a batch. It is unlimited if the time of its creation
// is not known.
func (e *entry) lived(b *batch.Batch) time.Duration {
	if e == nil || e.made == 0 {
		return math.MaxInt64
	}
	return b.End.Add(youngSlack).Sub(time.Unix(e.made, 0))
}
