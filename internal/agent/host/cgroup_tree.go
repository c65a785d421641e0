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

// A node is a control group that is read, or a process.
//
// Time is counted from when the node was first known: total is that of the group with everything inside; own is what is
// left of total after what its children claim. own never falls: if the children claim more than there is, as they were
// read at another instant, or as a read failed, own waits until total has caught up. What a child claims when it goes
// stays in gone.
type node struct {
	role     role
	class    class
	id       string // of the consumer; empty for slices
	key      string // of a machine: libvirt's name for it, or the process
	hier     *hierarchy
	dir      string
	file     string // the counter, from dir
	ino      uint64
	pid      int
	start    uint64 // of the process
	parent   *node
	children []*node

	fd    int32
	raw   time.Duration // of the last good read
	total time.Duration
	own   time.Duration
	gone  time.Duration // claimed by children that are gone
	base  time.Duration // used by others that had the same consumer's name
	claim time.Duration // at the last settlement

	// Of slices: what of total no child claimed, at the last settlement, and if all reads for it went well. What it
	// grows by in a tick in which children ended is what these used after their last read.
	rest  time.Duration
	exact bool

	before  time.Duration // total at the last settlement
	delta   time.Duration // what total grew by before that
	seen    bool          // was read at least once
	heir    bool          // took a consumer's name as it was left
	rebase  bool          // the next good read is where counting begins (again)
	failed  bool          // the last read
	rebased bool          // in this tick
	fell    bool          // the last read was below the one before
	left    bool
	unsure  bool    // a child's claim is not all that it used
	waiting bool    // something inside could not be read, and is to be
	fresh   bool    // something inside is yet to be read for the first time
	late    bool    // a child was found late in this tick, so that what rest grows by is not of those that ended
	folded  bool    // the same for as long as some child is not told apart
	ghosts  int     // children that came and went within this tick
	leavers []*node // children that ended within this tick
	failing time.Duration
	weight  uint64 // as the kernel has it
	vcpus   int    // of a machine; 0 if unknown
	share   uint64 // requested CPU in thousandths, without the children's
}

// class is which of the kubelet's groups a slice is.
type class uint8

const (
	noClass class = iota
	kubepods
	burstable
	besteffort
)

// path is from the root of the hierarchy, without a leading slash.
func (n *node) path() string {
	if n.hier == nil {
		return ""
	}
	return strings.TrimPrefix(n.dir[len(n.hier.dir):], "/")
}

// published tells consumers that were read, or whose name was another's that was.
func (n *node) published() bool { return n.id != "" && (n.seen || n.heir) }

func (n *node) usage() energy.Usage {
	return energy.Usage{ID: n.id, CPU: n.base + n.own, Weight: n.share}
}

// adopt makes n a child of p, together with those children of p that are inside n.
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

// disown takes n from its parent's children.
func (n *node) disown() {
	n.parent.children = slices.DeleteFunc(n.parent.children, func(c *node) bool { return c == n })
}

// certain tells that what n claims is all that it used. What a slice claims are its children's claims.
func (n *node) certain() bool {
	if n.role == slice {
		return !n.unsure
	}
	return !n.failed || n.rebase
}

// record books a read of the counter.
func (n *node) record(value time.Duration, reborn bool) {
	switch {
	case n.rebase:
		n.rebase, n.rebased = false, true
		n.lose()
	case value >= n.raw:
		n.total += value - n.raw
	case reborn, n.fell: // the second time in a row it is no accident
		n.total += value
	default:
		n.fell, n.failed = true, true
		return
	}
	n.raw = value
	n.seen, n.fell, n.failed, n.failing = true, false, false, 0
}

// lose gives up what those inside n did that could not be read: n begins anew, so what they did is counted around it.
func (n *node) lose() {
	for _, c := range n.children {
		c.rebase = c.rebase || c.failed
		c.lose()
	}
}

// fail books that the counter could not be read. Its time is kept: counters are sums, so the next good read has it.
// What stays broken is given up, so that it does not hold up what is around it: from then on its time is counted
// there.
func (n *node) fail(now time.Duration) {
	n.failed = true
	if n.failing == 0 {
		n.failing = max(now, 1)
	}
	if !n.seen || now-n.failing > loseAfter {
		n.rebase = true
	}
}

// attribute computes what n and its children claim, and what is n's own.
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
			n.total = max(n.total, n.own+sum) // what children did meanwhile is theirs
		}
		if known {
			n.own = max(n.own, n.total-sum)
		}
		n.claim = max(n.total, n.own+sum)
	}
	n.delta, n.before = n.total-n.before, n.total
	n.fresh, n.late, n.rebased, n.ghosts = false, false, false, 0
}

// attributeSlice computes what a slice's children claim. What they do not is no consumer's here, but if some of them
// ended in this tick, and nothing else can have grown it, it is theirs.
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

// divide gives what children that ended in this tick used after their last read to them, in the proportion of what they
// used in the tick before, and returns the sum of it. What others used that came and went between two reads is left.
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
	// Those that were never read count as the others do on average.
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
			continue // a slice, which is no consumer
		}
		l.own += part
		l.seen = l.seen || part > 0
		given += part
	}
	return given
}
