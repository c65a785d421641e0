package host

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/codec"
)

// The saved state contains the tree with all counters, from which the next process continues. Groups that were
// removed in the meantime end with their remaining time, and new groups were created in the meantime.

const stateVersion = 1

var (
	// ErrOtherBoot is returned if the state is from another boot of the node, because its counters have been reset
	// since.
	ErrOtherBoot = errors.New("the state is from another boot")

	errState = errors.New("damaged state")
)

// AppendState appends the state after a sweep to dst.
func (h *Host) AppendState(dst []byte) []byte {
	c := codec.Writer(append(dst, 'K', 'H', stateVersion))
	boot, complete, lift, count := h.boot, h.complete(), h.lift, uint64(len(h.byDir))
	codeHead(&c, &boot, &complete, &lift, h.root, &count)
	next := uint64(0)
	writeChildren(&c, h.root, 0, &next)
	return c.Data()
}

// complete reports whether the tree contains all groups, so that groups found later must be new.
func (h *Host) complete() bool {
	return !h.blind() && h.stats.Folded == 0 && h.stats.Duplicates == 0 && h.stats.Truncated == 0
}

// codeHead encodes or decodes the header: the boot ID, the state of the whole node, and the number of nodes.
func codeHead(c *codec.Codec, boot *string, complete *bool, lift *time.Duration, root *node, count *uint64) {
	c.Text(boot)
	c.Flags(complete)
	codeDuration(c, lift)
	root.codeSums(c)
	codec.Uint(c, count)
}

// writeChildren encodes the descendants of n, each node before its children. Nodes are numbered from 1 in this
// order; the root is 0.
func writeChildren(c *codec.Codec, n *node, number uint64, next *uint64) {
	for _, child := range n.children {
		*next++
		own, version, relative := *next, byte(0), child.relative()
		if child.hier != nil {
			version = byte(child.hier.version)
		}
		child.code(c, &version, &number, &relative)
		writeChildren(c, child, own, next)
	}
}

// code encodes or decodes a node, including the version of its hierarchy, the number of its parent and its relative
// directory.
func (n *node) code(c *codec.Codec, version *byte, parent *uint64, relative *string) {
	c.Byte((*byte)(&n.role))
	c.Byte((*byte)(&n.class))
	c.Flags(&n.seen, &n.rebase, &n.failed, &n.heir, &n.exact)
	c.Byte(version)
	codec.Uint(c, parent)
	c.Text(relative)
	n.codeSums(c)
	codec.Uint(c, &n.ino, &n.weight)
	if n.role == vm || n.role == process {
		name, _ := energy.VMOf(n.id)
		if c.Text(&name); c.Reading() {
			n.id = energy.VMID(name)
		}
		c.Text(&n.key)
	}
	if n.role == process {
		pid := uint64(n.pid)
		codec.Uint(c, &pid)
		n.pid = int(pid & math.MaxInt32)
		codec.Uint(c, &n.start)
	}
}

func (n *node) codeSums(c *codec.Codec) {
	for _, v := range [...]*time.Duration{&n.raw, &n.total, &n.own, &n.gone, &n.base, &n.claim} {
		codeDuration(c, v)
	}
	if codec.Int(c, &n.rest); c.Reading() && (n.rest > math.MaxInt64/2 || n.rest < math.MinInt64/2) {
		c.Fail()
	}
}

// codeDuration encodes or decodes a non-negative duration. Decoding fails if the sum of two such durations could
// overflow.
func codeDuration(c *codec.Codec, v *time.Duration) {
	if codec.Uint(c, v); c.Reading() && (*v < 0 || *v > math.MaxInt64/2) {
		c.Fail()
	}
}

// relative returns the directory of n relative to its parent, or to the root of its hierarchy if the parent is in
// another one.
func (n *node) relative() string {
	if n.hier != nil && n.parent.hier == n.hier {
		return n.dir[len(n.parent.dir)+1:]
	}
	return n.path()
}

