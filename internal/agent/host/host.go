// Package host finds the consumers on a node, i.e. containers, virtual machines and other control groups, and reads
// their CPU time. It uses only control groups and procfs, and needs no Kubernetes permissions, Linux capabilities
// or other processes.
//
// All groups form one tree that mirrors the nesting in the kernel: node, slices, pods, containers. The time that a
// member of the tree used in addition to its children is its own time, such as that of a pod's sandbox or of the
// node's daemons. Each nanosecond counted by the kernel is therefore attributed to exactly one consumer.
// Differences due to reads at different times are carried over to the next sweep, so that no time is counted twice.
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

// Options configures a Host.
type Options struct {
	Root string // mount point of control groups, or a bind mount of it
	Proc string // mount point of procfs
	// patterns of additional control groups, relative to the root of the hierarchy, e.g. "slurm/uid_*/job_*/step_*"
	Groups []string
	VMs    bool // find QEMU processes without a known control group
	// maximum number of consumers; others are accounted to their pod or the system
	Max int
}

// Sweep contains the CPU time of all consumers at one point in time.
type Sweep struct {
	At    time.Duration // time since boot of the middle of the reads
	CPUs  float64
	Busy  time.Duration  // CPU time of the node since boot; 0 if unknown
	Usage []energy.Usage // sorted by ID; reused by the next sweep
	Ended []energy.Usage // consumers that ended since the last successful sweep, with their total time; sorted by ID
}

// Stats contains statistics of a Host.
type Stats struct {
	Groups int  // consumers that match a pattern
	Kept   int  // open file descriptors
	Blind  bool // changes are detected by periodic scans only, because some directories cannot be watched

	Folded     int // consumers beyond Options.Max since the last walk, accounted to their pod or the system
	Duplicates int // groups with the consumer ID of another group, accounted to their parent
	Walks      int
	Truncated  int // walks that exceeded a limit
	Overflows  int // overflows of the inotify queue
	Missed     int // consumers found by a walk without an inotify event
	Reads      int64

	// Unattributed contains groups that look like workloads but are accounted to the system, by CPU time in the last
	// minute. It is nil if they used at most 1 % of the node's CPU time.
	Unattributed []GroupShare
	Unmatched    []string // patterns of Options.Groups that have not matched any group for at least a minute
}

const (
	walkInterval    = time.Minute      // interval of walks, in case an event was lost
	blindInterval   = 10 * time.Second // interval of walks if some directories are not watched
	searchInterval  = 10 * time.Second // interval of scans for virtual machines
	refreshInterval = time.Minute      // interval of reading weights and the number of CPUs
	loseAfter       = time.Minute      // duration of failures after which time is accounted to the ancestors
)

// Host reads the CPU time of all consumers of a node.
type Host struct {
	log         *slog.Logger
	opts        Options
	hierarchies []*hierarchy
	globs       []*glob
	now         func() time.Duration

	root  *node // the whole node; its own time is that of the system
	busy  busySource
	cpus  float64
	lift  time.Duration // correction of the node's counter, which fell behind the groups
	boot  string
	limit int // maximum number of open descriptors

	byDir   map[string]*node
	byID    map[string]*node
	ordered []*node // consumers sorted by ID
	changed bool    // ordered must be rebuilt
	leaving []*node // nodes removed since the last attribution
	ended   []energy.Usage

	watch *watcher
	found discovery
	vms   search
	weigh weighing

	candidates candidates

	io    files
	stats Stats
	byPID int // number of consumers found by their process
}

// Open finds the control group hierarchies below opts.Root. Groups are read by the first Sweep.
func Open(opts Options, log *slog.Logger) (*Host, error) {
	globs, err := parseGlobs(opts.Groups)
	if err != nil {
		return nil, err
	}
	found, err := hierarchies(opts.Root)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(opts.Proc); err != nil {
		return nil, fmt.Errorf("finding processes: --proc-root: %w", err)
	}
	h := &Host{
		log: log, opts: opts, hierarchies: found, globs: globs, now: Now,
		root:  &node{role: system, id: energy.System, fd: -1},
		byDir: map[string]*node{}, byID: map[string]*node{},
		io: newFiles(), changed: true, vms: search{wait: searchWait}, candidates: candidates{found: map[string]place{}},
	}
	h.limit = descriptorBudget(opts.Max)
	h.boot, _ = bootID(opts.Proc) // may not exist in tests
	h.busy = openBusy(found, opts.Proc)
	h.cpus = h.countCPUs()
	if h.watch, err = newWatcher(); err != nil {
		log.Info("Detecting changes of control groups by periodic scans only", "reason", err)
	}
	for _, one := range found {
		log.Info("Reading control groups", "folder", one.dir, "version", one.version)
	}
	return h, nil
}

// CPUs returns the number of online CPUs.
func (h *Host) CPUs() float64 { return h.cpus }

// Close closes all file descriptors.
func (h *Host) Close() error {
	for _, n := range h.byDir {
		h.closeFile(n)
	}
	return errors.Join(h.watch.close(), h.vms.close())
}

// VMs returns the sorted names of the virtual machines in the last sweep. Their consumer IDs are [energy.VMID]s.
func (h *Host) VMs() (names []string) {
	for _, n := range h.ordered {
		if name, ok := energy.VMOf(n.id); ok && n.published() {
			names = append(names, name)
		}
	}
	return names
}

// Stats returns the current statistics.
func (h *Host) Stats() Stats {
	s := h.stats
	s.Blind = h.blind()
	return s
}

// descriptorBudget raises the soft limit of open files and returns the maximum number of descriptors to keep open
// for counters. It is at most half of the limit, so that the rest of the process has enough.
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

// countCPUs returns the number of online CPUs.
func (h *Host) countCPUs() float64 {
	if text, err := os.ReadFile(filepath.Join(h.opts.Proc, "stat")); err == nil {
		if stat, ok := parseStat(text); ok && stat.cpus > 0 {
			return float64(stat.cpus)
		}
	}
	return cmp.Or(h.cpus, float64(runtime.NumCPU()))
}
