package host

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Sweep reads the CPU time of all consumers. It reads the children of a group before the group itself, and the node
// last, so that the own time of a group is never negative. If the CPU time of the node cannot be read, Sweep
// returns an error; the next sweep includes the missing time, because counters are cumulative.
func (h *Host) Sweep(into *Sweep) error {
	if into.Usage == nil {
		into.Usage = make([]energy.Usage, 0, 64) // nil is reserved for failed sweeps
	}
	into.Usage, into.Ended = into.Usage[:0], into.Ended[:0]
	now := h.now()
	h.discover(now)
	h.search(now)
	h.reweigh(now)

	first := h.now()
	for _, c := range h.root.children {
		h.readTree(c, first)
	}
	err := h.readBusy()
	last := h.now()

	for _, n := range h.weigh.dead {
		h.leave(n)
	}
	clear(h.weigh.dead)
	h.weigh.dead = h.weigh.dead[:0]
	h.attribute()
	if h.candidates.due {
		h.compare(now)
	}
	if err != nil {
		into.Usage, into.Ended = nil, nil
		return err
	}
	into.At = first + (last-first)/2
	into.CPUs = h.cpus
	into.Busy = h.root.total
	h.fill(into)
	return nil
}

// readTree reads a group and its descendants. If the group was idle in the previous sweep and still is, its
// descendants are not read.
func (h *Host) readTree(n *node, now time.Duration) {
	switch {
	case len(n.children) == 0:
		h.readOne(n, now)
		return
	case n.delta == 0 && n.seen && !n.fresh && !n.waiting:
		before := n.total
		h.readOne(n, now)
		if !n.failed && n.total == before {
			return
		}
	case n.class == kubepods && n.hier.version == 2:
		// In version 2, reading a group aggregates its per-CPU counters. Doing this once for all pods is cheaper
		// than for each pod.
		_, _, _ = h.read(n)
	}
	for _, c := range n.children {
		h.readTree(c, now)
	}
	h.readOne(n, now)
}

func (h *Host) readOne(n *node, now time.Duration) {
	value, reborn, err := h.read(n)
	switch {
	case err == nil:
		n.record(value, reborn)
		if !n.failed {
			return
		}
	case isGone(err) && (n.role == process || inode(n.dir) == 0):
		h.weigh.dead = append(h.weigh.dead, n)
		return
	}
	n.fail(now)
}

// readBusy reads the CPU time of the node, if there is a source for it.
func (h *Host) readBusy() error {
	if h.busy.parse == nil {
		h.root.failed = true
		return nil
	}
	value, err := h.busy.read(&h.io)
	h.root.failed = err != nil
	if err != nil {
		return err
	}
	h.root.seen = true
	// The sum over all CPUs may decrease slightly when a CPU goes offline.
	h.root.total = max(h.root.total, value+h.lift)
	return nil
}

// attribute computes the time of all consumers. The node's own counter may be based on timer ticks every 4 ms, and
// miss tasks that run between ticks. If the groups exceed it by more than one second of all CPUs, it is corrected,
// because the counters of groups are exact.
func (h *Host) attribute() {
	h.root.attribute()
	if deficit := h.root.claim - h.root.total; !h.root.failed && !h.root.unsure {
		if bound := time.Duration(h.cpus * float64(time.Second)); deficit > bound {
			h.lift += deficit - bound
			h.root.total += deficit - bound
			h.root.before = h.root.total
		}
	}
	for _, n := range h.leaving {
		h.end(n)
	}
	clear(h.leaving)
	h.leaving = h.leaving[:0]
}

// end collects the final usage of n and its descendants.
func (h *Host) end(n *node) {
	if n.published() {
		h.ended = append(h.ended, n.usage())
	}
	for _, c := range n.children {
		h.end(c)
	}
}

// fill fills a sweep with the current usage.
func (h *Host) fill(into *Sweep) {
	h.conclude(into)
	if h.changed {
		h.changed = false
		h.spread()
		h.ordered = append(slices.AppendSeq(h.ordered[:0], maps.Values(h.byID)), h.root)
		slices.SortFunc(h.ordered, func(a, b *node) int { return strings.Compare(a.id, b.id) })
	}
	for _, n := range h.ordered {
		if n.published() {
			into.Usage = append(into.Usage, n.usage())
		}
	}
}

// conclude adds the ended consumers to a sweep. If another group has taken over the name of a consumer, the
// consumer continues, because its counter must not decrease.
func (h *Host) conclude(into *Sweep) {
	if len(h.ended) == 0 {
		return
	}
	slices.SortFunc(h.ended, func(a, b energy.Usage) int { return strings.Compare(a.ID, b.ID) })
	for _, e := range h.ended {
		if heir := h.byID[e.ID]; heir != nil {
			heir.base, heir.heir = heir.base+e.CPU, true
			continue
		}
		if last := len(into.Ended) - 1; last >= 0 && into.Ended[last].ID == e.ID {
			into.Ended[last].CPU += e.CPU
			continue
		}
		into.Ended = append(into.Ended, e)
	}
	clear(h.ended)
	h.ended = h.ended[:0]
}