// RestoreState restores a state of the same boot. It discards everything that the Host has read before. If it
// returns an error, the Host is unchanged.
func (h *Host) RestoreState(state []byte) error {
	text, ok := bytes.CutPrefix(state, []byte{'K', 'H', stateVersion})
	if !ok {
		return fmt.Errorf("restoring CPU times: %w", errState)
	}
	c := codec.Reader(text)
	root := &node{role: system, id: energy.System, fd: -1}
	var boot string
	var complete bool
	var lift time.Duration
	var count uint64
	codeHead(&c, &boot, &complete, &lift, root, &count)
	if !c.Failed() && boot != h.boot {
		return fmt.Errorf("restoring CPU times: %w", ErrOtherBoot)
	}
	byDir, byID := h.restoreNodes(&c, root, count)
	if !c.Whole() {
		return fmt.Errorf("restoring CPU times: %w", errState)
	}
	for _, n := range h.byDir {
		h.closeFile(n)
	}
	h.lift, h.root, h.byDir, h.byID = lift, root, byDir, byID
	h.changed = true
	h.stats.Groups, h.byPID = 0, 0
	h.leaving, h.ended, h.weigh = nil, nil, weighing{rule: h.weigh.rule}
	for _, n := range byID {
		h.count(n, 1)
		h.weigh.young = append(h.weigh.young, n)
	}
	h.found.started, h.found.next = !complete, 0
	h.vms.started, h.vms.next = true, 0 // time of machines found later was accounted to their ancestors
	return nil
}

// restoreNodes decodes the tree below root.
func (h *Host) restoreNodes(c *codec.Codec, root *node, count uint64) (byDir, byID map[string]*node) {
	nodes := []*node{root}
	byDir, byID = map[string]*node{}, map[string]*node{}
	for ; count > 0 && !c.Failed(); count-- {
		n := h.restoreNode(c, nodes)
		if n == nil || byDir[n.dir] != nil || n.id != "" && byID[n.id] != nil {
			c.Fail()
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

// restoreNode decodes one node and adds it to its parent. It returns nil if the node is invalid.
func (h *Host) restoreNode(c *codec.Codec, nodes []*node) *node {
	n := &node{fd: -1}
	var version byte
	var parent uint64
	var relative string
	n.code(c, &version, &parent, &relative)
	if c.Failed() || parent >= uint64(len(nodes)) || n.class > besteffort {
		return nil
	}
	n.parent = nodes[parent]
	if n.role == vm || n.role == process {
		if name, ok := energy.VMOf(n.id); !ok || name != sanitise(name, 2*maxVMName, false) {
			return nil
		}
	}
	if n.role == process {
		n.dir, n.file = fmt.Sprintf("%s/%d", h.opts.Proc, n.pid), processFile
	} else if !h.restorePlace(n, version, relative) {
		return nil
	}
	if !n.restoreID() {
		return nil
	}
	n.before = n.total
	n.parent.children = append(n.parent.children, n)
	return n
}

// restorePlace sets the hierarchy and directory of a node, and reports whether they are valid.
func (h *Host) restorePlace(n *node, version byte, rel string) bool {
	for _, one := range h.hierarchies {
		if one.version == int(version) {
			n.hier = one
		}
	}
	if n.hier == nil || rel == "" || rel != strings.TrimPrefix(path.Clean("/"+rel), "/") || len(rel) > maxPath {
		return false
	}
	n.file = n.hier.counter
	n.dir = n.hier.dir + "/" + rel
	if n.parent.hier == n.hier {
		n.dir = n.parent.dir + "/" + rel
	}
	return len(n.dir) <= maxPath+len(n.hier.dir)
}

// restoreID derives the consumer ID from the directory, unless it is already set, and reports whether it is valid.
func (n *node) restoreID() bool {
	base := path.Base(n.dir)
	switch n.role {
	case slice, vm, process:
		return true
	case pod:
		_, key := below(slice, path.Base(path.Dir(n.dir)), base)
		n.id = energy.ContainerID(key, "")
		return key != "" && n.class == noClass
	case container:
		_, key := below(n.parent.role, path.Base(path.Dir(n.dir)), base)
		n.id = containerOf(n.parent, key)
		return n.id != ""
	case group:
		n.id = energy.CgroupID(sanitise(n.path(), maxGroup, true))
		return true
	}
	return false
}
