package host

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Sweep reads all CPU times. The children of a group are read before the group, and the node last, so that what is
// left for what is around them is never less than nothing. If the CPU time of the node cannot be read there is an
// error and no sweep; the next one has it all, as counters are sums.
func (h *Host) Sweep(into *Sweep) error {
	if into.Usage == nil {
		into.Usage = make([]energy.Usage, 0, 64) // nil is for sweeps that failed
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

	for i, n := range h.weigh.dead {
		h.leave(n)
		h.weigh.dead[i] = nil
	}
	h.weigh.dead = h.weigh.dead[:0]
	h.attribute()
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

// readTree reads a group and what is inside. Where nothing moved of late, one read of the whole tells that nothing
// inside did either.
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
		// Version 2 gathers what its CPUs counted when it is read. Once for all pods is cheaper than for each.
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

// readBusy reads the CPU time of the node, where there is any.
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
	// A sum over CPUs may step back a little when one of them goes offline.
	h.root.total = max(h.root.total, value+h.lift)
	return nil
}

// attribute computes what everybody used. The node's own counter may be one of ticks, 4 ms apart, which misses what
// runs between them; where what is inside it runs ahead of it by more than a second of all CPUs, the counter is lifted:
// what groups count is exact.
func (h *Host) attribute() {
	h.root.attribute()
	if deficit := h.root.claim - h.root.total; !h.root.failed && !h.root.unsure {
		if bound := time.Duration(h.cpus * float64(time.Second)); deficit > bound {
			h.lift += deficit - bound
			h.root.total += deficit - bound
			h.root.before = h.root.total
		}
	}
	for i, n := range h.leaving {
		h.end(n)
		h.leaving[i] = nil
	}
	h.leaving = h.leaving[:0]
}

// end collects what n and all inside it were.
func (h *Host) end(n *node) {
	if n.published() {
		h.ended = append(h.ended, n.usage())
	}
	for _, c := range n.children {
		h.end(c)
	}
}

// fill writes what is known into a sweep.
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

// conclude hands over what ended. A name that another group has taken since goes on: its counter must not fall.
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
	if cap(h.ended) > 4*h.opts.Max {
		h.ended = nil
	}
}
