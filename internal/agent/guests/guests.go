// Package guests publishes the energy of virtual machines to the machines. For each machine, it maintains a
// directory that is shared with the machine by virtiofs. Its layout is compatible with Linux' powercap tree and
// with Scaphandre's QEMU exporter:
//
//	DIR/VM/intel-rapl:0/energy_uj             microjoules, decimal, without a newline
//	DIR/VM/intel-rapl:0/name                  package-0
//	DIR/VM/intel-rapl:0/max_energy_range_uj   maximum value, which is reached after 290,000 years at 1 W
//	DIR/VM/intel-rapl:0:0/                    empty
//	DIR/VM/kubenergy.json                     names of the host and the machine
//
// Scaphandre in a guest searches for a directory with two numbers and then reads the counter of the directory with
// the first number. It would also read the energy of a named domain, so intel-rapl:0:0 has no name. Other readers
// of powercap require name and max_energy_range_uj next to each counter, and skip directories without a name.
//
// A guest may be able to write to its shared directory, because some versions of virtiofsd cannot prevent it.
// Therefore, this package never reads files that a guest may have written. Files are completed in DIR/.staging,
// which is never shared, and then renamed. Directories are entered by descriptor, one path component at a time, and
// never through a symbolic link. A guest can only corrupt its own readings.
package guests

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Cadence is the recommended maximum interval of publications by an agent on a hypervisor. The age of a guest's
// reading is up to one interval. With an interval of one second, a delay of 10 ms would make 1 % of the readings
// older than a second.
const Cadence = 500 * time.Millisecond

const (
	grace       = 10 * time.Minute // time after which the directory of a stopped machine is removed
	renewal     = time.Minute      // interval of rewriting constant files, and of logging repeated failures
	stagingName = ".staging"
)

// Stats contains statistics of a Publisher since it was opened.
type Stats struct {
	Trees   int    // machines with a published counter
	Failing int    // machines with a failed last publication
	Failed  uint64 // failed publications
	Refused uint64 // publications skipped because of an invalid machine name
	Stuck   uint64 // directories of stopped machines that cannot be removed
}

// Publisher maintains the directories of virtual machines. It is not safe for concurrent use.
type Publisher struct {
	host    string
	grace   time.Duration
	log     *slog.Logger
	dir     int // descriptor of the parent directory
	staging int
	ledger  ledger
	trees   map[string]*tree // by machine name
	refused rate.Sometimes   // limits warnings about invalid names
	round   uint64
	serial  uint64 // counter for unique names of directories to remove
	litter  bool   // there may be directories to remove
	stats   Stats
	digits  []byte
}

// Open prepares dir, the parent of the machines' directories, which must be on one file system. host is the name of
// this node. It returns an error if another process uses the directory, or if other users can write to it.
func Open(dir, host string, log *slog.Logger) (*Publisher, error) {
	p := &Publisher{
		host: host, grace: grace, log: log, dir: -1, staging: -1,
		ledger: ledger{slots: [2]slot{{fd: -1}, {fd: -1}}},
		trees:  map[string]*tree{}, refused: rate.Sometimes{Interval: renewal}, serial: uint64(time.Now().UnixNano()),
		litter: true,
	}
	if err := p.open(dir); err != nil {
		p.Close()
		return nil, fmt.Errorf("opening %s for the counters of virtual machines: %w", dir, err)
	}
	return p, nil
}

func (p *Publisher) open(dir string) (err error) {
	// Other users of the host must not read the counters, which reveal the activity of the machines.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if p.dir, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if err := checkOwned(p.dir); err != nil {
		return err
	}
	if err := unix.Mkdirat(p.dir, stagingName, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("creating the staging directory: %w", err)
	}
	p.staging, err = unix.Openat(p.dir, stagingName, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the staging directory: %w", err)
	}
	if err := unix.Fchmod(p.staging, 0o700); err != nil {
		return fmt.Errorf("restricting access to the staging directory: %w", err)
	}
	if err := checkOwned(p.staging); err != nil {
		return fmt.Errorf("staging directory: %w", err)
	}
	if err := unix.Flock(p.staging, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another process publishes here: %w", err)
	}
	totals, err := p.ledger.open(p.staging)
	for name, total := range totals {
		p.Add(name, total, energy.Estimated)
	}
	return err
}

