package host

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// files reads small files without allocating memory. Tests replace pread to inject faults.
type files struct {
	pread func(fd int, into []byte) (int, error)
	path  []byte // NUL-terminated
	buf   []byte
}

// window is the number of bytes read from a counter file. The counter is in the first lines.
const window = 512

func newFiles() files {
	return files{
		pread: func(fd int, into []byte) (int, error) { return unix.Pread(fd, into, 0) },
		path:  make([]byte, 0, unix.PathMax),
		buf:   make([]byte, 64<<10),
	}
}

var errGarbage = errors.New("incomplete number")

// open opens dir+name for reading. It does not use unix.Open, which allocates a copy of the path.
func (f *files) open(dir, name string) (int, error) {
	if len(dir)+len(name)+1 > unix.PathMax {
		return -1, unix.ENAMETOOLONG
	}
	f.path = append(append(append(f.path[:0], dir...), name...), 0)
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_LARGEFILE
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, fdCWD, uintptr(unsafe.Pointer(&f.path[0])), flags, 0, 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
		default:
			return -1, errno
		}
	}
}

// fdCWD is AT_FDCWD as a register value.
const fdCWD = ^uintptr(99)

// read reads at most the given number of bytes from the start of an open file. The result is valid until the next
// read.
func (f *files) read(fd, most int) ([]byte, error) {
	for {
		n, err := f.pread(fd, f.buf[:most])
		switch {
		case err == nil:
			return f.buf[:n], nil
		case !errors.Is(err, unix.EINTR):
			return nil, err
		}
	}
}

// slurp opens, reads and closes a file.
func (f *files) slurp(dir, name string, most int) ([]byte, error) {
	fd, err := f.open(dir, name)
	if err != nil {
		return nil, err
	}
	text, err := f.read(fd, most)
	_ = unix.Close(fd)
	return text, err
}

// isGone reports whether an error means that the file no longer exists, rather than that it is temporarily
// unreadable.
func isGone(err error) bool {
	errno, ok := err.(syscall.Errno) //nolint:errorlint // returned directly by a system call, on a hot path
	return ok && (errno == unix.ENOENT || errno == unix.ENODEV || errno == unix.ESRCH || errno == unix.ENOTDIR)
}

// read returns the counter of n. reborn is true if the group or process was replaced by another one of the same
// name.
func (h *Host) read(n *node) (value time.Duration, reborn bool, err error) {
	h.stats.Reads++
	if n.fd >= 0 {
		value, err = h.parse(n, int(n.fd))
		if err == nil || !isGone(err) {
			return value, false, err
		}
		h.closeFile(n)
		reborn = true
	}
	fd, err := h.io.open(n.dir, n.file)
	if err != nil {
		return 0, false, err
	}
	value, err = h.parse(n, fd)
	if err == nil && h.stats.Kept < h.limit {
		n.fd = int32(fd)
		h.stats.Kept++
	} else {
		_ = unix.Close(fd)
	}
	return value, reborn, err
}

func (h *Host) parse(n *node, fd int) (time.Duration, error) {
	text, err := h.io.read(fd, window)
	if err != nil {
		return 0, err
	}
	var value time.Duration
	var ok bool
	switch n.file {
	case usageFile:
		value, ok = parseUsage(text)
	case statFile:
		value, ok = parseCPUStat(text)
	default:
		var stat processStat
		if stat, ok = parseProcess(text); ok && stat.start != n.start {
			return 0, unix.ESRCH // the PID was reused
		}
		value = stat.cpu
	}
	if !ok {
		return 0, errGarbage
	}
	return value, nil
}

func (h *Host) closeFile(n *node) {
	if n.fd >= 0 {
		_ = unix.Close(int(n.fd))
		n.fd = -1
		h.stats.Kept--
	}
}

// busySource is the source of the node's CPU time. The zero value is no source.
type busySource struct {
	parse func([]byte) (time.Duration, bool)
	name  string
}

// openBusy returns the first readable source. It prefers the root group of version 1, which is consistent with its
// groups, over the root group of version 2 and /proc/stat, which both count timer ticks.
func openBusy(found []*hierarchy, proc string) busySource {
	sources := make([]busySource, 0, len(found)+1)
	for _, one := range found {
		switch {
		case !one.whole:
		case one.version == 1:
			sources = append(sources, busySource{parse: parseUsage, name: one.dir + usageFile})
		default:
			sources = append(sources, busySource{parse: parseRootCPUStat, name: one.dir + statFile})
		}
	}
	sources = append(sources, busySource{
		parse: func(text []byte) (time.Duration, bool) {
			stat, ok := parseStat(text)
			return stat.busy, ok
		},
		name: proc + "/stat",
	})
	io := newFiles()
	for _, s := range sources {
		if _, err := s.read(&io); err == nil {
			return s
		}
	}
	return busySource{}
}

func (b *busySource) read(io *files) (time.Duration, error) {
	text, err := io.slurp(b.name, "", window)
	value, ok := b.parse(text)
	if err == nil && !ok {
		err = errGarbage
	}
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of the node from %s: %w", b.name, err)
	}
	return value, nil
}
