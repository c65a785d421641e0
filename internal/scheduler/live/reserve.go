package live

import (
	"slices"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// reservations contains the expected power of pods that have been placed but are not included in a reading yet.
// Without reservations, all pods of a burst would be placed on the node with the lowest power. It also contains the
// table of readings, so that a single lookup per node suffices.
type reservations struct {
	mu     sync.Mutex
	table  nodeTable
	byNode map[string][]reservation
	nodeOf map[string]string // node name by pod UID
}

type reservation struct {
	pod   string
	power energy.Watts
	at    time.Time
}

const (
	// settledAfter is the age of a placement at the time of a reading after which the reading includes the pod even
	// if it is not listed. By then, the pod has been started and measured, or it never will be.
	settledAfter = time.Minute
	// givenUpAfter is the age after which a reservation expires without a reading.
	givenUpAfter = 5 * time.Minute
	// maxReserved is the max number of reservations. Further pods are placed without a reservation.
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

// drop removes the reservation of a pod. The caller must hold mu.
func (r *reservations) drop(pod string) {
	if node, ok := r.nodeOf[pod]; ok {
		delete(r.nodeOf, pod)
		r.set(node, slices.DeleteFunc(r.byNode[node], func(one reservation) bool { return one.pod == pod }))
	}
}

// set replaces the reservations of a node, and updates the sum of the ones missing in its reading. The caller must
// hold mu.
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

// includes reports whether a reading includes a pod. Pods that the controller lists explicitly are always included,
// regardless of clocks.
func (r *reading) includes(one *reservation) bool {
	return r.asOf-one.at.UnixNano() > int64(settledAfter) || slices.Contains(r.fresh, one.pod)
}

// update replaces the table unless table is nil, and removes reservations that are included in a reading or have
// expired. It returns the sum of the remaining reservations and the age of the newest reading.
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

// fill sets the live power of nodes with readings that are not older than oldest, in Unix nanoseconds.
func (r *reservations) fill(nodes []sched.Node, oldest int64) {
	r.mu.Lock() // locked once per cycle; all critical sections are short
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
