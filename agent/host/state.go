package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/energy"
)

// The state is the tree with all its sums: what an agent that was killed goes on from. Groups that are gone when it
// comes back end then, with what is left of their time; groups that are new began in between.

const stateVersion = 1

var (
	// ErrOtherBoot says that a state is of another boot of the node: its counters began anew since.
	ErrOtherBoot = errors.New("the state is of another boot")

	errState = errors.New("damaged state")
)

// AppendState appends the state after a sweep to dst.
func (h *Host) AppendState(dst []byte) []byte {
	dst = append(dst, 'K', 'H', stateVersion)
	dst = appendString(dst, h.boot)
	dst = append(dst, h.complete())
	dst = binary.AppendUvarint(dst, uint64(h.lift))
	dst = appendSums(dst, h.root)
	dst = binary.AppendUvarint(dst, uint64(len(h.byDir)))
	next := uint64(0)
	return h.appendChildren(dst, h.root, 0, &next)
}

// complete is 1 if every group that is not in the tree began later.
func (h *Host) complete() byte {
	if h.blind() || h.stats.Folded > 0 || h.stats.Duplicates > 0 || h.stats.Truncated > 0 {
		return 0
	}
	return 1
}

// appendChildren writes what is inside n, each node before its children. Nodes are numbered from 1 as they are
// written; 0 is the root.
func (h *Host) appendChildren(dst []byte, n *node, number uint64, next *uint64) []byte {
	for _, c := range n.children {
		*next++
		own := *next
		dst = append(dst, byte(c.role), byte(c.class), c.flags(), c.version())
		dst = binary.AppendUvarint(dst, number)
		dst = appendString(dst, c.relative())
		dst = appendSums(dst, c)
		dst = binary.AppendUvarint(dst, c.ino)
		dst = binary.AppendUvarint(dst, c.weight)
		if c.name != "" {
			dst = appendString(dst, c.name)
			dst = appendString(dst, c.key)
		}
		if c.role == process {
			dst = binary.AppendUvarint(dst, uint64(c.pid))
			dst = binary.AppendUvarint(dst, c.start)
		}
		dst = h.appendChildren(dst, c, own, next)
	}
	return dst
}

const (
	flagSeen = 1 << iota
	flagRebase
	flagFailed
	flagHeir
	flagExact
)

func (n *node) flags() (flags byte) {
	if n.seen {
		flags |= flagSeen
	}
	if n.rebase {
		flags |= flagRebase
	}
	if n.failed {
		flags |= flagFailed
	}
	if n.heir {
		flags |= flagHeir
	}
	if n.exact {
		flags |= flagExact
	}
	return flags
}

func (n *node) version() byte {
	if n.hier == nil {
		return 0
	}
	return byte(n.hier.version)
}

