// Package host finds what runs on a node, containers, virtual machines and other control groups, and reads their CPU
// time. It needs no rights in Kubernetes, no capability and no foreign process: control groups tell all of it.
//
// Everything found is one tree, by the kernel's own nesting: the node, slices, pods, containers. What a member of the
// tree used beyond its children is its own: the container runtime's processes of a pod, the daemons of the node. So
// each nanosecond that the kernel counted belongs to exactly one consumer, and what is read a moment late is settled
// by a signed carry, never twice.
//
// A Host is not safe for concurrent use.
package host

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Options say where to look and for what.
type Options struct {
	Root string // where the control groups are mounted, or a bind mount of that; /sys/fs/cgroup if empty
	Proc string // the proc file system; /proc if empty
	// patterns of further control groups, from the root of their hierarchy, as "slurm/uid_*/job_*/step_*"
	Groups []string
	VMs    bool // look for QEMU processes that no control group tells of
	// how many consumers to tell apart at most; 5,000 if 0. The rest is part of its pod, or of the system
	Max int
}

// A Sweep is the CPU time of everything that runs on a node, at one instant.
type Sweep struct {
	At    time.Duration // the middle of the reads, on the node's clock since boot
	CPUs  float64
	Busy  time.Duration  // CPU time of the whole node since boot; 0 if unknown
	Usage []energy.Usage // sorted by ID; the next sweep reuses it
	Ended []energy.Usage // what ended since the last successful sweep, with all that it used; sorted by ID
}

// Stats tell how the work goes.
type Stats struct {
	Groups int  // of patterns
	Kept   int  // open descriptors
	Blind  bool // changes are found by walking, as not everything could be watched

	Folded     int // members beyond Options.Max at the last walk and since: part of their pod or of the system
	Duplicates int // control groups that say to be a consumer that another one is: part of what is around them
	Walks      int
	Truncated  int // walks that ended early because there was too much to see
	Overflows  int // times that the kernel dropped notices of change
	Missed     int // members that a walk found although a notice should have come
	Reads      int64
}

const (
	defaultMax = 5000

	walkInterval    = time.Minute      // a look at everything, in case that a notice got lost
	blindInterval   = 10 * time.Second // the same where changes are not noticed
	searchInterval  = 10 * time.Second // for processes of virtual machines
	refreshInterval = time.Minute      // of weights and of the number of CPUs
	loseAfter       = time.Minute      // of errors; from then on a member's time is part of what is around it
)

// A Host reads one node.
type Host struct {
	log         *slog.Logger
	opts        Options
	hierarchies []*hierarchy
	globs       []glob
	now         func() time.Duration

	root  *node // the whole node; what is left of it is the system
	busy  busySource
	cpus  float64
	lift  time.Duration // by how much the node's own counter fell short of what is in it
	boot  string
	limit int // of kept descriptors

	byDir   map[string]*node
	byID    map[string]*node
	ordered []*node // the published ones by ID
	changed bool    // ordered is to be made anew
	leaving []*node // gone since the last settlement
	ended   []energy.Usage

	watch *watcher
	found discovery
	vms   search
	weigh weighing

	io    files
	stats Stats
	byPID int // consumers that were found by their process
}

// Open looks for control groups below opts.Root. It reads nothing of them yet: the first Sweep does.
func Open(opts Options, log *slog.Logger) (*Host, error) {
	opts.Root = cmp.Or(opts.Root, "/sys/fs/cgroup")
	opts.Proc = cmp.Or(opts.Proc, "/proc")
	opts.Max = cmp.Or(opts.Max, defaultMax)
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	globs, err := parseGlobs(opts.Groups)
	if err != nil {
		return nil, err
	}
	found, err := hierarchies(opts.Root)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(opts.Proc); err != nil {
		return nil, fmt.Errorf("looking for processes: --proc-root: %w", err)
	}
	h := &Host{
		log: log, opts: opts, hierarchies: found, globs: globs, now: Now,
		root:  &node{role: system, id: energy.System, fd: -1},
		byDir: map[string]*node{}, byID: map[string]*node{},
		io: newFiles(), changed: true, vms: search{wait: searchWait},
	}
	h.limit = descriptorBudget(opts.Max)
	h.boot, _ = bootID(opts.Proc) // a tree made for a test may have none
	h.busy = openBusy(found, opts.Proc)
	h.cpus = h.countCPUs()
	if h.watch, err = newWatcher(); err != nil {
		log.Info("changes of control groups are found by walking", "reason", err)
	}
	for _, one := range found {
		log.Info("reading control groups", "folder", one.dir, "version", one.version)
	}
	return h, nil
}

// CPUs returns how many CPUs are online, as far as is known.
func (h *Host) CPUs() float64 { return h.cpus }

// Close closes all descriptors.
func (h *Host) Close() error {
	for _, n := range h.byDir {
		h.closeFile(n)
	}
	return errors.Join(h.watch.close(), h.vms.close())
}

// VMs lists the names of the virtual machines of the last sweep, sorted: of those whose consumers are [energy.VMID]s.
func (h *Host) VMs() (names []string) {
	for _, n := range h.ordered {
		if name, ok := energy.VMOf(n.id); ok && n.published() {
			names = append(names, name)
		}
	}
	return names
}

// Stats returns how the work goes.
func (h *Host) Stats() Stats {
	s := h.stats
	s.Blind = h.blind()
	return s
}

// descriptorBudget raises the soft limit of descriptors and returns how many of them may be kept for counters: never
// more than half, so that the rest of the process has room.
func descriptorBudget(most int) int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	if limit.Cur < limit.Max {
		raised := unix.Rlimit{Cur: limit.Max, Max: limit.Max}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
			limit = raised
		}
	}
	return int(min(limit.Cur/2, uint64(most), math.MaxInt32))
}

// countCPUs returns how many CPUs are online.
func (h *Host) countCPUs() float64 {
	if text, err := os.ReadFile(filepath.Join(h.opts.Proc, "stat")); err == nil {
		if stat, ok := parseStat(text); ok && stat.cpus > 0 {
			return float64(stat.cpus)
		}
	}
	return cmp.Or(h.cpus, float64(runtime.NumCPU()))
}
