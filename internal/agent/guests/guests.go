// Package guests publishes the energy of virtual machines to the machines themselves: for each of them a folder, to be
// shared with it by virtiofs, that looks like Linux' powercap tree and like that of Scaphandre's QEMU exporter:
//
//	DIR/VM/intel-rapl:0/energy_uj             microjoules, decimal, without a newline
//	DIR/VM/intel-rapl:0/name                  package-0
//	DIR/VM/intel-rapl:0/max_energy_range_uj   where the counter would wrap, in 290,000 years
//	DIR/VM/intel-rapl:0:0/                    empty
//	DIR/VM/kubenergy.json                     who the host is and what it calls the guest
//
// Scaphandre in a guest looks for a folder with two numbers and then reads the counter of the one with the first of
// them; it would read the energy of a named domain too, so intel-rapl:0:0 has no name. Other readers of powercap want
// name and max_energy_range_uj beside every counter, and skip a folder without a name.
//
// A guest may write what is shared with it: not every virtiofsd can refuse. So nothing here reads what a guest may have
// written. Files are completed in DIR/.staging, which is never shared, and renamed to their place; folders are
// entered by descriptor, one component at a time, and never through a symbolic link. The worst that a guest can do is
// to spoil its own readings.
package guests

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Cadence is how often an agent on a hypervisor should publish at least. What a guest reads is as old as the time
// since the last publication, up to a whole interval: with an interval of a second, a hundredth of the readings would
// be older than a second as soon as anything is late by 10 ms.
const Cadence = 500 * time.Millisecond

const (
	defaultGrace = 10 * time.Minute
	renewal      = time.Minute // how often the files that do not change are written anew, and failures logged again
	stagingName  = ".staging"
)

// Options say where to publish.
type Options struct {
	Dir   string        // where the trees stand; on one file system, and writable by the agent alone
	Host  string        // what this node is called
	Grace time.Duration // how long the tree of a virtual machine stays that is gone; 0: 10 minutes
}

// Stats count what a Publisher did since it was opened.
type Stats struct {
	Trees   int    // that are published now
	Failing int    // of these, whose last publication failed
	Failed  uint64 // counters and other files that could not be put in place
	Refused uint64 // totals of virtual machines whose names cannot be published
	Stuck   uint64 // folders that guests left behind and that cannot be removed
}

// A Publisher keeps the trees. It is for one goroutine.
type Publisher struct {
	host    string
	grace   time.Duration
	log     *slog.Logger
	dir     int // of the trees
	staging int
	ledger  ledger
	trees   map[string]*tree     // by the virtual machine's name
	refused map[string]time.Time // names, and when that was logged
	round   uint64
	serial  uint64 // of folders to be emptied
	litter  bool   // there may be such folders
	stats   Stats
	digits  []byte
}

// Open prepares the folder. It fails where another process publishes, and where others could write.
func Open(o Options, log *slog.Logger) (*Publisher, error) {
	p := &Publisher{
		host: o.Host, grace: cmp.Or(o.Grace, defaultGrace), log: log, dir: -1, staging: -1,
		trees: map[string]*tree{}, refused: map[string]time.Time{}, serial: uint64(time.Now().UnixNano()), litter: true,
	}
	if err := p.open(o.Dir); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s for the counters of virtual machines: %w", o.Dir, err),
			p.Close())
	}
	return p, nil
}

func (p *Publisher) open(dir string) (err error) {
	// Counters tell much of what a machine computes: other users of the host have no business here.
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
		return fmt.Errorf("making the staging folder: %w", err)
	}
	p.staging, err = unix.Openat(p.dir, stagingName, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the staging folder: %w", err)
	}
	if err := unix.Fchmod(p.staging, 0o700); err != nil {
		return fmt.Errorf("closing the staging folder to others: %w", err)
	}
	if err := checkOwned(p.staging); err != nil {
		return fmt.Errorf("staging folder: %w", err)
	}
	if err := unix.Flock(p.staging, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another process publishes here: %w", err)
	}
	entries, err := p.ledger.open(p.staging)
	for _, e := range entries {
		p.Add(e.name, e.total, energy.Estimated)
	}
	return err
}

// checkOwned reports whether others than this process' user may change a folder.
func checkOwned(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to user %d, not to %d", st.Uid, os.Geteuid())
	}
	if st.Mode&0o022 != 0 {
		return fmt.Errorf("others may write in it (mode %#o)", st.Mode&0o7777)
	}
	return nil
}

// Add adds what a virtual machine used to its counter, which never falls, however the agent restarts. The quality is
// that of the counter from then on.
func (p *Publisher) Add(vm string, used energy.Microjoules, quality energy.Quality) {
	t, err := p.tree(vm)
	if err != nil {
		return // Publish says so
	}
	t.total += min(used, math.MaxInt64-t.total)
	if t.quality != quality {
		t.quality, t.renewed = quality, 0
	}
}

// tree returns what is kept for a virtual machine.
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

// Publish writes the counter of every virtual machine that runs, given their names. The tree of one that is missing is
// removed after the grace time. What fails for one guest is logged and counted, and does not keep the others waiting;
// the error is that the counters' continuity could not be saved.
func (p *Publisher) Publish(now time.Duration, vms []string) error {
	p.round++
	for _, vm := range vms {
		if t, err := p.tree(vm); err != nil {
			p.refuse(vm, err)
		} else {
			t.round = p.round
		}
	}
	// Ahead of what guests see: a process that continues from the ledger is never behind a counter.
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

func (p *Publisher) refuse(name string, err error) {
	p.stats.Refused++
	if len(p.refused) > 1000 {
		clear(p.refused)
	}
	if last, ok := p.refused[name]; ok && time.Since(last) < renewal {
		return
	}
	p.refused[name] = time.Now()
	p.log.Warn("a virtual machine gets no counter", "vm", name, "err", err)
}

// publish puts the counter of a tree in place, and what else belongs there if it is time.
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
	// A guest can make its tree fail and work in turns: no more than a line a minute.
	if failing := err != nil; failing != t.failing && (t.logged == 0 || now-t.logged >= renewal) {
		t.logged = max(now, 1)
		if failing {
			p.log.Warn("publishing the counter of a virtual machine fails", "vm", t.name, "err", err)
		} else {
			p.log.Info("publishing the counter of a virtual machine works", "vm", t.name)
		}
	}
	t.failing = err != nil
}

// Stats returns what happened so far.
func (p *Publisher) Stats() Stats { return p.stats }

// Close lets go of everything and leaves the trees: they go on where the next process finds their machines.
func (p *Publisher) Close() error {
	for _, t := range p.trees {
		t.close()
	}
	clear(p.trees)
	p.ledger.close()
	closeFD(&p.staging)
	closeFD(&p.dir)
	return nil
}
