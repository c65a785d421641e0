package live

import (
	"slices"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// reservations are the watts of pods that were placed and that no reading tells of yet. Without them all pods of a
// burst would go to the node that drew least before it. The table of readings stands beside them, so that a look at a
// node is one look-up.
type reservations struct {
	mu     sync.Mutex
	table  nodeTable
	byNode map[string][]reservation
	nodeOf map[string]string // by pod
}

type reservation struct {
	pod   string
	power energy.Watts
	at    time.Time
}

const (
	// A reading so much younger than a placement tells of the pod, even if it does not name it: it has been started and
	// measured, or it never will be.
	settledAfter = time.Minute
	// So long after it, a placement waits for readings no longer.
	givenUpAfter = 5 * time.Minute
	// What is beyond is not reserved: scheduling goes on.
	maxReserved = 20_000
)

func (r *reservations) add(pod, node string, power energy.Watts, at time.Time) {
	if !(power > 0 && power <= maxWatts) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(pod)
	if len(r.nodeOf) < maxReserved {
		r.nodeOf[pod] = node
		r.set(node, append(r.byNode[node], reservation{pod, power, at}))
	}
}

func (r *reservations) remove(pod string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(pod)
}

// drop forgets a pod. The lock is held.
func (r *reservations) drop(pod string) {
	if node, ok := r.nodeOf[pod]; ok {
		delete(r.nodeOf, pod)
		r.set(node, slices.DeleteFunc(r.byNode[node], func(one reservation) bool { return one.pod == pod }))
	}
}

// set replaces the reservations of a node, and adds up what its reading does not tell of. The lock is held.
func (r *reservations) set(node string, all []reservation) {
	if r.byNode[node] = all; len(all) == 0 {
		delete(r.byNode, node)
	}
	if reading := r.table.byName[node]; reading != nil {
		reading.provisional = 0
		for i := range all {
			if !reading.includes(&all[i]) {
				reading.provisional += all[i].power
			}
		}
	}
}

// includes reports whether a reading tells of a pod. One that the controller names as seen is there, whatever the
// clocks say.
func (r *reading) includes(one *reservation) bool {
	return r.asOf-one.at.UnixNano() > int64(settledAfter) || slices.Contains(r.fresh, one.pod)
}

// update takes another table, nil to keep the one there is, and forgets what its readings tell of, or what is old. It
// returns the sum of the rest, and the age of the youngest reading.
func (r *reservations) update(table *nodeTable, now time.Time) (sum energy.Watts, youngest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if table != nil {
		r.table = *table
	}
	for node, all := range r.byNode {
		reading := r.table.byName[node]
		left := slices.DeleteFunc(all, func(one reservation) bool {
			over := now.Sub(one.at) > givenUpAfter || reading != nil && reading.includes(&one)
			if over {
				delete(r.nodeOf, one.pod)
			}
			return over
		})
		for i := range left {
			sum += left[i].power
		}
		r.set(node, left)
	}
	return sum, r.table.age(now)
}

// fill sets what nodes draw, by readings that are not older than an instant.
func (r *reservations) fill(nodes []sched.Node, oldest int64) {
	r.mu.Lock() // once in a cycle; all that hold it are as fast
	defer r.mu.Unlock()
	if len(r.table.byName) == 0 {
		return
	}
	for i := range nodes {
		n := &nodes[i]
		switch reading := r.table.byName[n.Name]; {
		case reading == nil || reading.asOf < oldest:
		case reading.implausible:
			n.Live, n.HasLive = 0, false
		default:
			n.Live, n.HasLive, n.Provisional = reading.power, true, reading.provisional
		}
	}
}
