package meter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// calls are the system calls behind small files; tests put failing ones in their place.
type calls struct {
	open  func(path string) (fd int, err error)
	pread func(fd int, p []byte) (int, error)
	mtime func(fd int) (time.Time, error)
	close func(fd int) error
}

var realCalls = calls{
	open:  openRegular,
	pread: func(fd int, p []byte) (int, error) { return unix.Pread(fd, p, 0) },
	mtime: func(fd int) (time.Time, error) {
		var stat unix.Stat_t
		err := unix.Fstat(fd, &stat)
		return time.Unix(stat.Mtim.Unix()), err
	},
	close: unix.Close,
}

var (
	errNotRegular = errors.New("not a regular file")
	errNotNumber  = errors.New("not a number")
	errEmpty      = errors.New("empty")
	errTooLong    = errors.New("too long")
)

// openRegular opens a file for reading and never waits: a pipe, a device or a link in the place of a file is an error.
func openRegular(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	var stat unix.Stat_t
	if err = unix.Fstat(fd, &stat); err == nil && stat.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errNotRegular
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// maxNumber is longer than any number of 64 bits with a sign and a newline.
const maxNumber = 32

// isGone reports whether the device is gone: what it counts when it is back may be another thing than before.
func isGone(err error) bool {
	return slices.ContainsFunc([]error{unix.ENODEV, unix.ENXIO, unix.EBADF, unix.ESTALE, unix.ENOENT},
		func(gone error) bool { return errors.Is(err, gone) })
}

// A counterFile is a number in a file of sysfs. Its descriptor stays open: through it the kernel says that a device is
// gone, even if another device has its name by then. Reading allocates nothing while all is well.
type counterFile struct {
	sys  *calls
	path string
	fd   int
	open bool
	buf  [maxNumber]byte
}

func (f *counterFile) read() (text []byte, err error) {
	if !f.open {
		if f.fd, err = f.sys.open(f.path); err != nil {
			return nil, fmt.Errorf("reading %s: %w", f.path, err)
		}
		f.open = true
	}
	n, err := f.sys.pread(f.fd, f.buf[:])
	if err == nil && n >= len(f.buf) {
		err = errTooLong
	}
	if err == nil {
		return f.buf[:max(n, 0)], nil
	}
	if isGone(err) {
		f.close() // only a new descriptor can show a device that is back
	}
	return nil, fmt.Errorf("reading %s: %w", f.path, err)
}

func (f *counterFile) readUint() (uint64, error) {
	text, err := f.read()
	return number(f.path, text, err)
}

func (f *counterFile) close() {
	if f.open {
		_ = f.sys.close(f.fd) // nothing was written
		f.open = false
	}
}

// readUint reads a file as a number of at most 64 bits without a sign.
func readUint(sys *calls, path string) (uint64, error) {
	text, err := readSmall(sys, path, maxNumber-1)
	return number(path, text, err)
}

// number reads what was read of a file, unless that failed.
func number(path string, text []byte, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	v, err := parseUint(text)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", path, err)
	}
	return v, nil
}

// parseUint reads a decimal number, followed by at most one newline: what the kernel writes, and nothing else.
func parseUint(text []byte) (uint64, error) {
	text = bytes.TrimSuffix(text, newline)
	if len(text) == 0 {
		return 0, errEmpty
	}
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0, errNotNumber
	}
	return v, nil
}

// parseInt reads a decimal number that may be negative.
func parseInt(text []byte) (int64, error) {
	text = bytes.TrimSuffix(text, newline)
	if len(text) == 0 {
		return 0, errEmpty
	}
	v, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || text[0] == '+' {
		return 0, errNotNumber
	}
	return v, nil
}

var newline = []byte("\n")

const maxText = 64 // of a name or a label

// readText returns the one line of a small file.
func readText(sys *calls, path string) (string, error) {
	text, err := readSmall(sys, path, maxText)
	if err != nil {
		return "", err
	}
	line := strings.TrimSuffix(string(text), "\n")
	switch {
	case line == "":
		return "", fmt.Errorf("reading %s: %w", path, errEmpty)
	case strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }):
		return "", fmt.Errorf("reading %s: it holds bytes that no name has", path)
	}
	return line, nil
}

// readSmall returns the content of a file of at most limit bytes.
func readSmall(sys *calls, path string, limit int) ([]byte, error) {
	text, _, err := readSmallAt(sys, path, limit)
	return text, err
}

// readSmallAt also returns when what it read was written.
func readSmallAt(sys *calls, path string, limit int) (text []byte, written time.Time, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("reading %s: %w", path, err)
		}
	}()
	fd, err := sys.open(path)
	if err != nil {
		return nil, written, err
	}
	defer func() { _ = sys.close(fd) }() // nothing was written
	if written, err = sys.mtime(fd); err != nil {
		return nil, written, err
	}
	buf := make([]byte, limit+1)
	n, err := sys.pread(fd, buf)
	if err == nil && n > limit {
		err = errTooLong
	}
	return buf[:min(max(n, 0), limit)], written, err
}

// maxEntries bounds what is looked at of a folder: the largest real ones have a few hundred entries.
const maxEntries = 4096

// list returns the sorted names in a folder. A missing folder has none; one with too many is no folder of sysfs.
func list(dir string) ([]string, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("listing zones or sensors: %w", err)
	}
	defer f.Close()
	names, err := f.Readdirnames(maxEntries + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("listing zones or sensors: %w", err)
	case len(names) > maxEntries:
		return nil, fmt.Errorf("listing zones or sensors: %s has more than %d entries", dir, maxEntries)
	}
	slices.Sort(names)
	return names, nil
}
