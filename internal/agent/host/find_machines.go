package host

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// search finds virtual machines by their processes, for hypervisors that do not use groups with known names.
//
// Because a process can block readers of its command line indefinitely, a separate goroutine reads the processes
// while sweeps continue. There is at most one such goroutine. While it is blocked, no further machines are found.
type search struct {
	next    time.Duration
	started bool
	wait    time.Duration // maximum time that a sweep waits for the goroutine
	running chan scan     // receives the result of the goroutine; nil if none is running
	at      *atomic.Int64 // PID that the goroutine is reading
	warned  bool          // the blocking process has been logged
	last    scan
}

// scan is the result of one scan of all processes.
type scan struct {
	known map[int]bystander
	finds []find
	round int
}

// bystander is a process that is not a virtual machine.
type bystander struct {
	start uint64
	seen  uint8 // number of scans; a new process may not have called exec yet
}

// find is the process of a virtual machine.
type find struct {
	pid    int
	start  uint64
	name   string
	vcpus  int
	groups [3]string
}

const (
	maxCmdline  = 64 << 10
	settled     = 2 // number of scans after which a process is not checked again
	identifying = 6 // number of rounds between checks for reused PIDs
	searchWait  = 50 * time.Millisecond
	closeWait   = time.Second
	pidKey      = "pid-"
)

// search scans for new processes at most every ten seconds, and adds the virtual machines found.
func (h *Host) search(now time.Duration) {
	s := &h.vms
	if !h.opts.VMs || s.running == nil && s.started && now < s.next {
		return
	}
	wait := time.Millisecond // for a scan that was not finished in an earlier sweep
	if s.running == nil {
		wait, s.next = s.wait, now+searchInterval
		s.running, s.at = make(chan scan, 1), new(atomic.Int64)
		go scanProcesses(h.opts.Proc, s.last, h.io.pread, s.at, s.running)
	}
	select {
	case done := <-s.running:
		s.running, s.warned = nil, false
		for _, f := range done.finds {
			h.addMachine(f)
		}
		done.finds = nil
		s.last = done
	case <-time.After(wait):
		if now >= s.next && !s.warned {
			s.warned = true
			h.log.Warn("Search for virtual machines is blocked by a process", "pid", s.at.Load())
		}
	}
	s.started = true // the time of machines found later has been accounted to their ancestors
}

// close waits for the goroutine. If a process blocks it, close returns an error, and the goroutine ends when that
// process exits.
func (s *search) close() error {
	if s.running == nil {
		return nil
	}
	select {
	case <-s.running:
	case <-time.After(closeWait):
		return errHeldUp
	}
	s.running = nil
	return nil
}

var errHeldUp = errors.New("searching for virtual machines: reading the command line of a process is blocked")

// scanProcesses scans all processes except for known ones.
func scanProcesses(proc string, last scan, pread func(int, []byte) (int, error), at *atomic.Int64, out chan<- scan) {
	next := scan{known: make(map[int]bystander, len(last.known)), round: last.round + 1}
	defer func() { out <- next }()
	io := newFiles()
	io.pread = pread
	entries, _ := os.ReadDir(proc) // use the entries read before an error
	pids := make([]int, 0, len(entries))
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids) // if two machines have the same name, the older one gets it
	for _, pid := range pids {
		old := last.known[pid]
		if old.seen >= settled && next.round%identifying != 0 {
			next.known[pid] = old
			continue
		}
		at.Store(int64(pid))
		dir := filepath.Join(proc, strconv.Itoa(pid))
		text, err := io.slurp(dir, processFile, window)
		stat, ok := parseProcess(text)
		if err != nil || !ok {
			continue // the process has exited
		}
		if old.start != stat.start {
			old = bystander{start: stat.start}
		}
		if old.seen < settled {
			if f, ok := io.machine(dir); ok {
				f.pid, f.start = pid, stat.start
				next.finds = append(next.finds, f)
				continue
			}
			old.seen++
		}
		next.known[pid] = old
	}
}

