package host

import (
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

const (
	usageFile   = "/cpuacct.usage"
	statFile    = "/cpu.stat"
	processFile = "/stat"
)

// node is a control group with a CPU time counter, or a process.
//
// Times are counted since the node was first seen. total is the time of the group including its children, and own
// is the part of total that its children do not claim. own never decreases: if the children claim more than total,
// because they were read at a different time or because a read failed, own is constant until total has caught up.
// The claim of a removed child is added to gone.
type node struct {
	role     role
	class    class
	id       string // consumer ID; empty for slices
	key      string // of a virtual machine: its libvirt name, or a key derived from the PID
	hier     *hierarchy
	dir      string
	file     string // path of the counter, relative to dir
	ino      uint64
	pid      int
	start    uint64 // start time of the process
	parent   *node
	children []*node

	fd    int32
	raw   time.Duration // value of the last successful read
	total time.Duration
	own   time.Duration
	gone  time.Duration // claims of removed children
	base  time.Duration // time of earlier nodes with the same consumer ID
	claim time.Duration // time claimed from the parent in the last sweep

	// For slices only: rest is the part of total that no child claimed in the last sweep, and exact is true if all
	// reads succeeded. If children end during a tick, the growth of rest is the time that they used after their
	// last read.
	rest  time.Duration
	exact bool

	before  time.Duration // total in the previous sweep
	delta   time.Duration // growth of total in the last sweep
	seen    bool          // at least one read succeeded
	heir    bool          // continues the consumer of an earlier node
	rebase  bool          // counting (re)starts at the next successful read
	failed  bool          // the last read failed
	rebased bool          // counting restarted in this tick
	fell    bool          // the last value was lower than the previous one
	left    bool
	unsure  bool    // the claim of a child is incomplete
	waiting bool    // a read of a descendant failed and is retried
	fresh   bool    // a descendant has not been read yet
	late    bool    // a child was found late in this tick, so the growth of rest is not only that of ended children
	folded  bool    // a child is not tracked separately, with the same effect as late
	ghosts  int     // children created and removed within this tick
	leavers []*node // children that ended in this tick
	failing time.Duration
	weight  uint64 // cpu.weight or cpu.shares
	vcpus   int    // of a virtual machine; 0 if unknown
	share   uint64 // requested CPU in millicores, excluding children
}

// class is the kubelet's kind of a slice.
type class uint8

const (
	noClass class = iota
	kubepods
	burstable
	besteffort
)

// path returns the path relative to the root of the hierarchy, without a leading slash.
func (n *node) path() string {
	if n.hier == nil {
		return ""
	}
	return strings.TrimPrefix(n.dir[len(n.hier.dir):], "/")
}

// published reports whether n is a consumer that has been read, or that continues an earlier consumer.
func (n *node) published() bool { return n.id != "" && (n.seen || n.heir) }

func (n *node) usage() energy.Usage {
	return energy.Usage{ID: n.id, CPU: n.base + n.own, Weight: n.share}
}

// adopt makes n a child of p, and moves children of p that are inside n to n.
func (n *node) adopt(p *node) {
	n.parent = p
	if n.role == slice || n.role == group {
		p.children = slices.DeleteFunc(p.children, func(c *node) bool {
			below, found := strings.CutPrefix(c.dir, n.dir)
			inside := found && c.hier == n.hier && strings.HasPrefix(below, "/")
			if inside {
				c.parent = n
				n.children = append(n.children, c)
			}
			return inside
		})
	}
	p.children = append(p.children, n)
	for up := p; up != nil; up = up.parent {
		up.fresh = true
	}
}

// disown removes n from the children of its parent.
func (n *node) disown() {
	n.parent.children = slices.DeleteFunc(n.parent.children, func(c *node) bool { return c == n })
}

// certain reports whether the claim of n is complete. The claim of a slice is the sum of the claims of its
// children.
func (n *node) certain() bool {
	if n.role == slice {
		return !n.unsure
	}
	return !n.failed || n.rebase
}

// record records a value of the counter. If reborn is true, the group was replaced by another one of the same name.
func (n *node) record(value time.Duration, reborn bool) {
	switch {
	case n.rebase:
		n.rebase, n.rebased = false, true
		n.lose()
	case reborn, value < n.raw && n.fell: // a second decrease in a row is a reset
		n.total += value
		if n.ino != 0 {
			n.ino = inode(n.dir) // otherwise, the next walk would take the group for another one
		}
	case value >= n.raw:
		n.total += value - n.raw
	default:
		n.fell, n.failed = true, true
		return
	}
	n.raw = value
	n.seen, n.fell, n.failed, n.failing = true, false, false, 0
}

// lose discards the pending time of descendants that could not be read. Because n restarts counting, that time is
// accounted to its ancestors.
func (n *node) lose() {
	for _, c := range n.children {
		c.rebase = c.rebase || c.failed
		c.lose()
	}
}

// fail records a failed read. The time is not lost, because the counter is cumulative and the next successful read
// includes it. If reads fail for longer than loseAfter, counting restarts at the next successful read, so that a
// broken node does not block its ancestors. Its time until then is accounted to its ancestors.
func (n *node) fail(now time.Duration) {
	n.failed = true
	if n.failing == 0 {
		n.failing = max(now, 1)
	}
	if !n.seen || now-n.failing > loseAfter {
		n.rebase = true
	}
}

// attribute computes the claims of n and its children, and the own time of n.
func (n *node) attribute() {
	sum := n.gone
	n.unsure, n.waiting = false, n.failed && !n.rebase
	lost := false
	for _, c := range n.children {
		c.attribute()
		sum += c.claim
		n.unsure = n.unsure || !c.certain()
		n.waiting = n.waiting || c.waiting
		lost = lost || c.rebase
	}
	known := !n.unsure && !n.failed
	if n.role == slice {
		n.attributeSlice(sum, known && !n.rebased, lost)
	} else {
		if n.rebased {
			n.total = max(n.total, n.own+sum) // the children keep the time that they used in the meantime
		}
		if known {
			n.own = max(n.own, n.total-sum)
		}
		n.claim = max(n.total, n.own+sum)
	}
	n.delta, n.before = n.total-n.before, n.total
	n.fresh, n.late, n.rebased, n.ghosts = false, false, false, 0
}

// attributeSlice computes the claim of a slice. Time that its children do not claim is accounted to its ancestors,
// unless children ended in this tick and only they can have used it.
func (n *node) attributeSlice(sum time.Duration, known, lost bool) {
	rest := n.total - sum
	if known && n.exact && !n.late && !n.folded && !lost {
		tail := n.divide(rest - n.rest)
		n.gone, sum, rest = n.gone+tail, sum+tail, rest-tail
	}
	n.rest, n.exact = rest, known
	n.claim = sum
	clear(n.leavers)
	n.leavers = n.leavers[:0]
}

// divide distributes the time that ended children used after their last read, in proportion to their time in the
// previous tick, and returns the distributed time. The estimated part of children that were created and removed
// between two reads is not distributed.
func (n *node) divide(tail time.Duration) time.Duration {
	if tail <= 0 || len(n.leavers) == 0 {
		return 0
	}
	var known time.Duration
	read := 0
	for _, l := range n.leavers {
		if l.seen {
			known += l.delta
			read++
		}
	}
	// Children that were never read are weighted with the mean of the others.
	mean := 1.0
	if known > 0 {
		mean = float64(known) / float64(read)
	}
	portion := func(l *node) float64 {
		if l.seen && known > 0 {
			return float64(l.delta)
		}
		return mean
	}
	whole := mean * float64(n.ghosts)
	for _, l := range n.leavers {
		whole += portion(l)
	}
	given := time.Duration(0)
	for i, l := range n.leavers {
		part := time.Duration(float64(tail) * portion(l) / whole)
		if i == len(n.leavers)-1 && n.ghosts == 0 {
			part = tail - given
		}
		part = min(max(part, 0), tail-given)
		if l.id == "" {
			continue // a slice is not a consumer
		}
		l.own += part
		l.seen = l.seen || part > 0
		given += part
	}
	return given
}
