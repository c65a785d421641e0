package sqlite

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// SQLite writes transactions to a log first (FILE-wal), and pages from there to the file from time to time: a
// checkpoint. When it opens a file, it reads the log up to the first frame whose sum is wrong and says nothing about
// what follows, as a crash may leave half a transaction at the end. But a byte that changed on the disk looks the
// same, and takes everything after it away, though it was acknowledged. So the log is read here before:
// https://sqlite.org/fileformat.html#walformat.
const (
	walSuffix      = "-wal"
	walHeaderBytes = 32
	frameHeader    = 24
	walMagic       = 0x377f0682 // the last bit: words of sums are big-endian
	minPage        = 512
	maxPage        = 65536
)

// A log is what a log of writes holds.
type log struct {
	salts     [8]byte // of this generation: another one begins with each time that all was moved to the file
	frames    int     // that belong to transactions that are complete and right, from the beginning
	bad       string  // "": nothing is wrong that a crash does not explain
	headerBad bool
}

// readLog reads a log; nil: there is none.
func readLog(path string) (*log, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return scanLog(bufio.NewReaderSize(f, 1<<20), info.Size()) //nolint:mnd // a megabyte at a time
}

// scanLog reads a log of some size.
func scanLog(r io.Reader, size int64) (*log, error) {
	var header [walHeaderBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, nil
		}
		return nil, err
	}
	word := func(at int) uint32 { return binary.BigEndian.Uint32(header[at:]) }
	page := int64(word(8)) //nolint:mnd // as the format says
	l := &log{}
	copy(l.salts[:], header[16:24])
	sum := walSum{order: binary.LittleEndian}
	if word(0)&1 != 0 {
		sum.order = binary.BigEndian
	}
	sum.add(header[:24])
	whole := sum.a == word(24) && sum.b == word(28) //nolint:mnd // as the format says
	if word(0)&^1 != walMagic || page < minPage || page > maxPage || !whole {
		l.headerBad = size > walHeaderBytes
		if l.headerBad {
			l.bad = "its header has changed"
		}
		return l, nil
	}
	return l, l.scan(r, sum, make([]byte, frameHeader+page))
}

// scan reads frames. After the first one that is wrong, another complete transaction and more says that it was on disk
// before: transactions are written one after the other.
func (l *log) scan(r io.Reader, sum walSum, frame []byte) error {
	wrong, ended := -1, false // the first wrong frame; a transaction ended at or after it
	for i := 0; ; i++ {
		if _, err := io.ReadFull(r, frame); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return err
		}
		ours := [8]byte(frame[8:16]) == l.salts
		commit := binary.BigEndian.Uint32(frame[4:]) != 0
		if wrong < 0 {
			sum.add(frame[:8])
			sum.add(frame[frameHeader:])
			if ours && sum.a == binary.BigEndian.Uint32(frame[16:]) && sum.b == binary.BigEndian.Uint32(frame[20:]) {
				if commit {
					l.frames = i + 1
				}
				continue
			}
			wrong = i
		}
		switch {
		case ours && ended:
			l.bad = fmt.Sprintf("frame %d has changed, and complete transactions follow", wrong)
			return nil
		case ours && commit:
			ended = true
		}
	}
}

// walSum is the sum of all frames up to some point.
type walSum struct {
	a, b  uint32
	order binary.ByteOrder
}

func (s *walSum) add(b []byte) {
	for len(b) >= 8 { //nolint:mnd // two words
		s.a += s.order.Uint32(b) + s.b
		s.b += s.order.Uint32(b[4:]) + s.a
		b = b[8:]
	}
}

// A mark says up to which frame of a generation of the log pages may have been moved to the file. If fewer than these
// can be read, the file holds pages that are younger than others: that is no state that it ever had.
const (
	markSuffix = "-mark"
	markBytes  = 20 // salts, frames, sum
)

func (s *Store) writeMark(l *log) error {
	b := binary.LittleEndian.AppendUint64(append(make([]byte, 0, markBytes), l.salts[:]...), uint64(l.frames))
	b = binary.LittleEndian.AppendUint32(b, checksum(b))
	f, err := os.OpenFile(s.path+markSuffix, os.O_RDWR|os.O_CREATE, private)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Sync(), f.Close())
}

// marked returns how many frames of this generation must be readable.
func (s *Store) marked(l *log) (int, error) {
	b, err := os.ReadFile(s.path + markSuffix)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if len(b) != markBytes || checksum(b[:16]) != binary.LittleEndian.Uint32(b[16:]) || [8]byte(b[:8]) != l.salts {
		return 0, nil // half written, so nothing was moved yet; or of another generation
	}
	return int(binary.LittleEndian.Uint64(b[8:])), nil
}

// inspect reads the log before SQLite does. It returns what was lost of its end, and an error if what is left is no
// state that the ledger ever had.
func (s *Store) inspect() (lost string, err error) {
	l, err := readLog(s.path + walSuffix)
	if err != nil || l == nil {
		return "", err
	}
	if l.headerBad {
		return l.bad, fmt.Errorf("%w: %s: %s: put back a backup", ledger.ErrDamaged, s.path+walSuffix, l.bad)
	}
	marked, err := s.marked(l)
	if err != nil {
		return l.bad, err
	}
	if l.frames < marked {
		lost = fmt.Sprintf("of %d frames that were written, %d can be read", marked, l.frames)
		return lost, fmt.Errorf("%w: %s: %s: put back a backup", ledger.ErrDamaged, s.path+walSuffix, lost)
	}
	return l.bad, nil
}