// relative is the directory of n from its parent's, or from the root of its hierarchy.
func (n *node) relative() string {
	switch {
	case n.hier == nil:
		return ""
	case n.parent.hier == n.hier:
		return n.dir[len(n.parent.dir)+1:]
	}
	return n.path()
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendSums(dst []byte, n *node) []byte {
	for _, v := range []time.Duration{n.raw, n.total, n.own, n.gone, n.base, n.claim} {
		dst = binary.AppendUvarint(dst, uint64(v))
	}
	return binary.AppendVarint(dst, int64(n.rest))
}

// RestoreState goes on from a state, if it is of this boot. What the Host found and read before is forgotten; after an
// error the Host is as it was.
func (h *Host) RestoreState(state []byte) error {
	r := reader{text: state}
	if r.byte() != 'K' || r.byte() != 'H' || r.byte() != stateVersion {
		return fmt.Errorf("restoring CPU times: %w", errState)
	}
	if boot := r.string(); !r.bad && boot != h.boot {
		return fmt.Errorf("restoring CPU times: %w", ErrOtherBoot)
	}
	complete := r.byte()
	lift := r.duration()
	root := &node{role: system, id: energy.System, fd: -1}
	r.sums(root)
	byDir, byID := h.restoreNodes(&r, root)
	if r.bad || len(r.text) > 0 {
		return fmt.Errorf("restoring CPU times: %w", errState)
	}
	for _, n := range h.byDir {
		h.closeFile(n)
	}
	h.lift, h.root, h.byDir, h.byID = lift, root, byDir, byID
	h.changed = true
	h.stats.Groups, h.byPID = 0, 0
	h.leaving, h.ended, h.weigh = nil, nil, weighing{rule: h.weigh.rule, last: h.weigh.last}
	for _, n := range byID {
		h.count(n, 1)
		if n.role == vm {
			h.weigh.young = append(h.weigh.young, n) // for its virtual CPUs
		}
	}
	h.found.started, h.found.next = complete == 0, 0
	h.vms.started, h.vms.next = true, 0 // machines that are found from now on were part of something
	return nil
}

// restoreNodes reads the tree below root.
func (h *Host) restoreNodes(r *reader, root *node) (byDir, byID map[string]*node) {
	nodes := []*node{root}
	byDir, byID = map[string]*node{}, map[string]*node{}
	for count := r.uint(); count > 0 && !r.bad; count-- {
		n := h.restoreNode(r, nodes)
		if n == nil || byDir[n.dir] != nil || n.id != "" && byID[n.id] != nil {
			r.bad = true
			break
		}
		nodes = append(nodes, n)
		byDir[n.dir] = n
		if n.id != "" {
			byID[n.id] = n
		}
	}
	return byDir, byID
}

// restoreNode reads one node and makes it a child of its parent; nil if it cannot be one.
func (h *Host) restoreNode(r *reader, nodes []*node) *node {
	n := &node{role: role(r.byte()), class: class(r.byte()), fd: -1}
	flags, version := r.byte(), r.byte()
	n.seen, n.rebase, n.failed = flags&flagSeen != 0, flags&flagRebase != 0, flags&flagFailed != 0
	n.heir, n.exact = flags&flagHeir != 0, flags&flagExact != 0
	parent := r.uint()
	rel := r.string()
	r.sums(n)
	n.ino, n.weight = r.uint(), r.uint()
	if r.bad || parent >= uint64(len(nodes)) || n.class > besteffort {
		return nil
	}
	n.parent = nodes[parent]
	if n.role == vm || n.role == process {
		n.name, n.key = r.string(), r.string()
		if n.name == "" || n.name != sanitise(n.name, 2*maxVMName, false) {
			return nil
		}
	}
	if n.role == process {
		n.pid, n.start = int(r.uint()&math.MaxInt32), r.uint()
		n.dir, n.file = fmt.Sprintf("%s/%d", h.opts.Proc, n.pid), processFile
	} else if !h.restorePlace(n, version, rel) {
		return nil
	}
	if !n.restoreID() || r.bad {
		return nil
	}
	n.before = n.total
	n.parent.children = append(n.parent.children, n)
	return n
}

// restorePlace finds the directory of a node.
func (h *Host) restorePlace(n *node, version byte, rel string) bool {
	for _, one := range h.hierarchies {
		if one.version == int(version) {
			n.hier = one
		}
	}
	if n.hier == nil || rel == "" || rel != strings.TrimPrefix(path.Clean("/"+rel), "/") || len(rel) > maxPath {
		return false
	}
	n.file = n.hier.counter()
	n.dir = n.hier.dir + "/" + rel
	if n.parent.hier == n.hier {
		n.dir = n.parent.dir + "/" + rel
	}
	return len(n.dir) <= maxPath+len(n.hier.dir)
}

// restoreID names a node as its directory is named, or as its machine was.
func (n *node) restoreID() bool {
	base := path.Base(n.dir)
	switch n.role {
	case slice:
		return true
	case pod:
		_, key := below(slice, true, path.Base(path.Dir(n.dir)), base)
		n.id = energy.ContainerID(key, "")
		return key != "" && n.class == noClass
	case container:
		key := containerID(base)
		n.id = n.parent.id + "/" + key
		return key != "" && n.parent.role == pod
	case vm, process:
		n.id = energy.VMID(n.name)
		return true
	case group:
		n.id = energy.CgroupID(sanitise(n.path(), maxGroup, true))
		return true
	}
	return false
}

// reader takes a state apart. After the first mistake everything it returns is zero.
type reader struct {
	text []byte
	bad  bool
}

func (r *reader) fail() { r.bad, r.text = true, nil }

func (r *reader) byte() byte {
	if len(r.text) == 0 {
		r.fail()
		return 0
	}
	b := r.text[0]
	r.text = r.text[1:]
	return b
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.text)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.text = r.text[n:]
	return v
}

func (r *reader) duration() time.Duration {
	v := r.uint()
	if v > math.MaxInt64/2 { // the sum of two must not overflow
		r.fail()
		return 0
	}
	return time.Duration(v)
}

func (r *reader) string() string {
	n := r.uint()
	if n > uint64(len(r.text)) {
		r.fail()
		return ""
	}
	s := string(r.text[:n])
	r.text = r.text[n:]
	return s
}

func (r *reader) sums(n *node) {
	for _, v := range []*time.Duration{&n.raw, &n.total, &n.own, &n.gone, &n.base, &n.claim} {
		*v = r.duration()
	}
	v, size := binary.Varint(r.text)
	if size <= 0 || v > math.MaxInt64/2 || v < math.MinInt64/2 {
		r.fail()
		return
	}
	r.text = r.text[size:]
	n.rest = time.Duration(v)
}
