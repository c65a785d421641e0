package delivery

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
)

// disk is the state directory. It contains two slots, which are written alternately so that one of them is always
// intact, and a file for each sealed batch, which is created atomically by a rename. Writes are not synced, because
// the state only has to survive the process.
type disk struct {
	dir  string
	lock *os.File
	good int // index of the slot that was last written successfully
	buf  []byte

	// fault is called before each change. It returns how many of n bytes to write and the error to return. It
	// returns errors only in tests.
	fault func(op string, n int) (int, error)
}

// errLocked is returned if another process uses the state directory.
var errLocked = errors.New("in use by another agent")

func openDisk(dir string) (*disk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unwritable(dir, err)
	}
	d := &disk{dir: dir, fault: func(_ string, n int) (int, error) { return n, nil }}
	var err error
	if d.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, unwritable(dir, err)
	}
	if err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		d.close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, fmt.Errorf("locking state directory %s: %w", dir, err)
	}
	return d, nil
}

func unwritable(dir string, err error) error {
	return fmt.Errorf("state directory %s (--state-dir) must be writable: %w", dir, err)
}

// close releases the lock.
func (d *disk) close() { d.lock.Close() }

// writeSlot overwrites the older slot.
func (d *disk) writeSlot(r *record) error {
	op := "slot"
	if r.broken {
		op = "mark"
	}
	i := 1 - d.good
	if err := d.write(slotNames[i], 0, op, r, slotMagic); err != nil {
		return fmt.Errorf("writing slot: %w", err)
	}
	d.good = i
	return nil
}

func (d *disk) write(name string, flags int, op string, r *record, magic string) error {
	f, err := os.OpenFile(filepath.Join(d.dir, name), os.O_WRONLY|os.O_CREATE|flags, 0o600)
	if err != nil {
		return err
	}
	d.buf = r.append(d.buf[:0], magic)
	n, fault := d.fault(op, len(d.buf))
	_, err = f.WriteAt(d.buf[:n], 0)
	return errors.Join(err, fault, f.Close())
}

// writeBatch creates the file of a sealed batch atomically.
func (d *disk) writeBatch(name string, r *record) error {
	err := d.write(temporaryName, os.O_TRUNC, "batch", r, batchMagic)
	if err == nil {
		err = d.rename(filepath.Join(d.dir, temporaryName), filepath.Join(d.dir, name))
	}
	if err != nil {
		return fmt.Errorf("writing batch: %w", err)
	}
	return nil
}

func (d *disk) rename(from, to string) error {
	if _, err := d.fault("rename", 0); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// remove deletes a file. It returns nil if the file does not exist.
func (d *disk) remove(name string) error {
	if _, err := d.fault("remove", 0); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(d.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read returns the content of a file, up to the maximum size of a record.
func (d *disk) read(name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(d.dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

var slotNames = [...]string{"slot-0", "slot-1"}

const (
	temporaryName = ".batch"
	damagedPrefix = "damaged-"
)

func batchName(generation, first, last uint64) string {
	return fmt.Sprintf("batch-%d-%d-%d", generation, first, last)
}

// slotRecord returns the newest intact slot, or nil. It returns an error if a slot exists but cannot be opened,
// because the other slot may be older and start with a batch number that was already acknowledged.
func (d *disk) slotRecord(log *slog.Logger) (*record, error) {
	var newest *record
	damaged := 0
	for i, name := range slotNames {
		data, err := d.read(name)
		switch failed, _ := errors.AsType[*fs.PathError](err); {
		case err == nil && len(data) > 0:
		case err == nil, errors.Is(err, fs.ErrNotExist):
			continue
		case failed != nil && failed.Op == "open":
			return nil, unwritable(d.dir, err)
		default:
			log.Error("Skipped an unreadable slot", "file", name, "err", err)
			continue
		}
		r, err := decodeRecord(data, slotMagic, false)
		if err != nil {
			// The process was probably killed while writing this slot. The other slot is intact in that case.
			log.Info("Skipped a damaged slot", "file", name, "err", err)
			damaged++
			continue
		}
		if newest == nil || r.seq > newest.seq {
			newest, d.good = r, i
		}
	}
	if damaged == len(slotNames) {
		log.Warn("Both slots are damaged, starting a new epoch without the agent's state and the open batch", "dir",
			d.dir)
		for _, name := range slotNames {
			d.setAside(name, log)
		}
	}
	return newest, nil
}

// setAside renames a damaged file, so that it is logged only once and an administrator can inspect it.
func (d *disk) setAside(name string, log *slog.Logger) {
	if err := d.rename(filepath.Join(d.dir, name), filepath.Join(d.dir, damagedPrefix+name)); err != nil {
		log.Error("Failed to rename a damaged file", "file", name, "err", err)
	}
}

// batchRecords returns the sealed batches by file name. It renames files that cannot be read.
func (d *disk) batchRecords(log *slog.Logger) (map[string]*record, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("reading state directory: %w", err)
	}
	records := map[string]*record{}
	for _, entry := range entries {
		var generation, first, last uint64
		name := entry.Name()
		if n, _ := fmt.Sscanf(name, "batch-%d-%d-%d", &generation, &first, &last); n != 3 ||
			name != batchName(generation, first, last) {
			continue
		}
		r, err := d.batchRecord(name)
		if err == nil && (r.generation != generation || r.batch.First != first || r.batch.Last != last) {
			err = errors.New("the file contains a different batch than its name indicates")
		}
		if err != nil {
			log.Error("Failed to read a sealed batch, its energy is lost", "file", name, "err", err)
			d.setAside(name, log)
			continue
		}
		records[name] = r
	}
	return records, nil
}

func (d *disk) batchRecord(name string) (*record, error) {
	data, err := d.read(name)
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(data, batchMagic, true)
	if err == nil && r.empty {
		err = errTorn
	}
	return r, err
}
