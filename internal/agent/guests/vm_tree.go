package guests

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/energy"
)

const (
	packageFolder = "intel-rapl:0"
	domainFolder  = "intel-rapl:0:0"
	counterName   = "energy_uj"
	identityName  = "kubenergy.json"
)

// A tree is the folder of one virtual machine.
type tree struct {
	name, folder string
	total        energy.Microjoules // what the guest reads
	quality      energy.Quality

	round   uint64        // in which the machine was seen last
	gone    time.Duration // since when the machine is missing; 0: it is not
	renewed time.Duration // when the files that do not change were written; 0: they are missing
	logged  time.Duration // when a change of failing was logged
	failing bool

	dir int // DIR/VM; -1: not open
	// The counter's file stays open. Where the file system is full, as a guest that may write can make it for all, the
	// counter goes on in place, in blocks that it has already; only then may a guest read while its counter is written.
	// Nothing of the guest's ever comes back: the file is written by the descriptor that made it, and not read.
	counter int // -1: none
}

func (t *tree) close() {
	closeFD(&t.dir)
	closeFD(&t.counter)
}

// putCounter renames a complete file to the tree's counter. The folder that it goes to is entered anew each time: a
// guest may have moved it, or put something else in its place.
func (p *Publisher) putCounter(t *tree, now time.Duration) error {
	if t.renewed == 0 || now-t.renewed >= renewal {
		closeFD(&t.dir) // the host's administrator may have replaced the folder
	}
	home, err := p.enterPackage(t)
	if errors.Is(err, unix.ENOENT) { // the folder was removed, with all that we held of it
		closeFD(&t.dir)
		home, err = p.enterPackage(t)
	}
	if err != nil {
		return fmt.Errorf("entering its folder: %w", err)
	}
	defer func() { _ = unix.Close(home) }()
	p.digits = strconv.AppendInt(p.digits[:0], int64(t.total), 10)
	fd, err := p.putOpen(home, counterName, p.digits)
	switch {
	case err == nil:
		closeFD(&t.counter)
		t.counter = fd
	case t.counter >= 0 && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)):
		return writeAt(t.counter, p.digits, 0)
	}
	return err
}

// enterPackage opens the tree's intel-rapl:0, and makes what is missing on the way.
func (p *Publisher) enterPackage(t *tree) (int, error) {
	if t.dir < 0 {
		fd, err := p.enterOrMake(p.dir, t.folder)
		if err != nil {
			return -1, err
		}
		t.dir = fd
	}
	fd, err := enter(t.dir, packageFolder)
	if errors.Is(err, unix.ENOENT) {
		t.renewed = 0
		fd, err = p.enterOrMake(t.dir, packageFolder)
	}
	return fd, err
}

func (p *Publisher) enterOrMake(dir int, name string) (int, error) {
	fd, err := enter(dir, name)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if err := p.makeFolder(dir, name); err != nil {
		return -1, err
	}
	return enter(dir, name)
}

// putRest puts in place what does not change. The counter is there already, and name comes last: a reader that sees a
// name finds all the rest.
func (p *Publisher) putRest(t *tree) error {
	home, err := enter(t.dir, packageFolder)
	if err != nil {
		return fmt.Errorf("entering its folder: %w", err)
	}
	defer func() { _ = unix.Close(home) }()
	identity, err := json.Marshal(identity{Version: 1, Host: p.host, VM: t.name, Quality: t.quality})
	if err != nil {
		return fmt.Errorf("writing %s: %w", identityName, err)
	}
	if err := p.makeFolder(t.dir, domainFolder); err != nil {
		return err
	}
	return errors.Join(
		p.put(t.dir, identityName, append(identity, '\n')),
		p.put(home, "max_energy_range_uj", strconv.AppendInt(nil, math.MaxInt64, 10)),
		p.put(home, "name", []byte("package-0\n")),
	)
}

// identity is kubenergy.json. Quality is that of the counter as the host attributes it.
type identity struct {
	Version int            `json:"version"`
	Host    string         `json:"host"`
	VM      string         `json:"vm"`
	Quality energy.Quality `json:"quality"`
}
