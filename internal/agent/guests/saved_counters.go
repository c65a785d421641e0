package guests

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

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

// entry is the saved counter of a virtual machine.
type entry struct {
	total energy.Microjoules
	name  string
}

const (
	ledgerMagic  = "kubenergy guests 1"
	ledgerHeader = len(ledgerMagic) + 1 + 20 + 1 + 10 + 1 + 8 + 1 // magic, sequence, length, checksum
	maxLedger    = 64 << 20
	block        = 4096
)

var slotNames = [2]string{"ledger-0", "ledger-1"}

// open opens the files and returns the entries of the newest intact one.
func (l *ledger) open(staging int) ([]entry, error) {
	l.slots = [2]slot{{fd: -1}, {fd: -1}}
	var newest []entry
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
		if sequence, entries, err := parseLedger(text); err == nil && sequence > l.sequence {
			l.sequence, newest = sequence, entries
		}
	}
	return newest, l.reserve(1)
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
	next := l.sequence + 1
	l.page = append(l.page[:0], make([]byte, ledgerHeader)...)
	for _, t := range trees {
		l.page = fmt.Appendf(l.page, entryLine, 0, t.total, t.name)
	}
	body := l.page[ledgerHeader:]
	_ = fmt.Appendf(l.page[:0], header, next, len(body), crc32.ChecksumIEEE(body))
	err := l.reserve(len(l.page))
	if err == nil {
		err = writeAt(l.slots[next%2].fd, l.page, 0)
	}
	if err == nil {
		l.sequence = next
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

const (
	// header is the format of the first line: magic, sequence number, length, checksum.
	header = ledgerMagic + " %020d %010d %08x\n"
	// entryLine is the format of the other lines: two numbers that add up to the counter, and the name of the
	// machine.
	entryLine = "%d %d %q\n"
)

// parseLedger parses a slot. It ignores trailing bytes, which are the rest of an older page.
func parseLedger(text []byte) (sequence uint64, entries []entry, err error) {
	if len(text) < ledgerHeader {
		return 0, nil, errors.New("the ledger is too short")
	}
	var length, sum uint32
	if _, err := fmt.Sscanf(string(text[:ledgerHeader]), header, &sequence, &length, &sum); err != nil {
		return 0, nil, fmt.Errorf("parsing the header: %w", err)
	}
	text = text[ledgerHeader:]
	if uint64(length) > uint64(len(text)) {
		return 0, nil, errors.New("the ledger is truncated")
	}
	if crc32.ChecksumIEEE(text[:length]) != sum {
		return 0, nil, errors.New("checksum mismatch")
	}
	for line := range bytes.Lines(text[:length]) {
		e, err := parseEntry(string(line))
		if err != nil {
			return 0, nil, err
		}
		entries = append(entries, e)
	}
	return sequence, entries, nil
}

func parseEntry(line string) (e entry, err error) {
	var base energy.Microjoules
	_, err = fmt.Sscanf(line, entryLine, &base, &e.total, &e.name)
	if err == nil && (base < 0 || e.total < 0) {
		err = errors.New("negative counter")
	}
	if err != nil {
		return entry{}, fmt.Errorf("parsing the entry %q: %w", line, err)
	}
	e.total += min(base, math.MaxInt64-e.total)
	return e, nil
}

func (l *ledger) close() {
	for i := range l.slots {
		if l.slots[i].fd > 0 { // 0 means that it was never opened
			closeFD(&l.slots[i].fd)
		}
	}
}
