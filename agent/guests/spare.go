package guests

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Spares let the counter of a tree go on when the file system is full, as a guest that may write can make it for all:
// two files that have their blocks and their names already, and take turns at being the counter. Each keeps a name in
// the staging folder, so that it is not freed when the other one takes its place, and nothing is allocated that
// others could take first. A guest may hold one open for longer than a turn and read it while it is written; that,
// only here.
//
// Nothing of the guest's ever comes back: the files are written by the descriptors they were made with, and not read.
type spares struct {
	pair [2]spare
	turn int
}

type spare struct {
	fd    int
	name  string // that stays in the staging folder
	ready string // that is renamed to the counter
}

// makeSpares makes the spares of a tree, or none if there is no room.
func (p *Publisher) makeSpares(folder string) *spares {
	s := &spares{pair: [2]spare{{fd: -1}, {fd: -1}}}
	for i := range s.pair {
		sp := &s.pair[i]
		sp.name = sparePrefix + string(rune('0'+i)) + folder
		sp.ready = sparePrefix + string(rune('a'+i)) + folder
		fd, err := p.stage(sp.name, []byte("0000000000000000000"))
		if err == nil {
			sp.fd = fd
			err = unix.Linkat(p.staging, sp.name, p.staging, sp.ready, 0)
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			s.close(p.staging)
			return nil
		}
	}
	return s
}

// put makes the spare whose turn it is the counter.
func (s *spares) put(staging, home int, digits []byte) error {
	sp := &s.pair[s.turn]
	err := writeAt(sp.fd, digits, 0)
	if err == nil {
		err = unix.Ftruncate(sp.fd, int64(len(digits)))
	}
	if err != nil {
		return fmt.Errorf("writing the spare file: %w", err)
	}
	err = unix.Renameat(staging, sp.ready, home, counterName)
	if errors.Is(err, unix.ENOENT) { // there was no room for that name
		if err = unix.Linkat(staging, sp.name, staging, sp.ready, 0); err == nil {
			err = unix.Renameat(staging, sp.ready, home, counterName)
		}
	}
	if err != nil {
		return fmt.Errorf("renaming the spare file into place: %w", err)
	}
	_ = unix.Linkat(staging, sp.name, staging, sp.ready, 0)
	s.turn = 1 - s.turn
	return nil
}

func (s *spares) close(staging int) {
	for i := range s.pair {
		sp := &s.pair[i]
		if sp.fd >= 0 {
			_ = unix.Unlinkat(staging, sp.name, 0)
			_ = unix.Unlinkat(staging, sp.ready, 0)
		}
		closeFD(&sp.fd)
	}
}
