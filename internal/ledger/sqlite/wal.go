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
	"github.com/kubenergy/kubenergy/internal/ledger/sqlstore"
)

// SQLite first writes transactions to a write-ahead log (FILE-wal) and moves pages from there to the file in
// checkpoints. When SQLite opens a file, it reads the log up to the first frame with an invalid checksum and
// silently ignores the rest, because a crash may leave an incomplete transaction at the end. A byte that changed on
// disk looks the same, and would discard all acknowledged transactions after it. Therefore the log is checked here
// before SQLite opens it. See https://sqlite.org/fileformat.html#walformat.
const (
	walSuffix      = "-wal"
	walHeaderBytes = 32
	frameHeader    = 24
	walMagic       = 0x377f0682 // the last bit is set if checksums use big-endian words
	minPage        = 512
	maxPage        = 65536
)

// A log is the summary of a write-ahead log.
type log struct {
	salts     [8]byte // identify the generation, which changes after each complete checkpoint
	frames    int     // number of frames in the leading valid and complete transactions
	bad       string  // damage that a crash does not explain, or empty
	headerBad bool
}

// readLog reads the log at path. It returns nil if there is no log.
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
	return scanLog(bufio.NewReaderSize(f, 1<<20), info.Size()) //nolint:mnd // 1 MiB buffer
}

// scanLog reads a log of the given size. It returns nil if the log is shorter than its header.
func scanLog(r io.Reader, size int64) (*log, error) {
	var header [walHeaderBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, nil
		}
		return nil, err
	}
	word := func(at int) uint32 { return binary.BigEndian.Uint32(header[at:]) }
	page := int64(word(8)) //nolint:mnd // offset in the file format
	l := &log{}
	copy(l.salts[:], header[16:24])
	sum := walSum{order: binary.LittleEndian}
	if word(0)&1 != 0 {
		sum.order = binary.BigEndian
	}
	sum.add(header[:24])
	whole := sum.a == word(24) && sum.b == word(28) //nolint:mnd // offsets in the file format
	if word(0)&^1 != walMagic || page < minPage || page > maxPage || !whole {
		l.headerBad = size > walHeaderBytes
		if l.headerBad {
			l.bad = "the header is corrupt"
		}
		return l, nil
	}
	return l, l.scan(r, sum, make([]byte, frameHeader+page))
}

// scan reads frames. Transactions are written sequentially. If the first invalid frame is followed by the end of a
// transaction and by further frames, the invalid frame must have been on disk before and was changed.
func (l *log) scan(r io.Reader, sum walSum, frame []byte) error {
	wrong, ended := -1, false // index of the first invalid frame; whether a transaction ended at or after it
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
			l.bad = fmt.Sprintf("frame %d is corrupt and followed by complete transactions", wrong)
			return nil
		case ours && commit:
			ended = true
		}
	}
}

// walSum is the cumulative checksum of frames.
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

// A mark records the frame of a log generation up to which pages may have been moved to the file. If fewer frames
// are readable, the file contains a mix of newer and older pages, which was never a valid state.
const (
	markSuffix = "-mark"
	markBytes  = 20 // salts, number of frames, checksum
)

func (s *Store) writeMark(l *log) error {
	b := binary.LittleEndian.AppendUint64(append(make([]byte, 0, markBytes), l.salts[:]...), uint64(l.frames))
	b = binary.LittleEndian.AppendUint32(b, sqlstore.Checksum(b))
	f, err := os.OpenFile(s.path+markSuffix, os.O_RDWR|os.O_CREATE, private)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Sync(), f.Close())
}

// marked returns the number of frames of this generation that must be readable.
func (s *Store) marked(l *log) (int, error) {
	b, err := os.ReadFile(s.path + markSuffix)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if len(b) != markBytes || sqlstore.Checksum(b[:16]) != binary.LittleEndian.Uint32(b[16:]) ||
		[8]byte(b[:8]) != l.salts {
		return 0, nil // partially written before the checkpoint, or of another generation
	}
	return int(binary.LittleEndian.Uint64(b[8:])), nil
}

// inspect checks the log before SQLite opens it. It returns a description of the damage at its end, and an error if
// the remaining data is not a state that the ledger ever had.
func (s *Store) inspect() (lost string, err error) {
	l, err := readLog(s.path + walSuffix)
	if err != nil || l == nil {
		return "", err
	}
	if l.headerBad {
		return l.bad, fmt.Errorf("%w: %s: %s: restore a backup", ledger.ErrDamaged, s.path+walSuffix, l.bad)
	}
	marked, err := s.marked(l)
	if err != nil {
		return l.bad, err
	}
	if l.frames < marked {
		lost = fmt.Sprintf("only %[2]d of %[1]d written frames are readable", marked, l.frames)
		return lost, fmt.Errorf("%w: %s: %s: restore a backup", ledger.ErrDamaged, s.path+walSuffix, lost)
	}
	return l.bad, nil
}
