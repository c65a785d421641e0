package guests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// ledger saves the counters for the next process. It consists of two files that are overwritten alternately, so
// that one of them is always intact, and that saving succeeds on a full file system. Writes are not synced, because
// virtual machines do not survive events that would require it.
type ledger struct {
	slots    [2]slot
	sequence uint64
	page     []byte
}

type slot struct {
	fd   int
	size int // allocated size of the file
}

// savedCounters is the content of a slot.
type savedCounters struct {
	Sequence uint64                        `json:"sequence"`
	Totals   map[string]energy.Microjoules `json:"totals"` // by name of the virtual machine
}

const (
	// pageFormat is the format of a slot: the magic, the checksum of the second line, and the counters in JSON.
	pageFormat = "kubenergy guests 1 %08x\n%s\n"
	maxLedger  = 64 << 20
	block      = 4096
)

var slotNames = [2]string{"ledger-0", "ledger-1"}

// open opens the files and returns the counters in the newest intact one by the name of the virtual machine.
func (l *ledger) open(staging int) (map[string]energy.Microjoules, error) {
	var newest savedCounters
	for i := range l.slots {
		s := &l.slots[i]
		var err error
		s.fd, err = unix.Openat(staging, slotNames[i], unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, fmt.Errorf("opening %s: %w", slotNames[i], err)
		}
		text, err := readAll(s.fd)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", slotNames[i], err)
		}
		s.size = len(text)
		// If a slot was being written when the process died, the other one is intact.
		if saved, err := parseLedger(text); err == nil && saved.Sequence > newest.Sequence {
			newest = saved
		}
	}
	l.sequence = newest.Sequence
	return newest.Totals, l.reserve(1)
}

func readAll(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxLedger {
		return nil, errors.New("not a ledger file")
	}
	text := make([]byte, st.Size)
	n, err := unix.Pread(fd, text, 0)
	return text[:max(n, 0)], err
}

// save overwrites the older slot. After an error, the slot may be partially written and is overwritten again by the
// next save, so that the other slot remains intact.
func (l *ledger) save(trees map[string]*tree) error {
	next := savedCounters{Sequence: l.sequence + 1, Totals: make(map[string]energy.Microjoules, len(trees))}
	for _, t := range trees {
		next.Totals[t.name] = t.total
	}
	body, err := json.Marshal(next)
	if err != nil {
		return err
	}
	l.page = fmt.Appendf(l.page[:0], pageFormat, crc32.ChecksumIEEE(body), body)
	if err = l.reserve(len(l.page)); err == nil {
		err = writeAt(l.slots[next.Sequence%2].fd, l.page, 0)
	}
	if err == nil {
		l.sequence = next.Sequence
	}
	return err
}

// reserve allocates disk blocks for a page of the given size in both slots.
func (l *ledger) reserve(size int) error {
	size = (size + block - 1) / block * block
	for i := range l.slots {
		s := &l.slots[i]
		if s.size >= size {
			continue
		}
		if err := writeAt(s.fd, make([]byte, size-s.size), int64(s.size)); err != nil {
			return err
		}
		s.size = size
	}
	return nil
}

func writeAt(fd int, b []byte, at int64) error {
	n, err := unix.Pwrite(fd, b, at)
	if err == nil && n < len(b) {
		err = unix.ENOSPC
	}
	return err
}

// parseLedger parses a slot. It ignores trailing bytes, which are the rest of an older page.
func parseLedger(text []byte) (saved savedCounters, err error) {
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	body, _, _ := bytes.Cut(rest, []byte("\n"))
	if !bytes.HasPrefix(text, fmt.Appendf(nil, pageFormat, crc32.ChecksumIEEE(body), body)) {
		return saved, errors.New("the file is truncated, damaged or of an unknown version")
	}
	if err := json.Unmarshal(body, &saved); err != nil {
		return savedCounters{}, err
	}
	for name, total := range saved.Totals {
		if total < 0 {
			return savedCounters{}, fmt.Errorf("the counter of %q is negative", name)
		}
	}
	return saved, nil
}

func (l *ledger) close() {
	for i := range l.slots {
		closeFD(&l.slots[i].fd)
	}
}
