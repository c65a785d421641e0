package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const private = 0o600

// lockFile locks the given file exclusively, so that no other process uses the ledger next to it. The kernel
// releases the lock when the process exits for any reason.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, private)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("opening the ledger: directory %s does not exist: %w", filepath.Dir(path),
			fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the ledger: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another process uses the ledger and holds the lock %s: "+
				"use PostgreSQL for several processes", path)
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}
