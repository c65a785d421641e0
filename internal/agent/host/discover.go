package host

import (
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Limits of discovery, because users who can create control groups may create many or deeply nested ones.
const (
	maxDepth   = 8     // of groups with an unknown role; kind's kubelet is at depth 4
	maxPath    = 2048  // groups with longer paths are accounted to their parent
	maxVisits  = 1024  // maximum number of new groups per tick before a walk
	walkBudget = 4096  // maximum number of directories listed per walk
	maxListing = 16384 // maximum number of entries per directory
	pageSize   = 256   // number of entries per read; also the unit of walkBudget for large directories
)

// discovery is the state of discovering control groups.
type discovery struct {
	started bool
	next    time.Duration // time of the next walk
	pending []event
	index   map[string]int // index in pending by directory
	hot     []place        // directories to list first: groups that contain consumers
	cold    []place        // other directories to list
	budget  int
	late    bool // groups found now may have existed for some time
}

func (h *Host) blind() bool { return h.watch.full }

// discover updates the tree with created and removed groups.
func (h *Host) discover(now time.Duration) {
	d := &h.found
	overflow := h.watch.drain(h.noticed)
	if overflow {
		h.stats.Overflows++
	}
	if len(d.pending) > maxVisits {
		overflow = true
	}
	if !overflow && d.started {
		overflow = h.visit()
	}
	d.pending = d.pending[:0]
	clear(d.index)
	if overflow || now >= d.next || !d.started {
		// Groups found by the first walk are new. Groups found by later walks may have existed for some time, and
		// their time has been accounted to their ancestors.
		d.next = now + walkInterval
		h.walk(now, d.started)
		d.started = true
	}
	if h.blind() {
		d.next = min(d.next, now+blindInterval)
	}
}

// noticed handles one inotify event. Most groups that are created and removed within a tick are never visited.
func (h *Host) noticed(e event) {
	d := &h.found
	dir := e.in.dir + "/" + e.name
	if e.created {
		if d.index == nil {
			d.index = map[string]int{}
		}
		d.index[dir] = len(d.pending)
		d.pending = append(d.pending, e)
		return
	}
	if i, ok := d.index[dir]; ok {
		d.pending[i].name = ""
		delete(d.index, dir)
		if parent := h.byDir[e.in.dir]; parent != nil && parent.role == slice {
			parent.ghosts++
		}
	}
	if n := h.byDir[dir]; n != nil {
		if !h.stands(n) {
			h.leave(n)
		}
	} else if h.watch.has(dir) && inode(dir) == 0 {
		h.watch.drop(dir)
	}
}

// visit enters the created groups. It reports whether the budget was exhausted.
func (h *Host) visit() (spent bool) {
	d := &h.found
	d.budget = walkBudget
	for i := range d.pending {
		e := &d.pending[i]
		if e.name == "" {
			continue
		}
		d.late = e.moved // its time was accounted to its old name or its old ancestors
		h.enter(e.in, e.name)
		h.explore()
	}
	return h.spent()
}

// walk visits all groups. late is true if groups found by this walk may have existed for some time.
func (h *Host) walk(now time.Duration, late bool) {
	d := &h.found
	h.stats.Walks++
	h.stats.Folded, h.stats.Duplicates = 0, 0
	for _, n := range h.byDir {
		n.folded = false
		if n.role != process && !h.stands(n) {
			h.leave(n)
		}
	}
	d.late = late
	d.budget = walkBudget
	if now >= h.candidates.next {
		h.candidates.found, h.candidates.due = map[string]place{}, true
	}
	known := len(h.byID)
	for _, one := range h.hierarchies {
		d.hot = append(d.hot, place{hier: one, dir: one.dir})
	}
	h.explore()
	h.spent()
	if late && !h.blind() {
		h.stats.Missed += max(0, len(h.byID)-known)
		if len(h.byID) > known {
			d.next = now + blindInterval // some directories are not watched
		}
	}
}

// spent reports whether the budget is exhausted, and discards the remaining directories in this case. A later walk
// may reach them.
func (h *Host) spent() bool {
	d := &h.found
	if d.budget > 0 {
		return false
	}
	h.stats.Truncated++
	d.hot, d.cold = nil, nil
	return true
}

// explore lists the queued directories until the budget is exhausted. Groups that contain consumers take
// precedence.
func (h *Host) explore() {
	d := &h.found
	for d.budget > 0 {
		var p place
		switch {
		case len(d.hot) > 0:
			p, d.hot = d.hot[0], d.hot[1:]
			h.watch.add(p)
		case len(d.cold) > 0:
			p, d.cold = d.cold[0], d.cold[1:]
			if p.depth <= 1 && len(h.watch.places) < h.opts.Max+512 {
				h.watch.add(p)
			}
		default:
			d.hot, d.cold = nil, nil
			return
		}
		d.budget--
		h.list(p)
	}
}

// list enters each subdirectory of p.
func (h *Host) list(p place) {
	var stat unix.Stat_t
	if err := unix.Lstat(p.dir, &stat); err != nil || stat.Nlink == 2 {
		return // a directory with two links has no subdirectories
	}
	f, err := os.Open(p.dir)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for seen := 0; seen < maxListing; {
		entries, err := f.ReadDir(pageSize)
		// Sort, so that the next process uses the same order: if two machines have the same name, the first one
		// gets it.
		slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		for _, e := range entries {
			if e.IsDir() {
				h.enter(p, e.Name())
			}
		}
		if seen += len(entries); seen > pageSize {
			h.found.budget--
		}
		if err != nil {
			return // usually io.EOF
		}
	}
	h.stats.Truncated++
}

// enter determines the role of the group name in a directory, adds it to the tree, and queues it for listing.
func (h *Host) enter(in place, name string) {
	d := &h.found
	p := place{hier: in.hier, dir: in.dir + "/" + name, depth: in.depth + 1}
	if len(p.dir) > maxPath {
		return
	}
	var key string
	p.role, key = below(in.role, path.Base(in.dir), name)
	within, near := false, false
	if p.role == other || p.role == container || p.role == ignored {
		rel := p.dir[len(p.hier.dir)+1:]
		var full bool
		if full, within, near = match(h.globs, rel); full && p.role != container && len(rel) <= maxGroup {
			p.role, key = group, rel
		}
	}
	switch p.role {
	case ignored:
		if in.role == slice {
			h.addCandidate(p, true, near)
		}
		if !within {
			return
		}
	case slice:
		h.addSlice(p)
		h.watchAbove(p)
	case other:
		h.addCandidate(p, path.Base(in.dir) == "lxc", near)
	default:
		if !h.addMember(p, key) {
			return
		}
	}
	switch {
	case p.role == slice, p.role == pod, within:
		d.hot = append(d.hot, p)
	case p.role == group, p.role == other && p.depth < maxDepth:
		d.cold = append(d.cold, p)
	}
}

// addSlice adds a group that contains pods.
func (h *Host) addSlice(p place) {
	n := h.insert(p)
	switch base := path.Base(p.dir); {
	case unitUID(base) != "": // of one pod
	case isKubepods(base):
		n.class = kubepods
	case strings.Contains(base, "burstable"):
		n.class = burstable
	default:
		n.class = besteffort
	}
}

// addMember adds a consumer and reports whether it is in the tree. It does not add a consumer beyond the limit or
// with the ID of another group.
func (h *Host) addMember(p place, key string) bool {
	if n := h.byDir[p.dir]; n != nil {
		if n.ino == inode(p.dir) {
			return true
		}
		h.leave(n)
	}
	parent := h.byDir[path.Dir(p.dir)]
	late := false
	id := ""
	switch p.role {
	case pod:
		id = energy.ContainerID(key, "")
	case container:
		id = containerOf(parent, key)
	case group:
		id = energy.CgroupID(sanitise(key, maxGroup, true))
	case vm:
		id, late = h.vmID(vmName(key), key)
	}
	if !h.admit(p.role, id, parent, false) {
		if same := h.byID[id]; p.role != container && (same == nil || same.hier == p.hier) {
			h.addCandidate(p, true, false)
		}
		return false
	}
	if parent == nil && path.Dir(p.dir) != p.hier.dir && p.role != container {
		h.insert(place{hier: p.hier, dir: path.Dir(p.dir), role: slice})
	}
	if p.role == vm || p.role == group || p.role == container && (parent == nil || parent.role != pod) {
		h.watchAbove(p)
	}
	n := h.insert(p)
	n.rebase = n.rebase || late
	h.name(n, id, key)
	return true
}

// containerOf returns the consumer ID of a container with a key as returned by [below], or "" if it is invalid.
func containerOf(parent *node, key string) string {
	if uid, id, outside := strings.Cut(key, "/"); outside {
		return energy.ContainerID(uid, id)
	}
	if key == "" || parent == nil || parent.role != pod {
		return ""
	}
	return parent.id + "/" + key
}

// admit reports whether a consumer may be added. Time of consumers that are not added is accounted to their
// ancestors. Groups that match a pattern may use at most half of the limit, because users may be allowed to create
// them, unlike pods. The same applies to processes that look like virtual machines.
func (h *Host) admit(as role, id string, parent *node, byPID bool) bool {
	half := (h.opts.Max + 1) / 2
	switch {
	case id == "":
		return false
	case h.byID[id] != nil:
		h.stats.Duplicates++
	case len(h.byID) >= h.opts.Max, as == group && h.stats.Groups >= half, byPID && h.byPID >= half:
		h.stats.Folded++
	default:
		return true
	}
	if parent != nil {
		parent.folded = true
	}
	return false
}

// name registers n as the consumer id.
func (h *Host) name(n *node, id, key string) {
	n.id = id
	if n.role == vm || n.role == process {
		n.key = key
	}
	h.byID[id] = n
	h.changed = true
	h.count(n, 1)
	h.weigh.young = append(h.weigh.young, n)
}

// count updates the number of consumers that may use at most half of the limit.
func (h *Host) count(n *node, by int) {
	switch {
	case n.role == group:
		h.stats.Groups += by
	case strings.HasPrefix(n.key, pidKey):
		h.byPID += by
	}
}

// vmID returns the consumer ID of a virtual machine. If another machine has the same name, by chance or because of
// truncation, the key is appended. The same machine in another hierarchy gets the same ID. A machine that was
// tracked by its process is removed, and late is true, so that its group is counted from now on.
func (h *Host) vmID(name, key string) (id string, late bool) {
	id = energy.VMID(name)
	n := h.byID[id]
	if n != nil && n.role == process {
		h.leave(n)
		return id, true
	}
	if n == nil || n.key == key {
		return id, false
	}
	return energy.VMID(sanitise(name+"#"+key, 2*maxVMName, false)), false
}

// insert returns the node of p. If there is none, it creates one below the innermost enclosing node.
func (h *Host) insert(p place) *node {
	ino := inode(p.dir)
	if n := h.byDir[p.dir]; n != nil {
		if ino == n.ino || ino == 0 {
			return n
		}
		h.leave(n)
	}
	n := &node{role: p.role, hier: p.hier, dir: p.dir, file: p.hier.counter, ino: ino, fd: -1, rebase: h.found.late}
	n.adopt(h.around(p.hier, p.dir))
	n.parent.late = n.parent.late || h.found.late
	h.byDir[p.dir] = n
	return n
}

// around returns the innermost node that encloses dir.
func (h *Host) around(one *hierarchy, dir string) *node {
	for dir = path.Dir(dir); len(dir) > len(one.dir); dir = path.Dir(dir) {
		if n := h.byDir[dir]; n != nil {
			return n
		}
	}
	return h.root
}

// watchAbove watches the groups that enclose p, so that the creation of similar groups is detected.
func (h *Host) watchAbove(p place) {
	depth := p.depth - 1
	for dir := path.Dir(p.dir); len(dir) > len(p.hier.dir); dir = path.Dir(dir) {
		if h.watch.has(dir) {
			return
		}
		up := place{hier: p.hier, dir: dir, depth: depth}
		if n := h.byDir[dir]; n != nil && (n.role != slice || n.class != noClass) {
			up.role = n.role
		}
		h.watch.add(up)
		depth--
	}
}

// stands reports whether the group of n still exists and has not been replaced.
func (h *Host) stands(n *node) bool {
	ino := inode(n.dir)
	return ino != 0 && (ino == n.ino || n.ino == 0)
}

// inode returns the inode number of a directory, which distinguishes successive directories of the same name. It
// returns 0 if the directory does not exist.
func inode(dir string) uint64 {
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0
	}
	return stat.Ino
}

// leave removes n and its descendants from the tree. The time that they used so far remains claimed.
func (h *Host) leave(n *node) {
	if n.left {
		return
	}
	n.disown()
	n.parent.gone += n.claim
	if n.parent.role == slice {
		n.parent.leavers = append(n.parent.leavers, n)
	}
	h.leaving = append(h.leaving, n)
	h.forget(n)
}

func (h *Host) forget(n *node) {
	n.left = true
	// The pending time of an unreadable child is already claimed, and no later read will report it.
	if n.role != slice {
		rest := n.claim - n.gone
		for _, c := range n.children {
			rest -= c.claim
		}
		n.own = max(n.own, rest)
	}
	h.closeFile(n)
	if h.byDir[n.dir] == n {
		delete(h.byDir, n.dir)
		h.watch.drop(n.dir)
	}
	if n.id != "" && h.byID[n.id] == n {
		delete(h.byID, n.id)
		h.changed = true
		h.count(n, -1)
	}
	for _, c := range n.children {
		h.forget(c)
	}
}