// machine reads the command line of a process. It returns ok = false if the process is not a virtual machine, or if
// parsing panics, because any user can set a command line.
func (f *files) machine(dir string) (found find, ok bool) {
	defer func() {
		if recover() != nil {
			found, ok = find{}, false
		}
	}()
	cmdline, err := f.slurp(dir, "/cmdline", maxCmdline)
	if err != nil {
		return found, false
	}
	if found.name, ok = guestOf(cmdline); !ok {
		return found, false
	}
	found.vcpus = vcpusOf(cmdline)
	groups, err := f.slurp(dir, "/cgroup", maxCmdline)
	if err != nil {
		return found, false
	}
	found.groups = groupsOf(groups)
	return found, true
}

// groupsOf parses /proc/PID/cgroup. It returns the paths of the groups that count the CPU time of the process,
// indexed by version.
func groupsOf(text []byte) (paths [3]string) {
	for line := range bytes.Lines(text) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		if !strings.HasPrefix(group, "/") || strings.Contains(group, "/../") {
			continue
		}
		if controllers == "" {
			paths[2] = group
		}
		if slices.Contains(strings.Split(controllers, ","), "cpuacct") {
			paths[1] = group
		}
	}
	return paths
}

// addMachine adds the virtual machine of a QEMU process. It uses the group of the process if it is the only one in
// it.
func (h *Host) addMachine(f find) {
	key := pidKey + strconv.Itoa(f.pid)
	name := cmp.Or(f.name, key)
	dir := filepath.Join(h.opts.Proc, strconv.Itoa(f.pid))
	if old := h.byDir[dir]; old != nil {
		h.refind(old, f)
		return
	}
	if h.hasGroup(f) {
		return
	}
	around := h.root
	for _, one := range h.hierarchies {
		group := f.groups[one.version]
		if len(group) <= 1 || len(group) > maxPath {
			continue
		}
		p := place{hier: one, dir: one.dir + path.Clean(group), role: vm, depth: strings.Count(group, "/")}
		n := h.byDir[p.dir]
		switch {
		case n != nil && n.role == vm:
			h.setVCPUs(n, f.vcpus)
			return
		case n == nil && isAlone(p.dir, f.pid):
			h.addAlone(p, f, name, key)
			return
		}
		if around == h.root {
			around = h.around(one, p.dir+"/")
		}
	}
	h.addProcess(f, dir, name, key, around)
}

// refind updates a virtual machine that is tracked by its process.
func (h *Host) refind(n *node, f find) {
	switch {
	case n.start != f.start: // the PID was reused; the old process ends first
	case h.hasGroup(f):
		h.leave(n) // it moved to a group with a known name
	default:
		h.setVCPUs(n, f.vcpus)
	}
}

// hasGroup reports whether a virtual machine has a group with a known name, or is part of a pod.
func (h *Host) hasGroup(f find) bool {
	return slices.ContainsFunc(h.hierarchies, func(one *hierarchy) bool {
		role, _ := placeOf(f.groups[one.version])
		return role == pod || role == vm
	})
}

// setVCPUs sets the number of virtual CPUs of a machine if it is known.
func (h *Host) setVCPUs(n *node, vcpus int) {
	if vcpus > 0 && n.vcpus != vcpus {
		n.vcpus, h.changed = vcpus, true
	}
}

// isAlone reports whether pid is the only process in a group without subgroups.
func isAlone(dir string, pid int) bool {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(pid) {
		return false
	}
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, os.DirEntry.IsDir)
}

func (h *Host) addAlone(p place, f find, name, key string) {
	id, _ := h.vmID(name, key)
	if h.admit(vm, id, h.around(p.hier, p.dir), true) {
		h.addFound(h.insert(p), f, id, key)
	}
}

func (h *Host) addProcess(f find, dir, name, key string, around *node) {
	id := energy.VMID(name)
	if h.byID[id] != nil {
		id = energy.VMID(sanitise(name+"#"+key, 2*maxVMName, false))
	}
	if !h.admit(process, id, around, true) {
		return
	}
	n := &node{role: process, dir: dir, file: processFile, pid: f.pid, start: f.start, fd: -1}
	n.adopt(around)
	h.byDir[dir] = n
	h.addFound(n, f, id, key)
}

// addFound registers a virtual machine that was found by its process. After the first scan, its earlier time has been
// accounted to its ancestors.
func (h *Host) addFound(n *node, f find, id, key string) {
	n.rebase, n.vcpus = h.vms.started, f.vcpus
	n.parent.late = n.parent.late || n.rebase
	h.name(n, id, key)
}
