package host

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/energy"
)

// search finds virtual machines by their processes, for hypervisors that give them no group of a known name.
type search struct {
	next    time.Duration
	started bool
	known   map[int]uint8 // processes that are no machine, by how often that was seen: a young one may not have exec'd yet
	rounds  int
}

const (
	maxCmdline = 64 << 10
	forgetting = 6 // rounds after which known processes are looked at again: numbers are used again
)

// search looks at processes that are new, at most every ten seconds.
func (h *Host) search(now time.Duration) {
	s := &h.vms
	if !h.opts.VMs || s.started && now < s.next {
		return
	}
	s.next = now + searchInterval
	if s.rounds++; s.rounds%forgetting == 0 {
		s.known = nil
	}
	dir, err := os.Open(h.opts.Proc)
	if err != nil {
		h.stats.ReadErrors++
		return
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids) // of two machines with one name, the older keeps it
	known := make(map[int]uint8, len(pids))
	for _, pid := range pids {
		if s.known[pid] >= 2 {
			known[pid] = s.known[pid]
			continue
		}
		if !h.searchProcess(pid) {
			known[pid] = s.known[pid] + 1
		}
	}
	s.known = known
	s.started = true
}

// searchProcess reports if a process is a virtual machine's.
func (h *Host) searchProcess(pid int) bool {
	dir := filepath.Join(h.opts.Proc, strconv.Itoa(pid))
	cmdline, err := h.io.slurp(dir, "/cmdline", maxCmdline)
	if err != nil {
		return false
	}
	name, ok := guestOf(cmdline)
	if !ok {
		return false
	}
	groups, err := h.io.slurp(dir, "/cgroup", maxCmdline)
	if err != nil {
		return false
	}
	h.addMachine(pid, dir, name, groupsOf(groups))
	return true
}

// groupsOf reads /proc/PID/cgroup: the paths of the groups that count a process's CPU time, in version 1 and 2.
func groupsOf(text []byte) (paths [3]string) {
	for line := range bytes.Lines(text) {
		_, rest, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
		if !ok {
			continue
		}
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok || !strings.HasPrefix(group, "/") || strings.Contains(group, "/../") {
			continue
		}
		if controllers == "" {
			paths[2] = group
		}
		for c := range strings.SplitSeq(controllers, ",") {
			if c == "cpuacct" {
				paths[1] = group
			}
		}
	}
	return paths
}

// addMachine adds the machine of a QEMU process, by its group if it has one for itself.
func (h *Host) addMachine(pid int, dir, name string, groups [3]string) {
	key := "pid-" + strconv.Itoa(pid)
	if name == "" {
		name = key
	}
	old := h.byDir[dir]
	for _, one := range h.hierarchies {
		if role, _ := placeOf(groups[one.version]); role == pod || role == vm {
			if old != nil {
				h.leave(old) // it moved to where it is known by its group
			}
			return
		}
	}
	if old != nil {
		return
	}
	around := h.root
	for _, one := range h.hierarchies {
		group := groups[one.version]
		if len(group) <= 1 || len(group) > maxPath {
			continue
		}
		p := place{hier: one, dir: one.dir + path.Clean(group), role: vm, depth: strings.Count(group, "/")}
		n := h.byDir[p.dir]
		switch {
		case n != nil && n.role == vm:
			return
		case n == nil && isAlone(p.dir, pid):
			h.addAlone(p, name, key)
			return
		}
		if around == h.root {
			around = h.around(one, p.dir+"/")
		}
	}
	h.addProcess(pid, dir, name, key, around)
}

// isAlone tells if a group holds one process only.
func isAlone(dir string, pid int) bool {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(pid) {
		return false
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e.IsDir() {
			return false
		}
	}
	return true
}

func (h *Host) addAlone(p place, name, key string) {
	id, _ := h.vmID(name, key)
	if !h.admit(vm, id, h.around(p.hier, p.dir)) {
		return
	}
	n, _ := h.insert(p)
	n.rebase = h.vms.started
	n.parent.late = n.parent.late || n.rebase
	h.name(n, id, key)
}

func (h *Host) addProcess(pid int, dir, name, key string, around *node) {
	text, err := h.io.slurp(dir, processFile, window)
	if err != nil {
		return
	}
	stat, ok := parseProcess(text)
	if !ok {
		return
	}
	id := energy.VMID(name)
	if h.byID[id] != nil {
		id = energy.VMID(sanitise(name+"#"+key, 2*maxVMName, false))
	}
	if !h.admit(process, id, around) {
		return
	}
	n := &node{
		role: process, dir: dir, file: processFile, pid: pid, start: stat.start, fd: -1,
		rebase: h.vms.started, // it may have run for a while as part of what is around it
	}
	n.adopt(around)
	n.parent.late = n.parent.late || n.rebase
	h.byDir[dir] = n
	h.name(n, id, key)
}
