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

// search finds virtual machines by their processes, for hypervisors that give them no group of a known name.
//
// A process may hold up a reader of its command line for as long as it likes, so that is done beside the sweeps, by
// one goroutine at a time that hands over what it found. While one is held up, no other machine is found.
type search struct {
	next    time.Duration
	started bool
	pread   func(fd int, into []byte) (int, error) // a test puts faults in its place
	wait    time.Duration                          // how long a sweep waits for what is quick
	running chan scan                              // what a goroutine will hand over; nil if there is none
	at      *atomic.Int64                          // the process that it looks at
	warned  bool                                   // the log names the process that holds it up
	last    scan
}

// A scan is one look at all processes.
type scan struct {
	known map[int]bystander
	finds []find
	round int
}

// A bystander is a process that is no machine.
type bystander struct {
	start uint64
	seen  uint8 // how often: a young one may not have exec'd yet
}

// A find is the process of a machine.
type find struct {
	pid    int
	start  uint64
	name   string
	vcpus  int
	groups [3]string
}

const (
	maxCmdline  = 64 << 10
	settled     = 2 // looks after which a process is taken for what it is
	identifying = 6 // rounds after which numbers are looked at that may be used again
	searchWait  = 50 * time.Millisecond
	closeWait   = time.Second
	pidKey      = "pid-"
)

// search looks at processes that are new, at most every ten seconds.
func (h *Host) search(now time.Duration) {
	s := &h.vms
	if !h.opts.VMs {
		return
	}
	if s.running == nil {
		if s.started && now < s.next {
			return
		}
		s.next = now + searchInterval
		s.running, s.at = make(chan scan, 1), new(atomic.Int64)
		go scanProcesses(h.opts.Proc, s.last, s.pread, s.at, s.running)
		select {
		case done := <-s.running:
			h.searched(done)
		case <-time.After(s.wait):
			// What is found later was part of what is around it until then.
			s.started = true
		}
		return
	}
	select {
	case done := <-s.running:
		h.searched(done)
	default:
		if now >= s.next && !s.warned {
			s.warned = true
			h.log.Warn("a process holds up the search for virtual machines: no others are found meanwhile", "pid",
				s.at.Load())
		}
	}
}

// searched takes what was found.
func (h *Host) searched(done scan) {
	s := &h.vms
	s.running, s.warned = nil, false
	for _, f := range done.finds {
		h.addMachine(f)
	}
	done.finds = nil
	s.last, s.started = done, true
}

// close waits for the goroutine. One that a process holds up cannot be ended; it ends by itself when that process does.
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

var errHeldUp = errors.New("searching for virtual machines: a process holds up the reading of its command line")

// scanProcesses looks at all processes but those that are known.
func scanProcesses(proc string, last scan, pread func(int, []byte) (int, error), at *atomic.Int64, out chan<- scan) {
	next := scan{known: make(map[int]bystander, len(last.known)), round: last.round + 1}
	defer func() { out <- next }()
	io := newFiles()
	if pread != nil {
		io.pread = pread
	}
	entries, _ := os.ReadDir(proc) // those that there are
	pids := make([]int, 0, len(entries))
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids) // of two machines with one name, the older keeps it
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
			continue // it is gone
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

// machine reads what a process says of itself. It is not ok for one that is no virtual machine's, or that makes us
// panic: any user can write a command line.
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

// groupsOf reads /proc/PID/cgroup: the paths of the groups that count a process's CPU time, in version 1 and 2.
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

// addMachine adds the machine of a QEMU process, by its group if it has one for itself.
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

// refind looks again at a machine that is known by its process.
func (h *Host) refind(n *node, f find) {
	switch {
	case n.start != f.start: // another process has its number: the old one ends first
	case h.hasGroup(f):
		h.leave(n) // it moved to where it is known by its group
	default:
		h.setVCPUs(n, f.vcpus)
	}
}

// hasGroup reports whether a machine is known by a group's name, or is part of a pod.
func (h *Host) hasGroup(f find) bool {
	return slices.ContainsFunc(h.hierarchies, func(one *hierarchy) bool {
		role, _ := placeOf(f.groups[one.version])
		return role == pod || role == vm
	})
}

// setVCPUs books how many virtual CPUs a machine has, where no group tells.
func (h *Host) setVCPUs(n *node, vcpus int) {
	if vcpus > 0 && n.vcpus != vcpus {
		n.vcpus, h.changed = vcpus, true
	}
}

// isAlone reports whether a group holds one process only.
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
	if !h.admit(vm, id, h.around(p.hier, p.dir), true) {
		return
	}
	n, _ := h.insert(p)
	n.rebase = h.vms.started
	n.parent.late = n.parent.late || n.rebase
	n.vcpus = f.vcpus
	h.name(n, id, key)
}

func (h *Host) addProcess(f find, dir, name, key string, around *node) {
	id := energy.VMID(name)
	if h.byID[id] != nil {
		id = energy.VMID(sanitise(name+"#"+key, 2*maxVMName, false))
	}
	if !h.admit(process, id, around, true) {
		return
	}
	n := &node{
		role: process, dir: dir, file: processFile, pid: f.pid, start: f.start, vcpus: f.vcpus, fd: -1,
		rebase: h.vms.started, // it may have run for a while as part of what is around it
	}
	n.adopt(around)
	n.parent.late = n.parent.late || n.rebase
	h.byDir[dir] = n
	h.name(n, id, key)
}