// checkOwned returns an error if other users can modify a directory.
func checkOwned(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to user %d, not to %d", st.Uid, os.Geteuid())
	}
	if st.Mode&0o022 != 0 {
		return fmt.Errorf("others may write to it (mode %#o)", st.Mode&0o7777)
	}
	return nil
}

// Add adds energy to the counter of a virtual machine. The counter never decreases, even if the agent is restarted.
// The published quality of the counter is changed to the given one.
func (p *Publisher) Add(vm string, used energy.Microjoules, quality energy.Quality) {
	t, err := p.tree(vm)
	if err != nil {
		return // reported by Publish
	}
	t.total += min(used, math.MaxInt64-t.total)
	if t.quality != quality {
		t.quality, t.renewed = quality, 0
	}
}

// tree returns the tree of a virtual machine, and creates it if necessary.
func (p *Publisher) tree(vm string) (*tree, error) {
	if t := p.trees[vm]; t != nil {
		return t, nil
	}
	folder, err := Folder(vm)
	if err != nil {
		return nil, err
	}
	t := &tree{name: vm, folder: folder, dir: -1, counter: -1}
	p.trees[vm] = t
	return t, nil
}

// Publish writes the counters of the given running virtual machines. The directories of other machines are removed
// after the grace period. Failures of single machines are logged and counted, and do not affect other machines.
// Publish returns an error if the counters could not be saved for the next process.
func (p *Publisher) Publish(now time.Duration, vms []string) error {
	p.round++
	for _, vm := range vms {
		if t, err := p.tree(vm); err != nil {
			p.stats.Refused++
			p.refused.Do(func() { p.log.Warn("Skipped a virtual machine with an invalid name", "vm", vm, "err", err) })
		} else {
			t.round = p.round
		}
	}
	// Save before publishing, so that a process that continues from the saved counters is never behind a published
	// one.
	err := p.ledger.save(p.trees)
	p.stats.Trees, p.stats.Failing = 0, 0
	for _, t := range p.trees {
		if t.round != p.round {
			p.retire(t, now)
			continue
		}
		p.stats.Trees++
		t.gone = 0
		p.publish(t, now)
		if t.failing {
			p.stats.Failing++
		}
	}
	if p.litter {
		p.sweep()
	}
	if err != nil {
		return fmt.Errorf("saving the counters of virtual machines: %w", err)
	}
	return nil
}

// publish writes the counter of a machine, and its constant files if they are due.
func (p *Publisher) publish(t *tree, now time.Duration) {
	err := p.putCounter(t, now)
	if err == nil && (t.renewed == 0 || now-t.renewed >= renewal) {
		err = p.putRest(t)
		t.renewed = max(now, 1)
	}
	if err != nil {
		p.stats.Failed++
		t.renewed = 0
	}
	// A guest can make publications fail and succeed alternately, so log at most once per minute.
	if failing := err != nil; failing != t.failing && (t.logged == 0 || now-t.logged >= renewal) {
		t.logged = max(now, 1)
		if failing {
			p.log.Warn("Failed to publish the counter of a virtual machine", "vm", t.name, "err", err)
		} else {
			p.log.Info("Resumed publishing the counter of a virtual machine", "vm", t.name)
		}
	}
	t.failing = err != nil
}

// Stats returns the current statistics.
func (p *Publisher) Stats() Stats { return p.stats }

// Close closes all descriptors. The directories are kept and continued by the next process.
func (p *Publisher) Close() {
	for _, t := range p.trees {
		t.close()
	}
	clear(p.trees)
	p.ledger.close()
	closeFD(&p.staging)
	closeFD(&p.dir)
}
