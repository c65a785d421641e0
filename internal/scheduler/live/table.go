package live

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// What an answer may hold; the rest of it is left out.
const (
	maxNodes     = 50_000
	maxWorkloads = 200_000
	maxFresh     = 1_000 // pods of a node
	longestName  = 253
	maxWatts     = 1e5 // what no node draws
)

// reading is what a node draws.
type reading struct {
	power       energy.Watts
	provisional energy.Watts // of pods that were placed there and that it does not tell of
	// by our own clock, in nanoseconds since 1970: it is compared for every node in every cycle
	asOf        int64
	implausible bool
	fresh       []string // pods that the value includes for the first time
}

// nodeTable is the readings of one answer. Only what is provisional changes.
type nodeTable struct {
	byName map[string]*reading
	newest int64
}

// leftOut counts what was left out of a table, or is not decided by.
type leftOut struct{ old, absurd, implausible int }

// newNodeTable returns what of an answer can be used. skew is how far our clock is ahead of the other's.
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

// age returns that of the youngest reading, -1 s if there is none.
func (t *nodeTable) age(now time.Time) time.Duration {
	if len(t.byName) == 0 {
		return -time.Second
	}
	return max(0, now.Sub(time.Unix(0, t.newest)))
}

// Owner names what a pod is a replica or a run of.
type Owner struct{ Namespace, Kind, Name string }

// workload is what a pod of an owner draws.
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

// priorSamples is how many samples the nominal power of a request weighs as much as: one of 15 s may have been odd.
const priorSamples = 3

func (t workloadTable) expected(owners []Owner, nominal energy.Watts) (energy.Watts, bool) {
	for _, o := range owners {
		if w, ok := t[o]; ok {
			return energy.Shrink(w.power, w.samples, nominal, priorSamples), true
		}
	}
	return 0, false
}
