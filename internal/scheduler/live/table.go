package live

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// Limits of a response. Excess data is ignored.
const (
	maxNodes     = 50_000
	maxWorkloads = 200_000
	maxFresh     = 1_000 // pods per node
	longestName  = 253
	maxWatts     = 1e5 // more than any node draws
)

// reading is a measurement of a node's power.
type reading struct {
	power       energy.Watts
	provisional energy.Watts // of pods on the node that the reading does not include
	// time by the local clock in Unix nanoseconds, which are cheap to compare for every node in every cycle
	asOf        int64
	implausible bool
	fresh       []string // pods that the reading includes for the first time
}

// nodeTable contains the readings of a response. Only the provisional power of a reading changes.
type nodeTable struct {
	byName map[string]*reading
	newest int64
}

// leftOut counts readings that are excluded from the table or not used for decisions.
type leftOut struct{ old, absurd, implausible int }

// newNodeTable returns the valid readings of a response. skew is the offset of the local clock from that of the
// controller.
func newNodeTable(answer *api.NodesPower, skew time.Duration, now time.Time) (nodeTable, leftOut) {
	nodes := answer.Nodes
	t, left := nodeTable{}, leftOut{}
	if len(nodes) > maxNodes {
		left.absurd += len(nodes) - maxNodes
		nodes = nodes[:maxNodes]
	}
	t.byName = make(map[string]*reading, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		asOf := n.AsOf.Add(skew)
		switch age := now.Sub(asOf); {
		case n.Node == "" || len(n.Node) > longestName || !(n.Watts >= 0 && n.Watts <= maxWatts) || age < -maxAge:
			left.absurd++
			continue
		case age > maxAge:
			left.old++
			continue
		case age < 0:
			asOf = now
		}
		if n.Implausible {
			left.implausible++
		}
		t.byName[n.Node] = &reading{
			power: energy.Watts(n.Watts), asOf: asOf.UnixNano(), implausible: n.Implausible,
			fresh: n.Fresh[:min(len(n.Fresh), maxFresh)],
		}
		t.newest = max(t.newest, asOf.UnixNano())
	}
	return t, left
}

// age returns the age of the newest reading, or -1 s if there is none.
func (t *nodeTable) age(now time.Time) time.Duration {
	if len(t.byName) == 0 {
		return -time.Second
	}
	return max(0, now.Sub(time.Unix(0, t.newest)))
}

// Owner identifies the workload that a pod belongs to.
type Owner struct{ Namespace, Kind, Name string }

// workload is the measured power of the pods of an owner.
type workload struct {
	power   energy.Watts
	samples float64
}

type workloadTable map[Owner]workload

func newWorkloadTable(answer *api.WorkloadsPower) workloadTable {
	all := answer.Workloads[:min(len(answer.Workloads), maxWorkloads)]
	t := make(workloadTable, len(all))
	for i := range all {
		if w := &all[i]; w.Watts >= 0 && w.Watts <= maxWatts && w.Samples > 0 {
			t[Owner{w.Namespace, w.OwnerKind, w.Owner}] = workload{energy.Watts(w.Watts), float64(w.Samples)}
		}
	}
	return t
}

// priorSamples is the weight of the nominal power in samples, because a single sample of 15 s may be an outlier.
const priorSamples = 3

func (t workloadTable) expected(owners []Owner, nominal energy.Watts) (energy.Watts, bool) {
	for _, o := range owners {
		if w, ok := t[o]; ok {
			return energy.Shrink(w.power, w.samples, nominal, priorSamples), true
		}
	}
	return 0, false
}
