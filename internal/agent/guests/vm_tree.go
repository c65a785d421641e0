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

// tree is the directory of one virtual machine.
type tree struct {
	name, folder string
	total        energy.Microjoules // value of the counter
	quality      energy.Quality

	round   uint64        // last round in which the machine was running
	gone    time.Duration // time when the machine was first missing; 0 if it is running
	renewed time.Duration // time when the constant files were last written; 0 if they are missing
	logged  time.Duration // time when a change of failing was last logged
	failing bool

	dir int // descriptor of DIR/VM; -1 if not open
	// The file of the counter is kept open. If the file system is full, which a guest with write access can cause,
	// the counter is overwritten in place, using its allocated blocks. Only in this case can a guest read a
	// partially written counter. The agent never reads data that a guest may have written: it writes to the
	// descriptor that created the file, and does not read the file.
	counter int // -1 if not open
}

func (t *tree) close() {
	closeFD(&t.dir)
	closeFD(&t.counter)
}

// putCounter atomically replaces the machine's counter file. The directory is entered each time, because a guest
// may have moved or replaced it.
func (p *Publisher) putCounter(t *tree, now time.Duration) error {
	if t.renewed == 0 || now-t.renewed >= renewal {
		closeFD(&t.dir) // an administrator may have replaced the directory
	}
	home, err := p.enterPackage(t)
	if errors.Is(err, unix.ENOENT) { // the open directory was removed
		closeFD(&t.dir)
		home, err = p.enterPackage(t)
	}
	if err != nil {
		return fmt.Errorf("opening its directory: %w", err)
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

// enterPackage opens the machine's intel-rapl:0 directory, and creates missing directories.
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

// putRest writes the constant files. The counter already exists, and name is written last, so that a reader that
// finds a name finds all other files too.
func (p *Publisher) putRest(t *tree) error {
	home, err := enter(t.dir, packageFolder)
	if err != nil {
		return fmt.Errorf("opening its directory: %w", err)
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

// identity is the content of kubenergy.json. Quality is that of the host's attribution.
type identity struct {
	Version int            `json:"version"`
	Host    string         `json:"host"`
	VM      string         `json:"vm"`
	Quality energy.Quality `json:"quality"`
}
