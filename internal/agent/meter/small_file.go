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

// calls are the system calls used for small files. Tests replace them to inject failures.
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

// openRegular opens a file for reading without blocking. It returns an error if the file is a pipe, a device or a
// link.
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

// maxNumber exceeds the length of any 64-bit number with a sign and a newline.
const maxNumber = 32

// isGone reports whether an error means that the device was removed. When it reappears, its counter may have been
// reset.
func isGone(err error) bool {
	return slices.ContainsFunc([]error{unix.ENODEV, unix.ENXIO, unix.EBADF, unix.ESTALE, unix.ENOENT},
		func(gone error) bool { return errors.Is(err, gone) })
}

// counterFile is a sysfs file that contains a number. Its descriptor is kept open, so that the removal of the
// device is detected even if another device has the same name. Successful reads do not allocate memory.
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
		f.close() // a new descriptor is required if the device reappears
	}
	return nil, fmt.Errorf("reading %s: %w", f.path, err)
}

func (f *counterFile) readUint() (uint64, error) {
	text, err := f.read()
	if err != nil {
		return 0, err
	}
	v, err := parseUint(text)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", f.path, err)
	}
	return v, nil
}

func (f *counterFile) close() {
	if f.open {
		_ = f.sys.close(f.fd) // opened for reading only
		f.open = false
	}
}

// parseUint parses a decimal number with an optional trailing newline, as written by the kernel.
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

// parseInt is like parseUint, but accepts negative numbers.
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

const maxText = 64 // maximum length of a name or label

// readText returns the content of a file with a single line.
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
		return "", fmt.Errorf("reading %s: invalid characters", path)
	}
	return line, nil
}

// readSmall returns the content of a file of at most limit bytes.
func readSmall(sys *calls, path string, limit int) ([]byte, error) {
	text, _, err := readSmallAt(sys, path, limit)
	return text, err
}

// readSmallAt is like readSmall, but also returns the modification time.
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
	defer func() { _ = sys.close(fd) }() // opened for reading only
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

// maxEntries is the maximum number of entries in a directory; real ones have at most a few hundred.
const maxEntries = 4096

// list returns the sorted names of the entries in a directory. It returns none if the directory does not exist, and
// an error if it has too many entries.
func list(dir string) ([]string, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	if err == nil {
		defer f.Close()
		names, err = f.Readdirnames(maxEntries + 1)
	}
	if len(names) > maxEntries {
		err = fmt.Errorf("%s has more than %d entries", dir, maxEntries)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("listing zones or sensors: %w", err)
	}
	slices.Sort(names)
	return names, nil
}
