package host

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// files reads small files without allocating. A test puts faults in place of pread.
type files struct {
	pread func(fd int, into []byte) (int, error)
	path  []byte // with a NUL at its end
	buf   []byte
}

// window is how much of a counter's file is read: its number stands in its first line.
const window = 512

func newFiles() files {
	return files{
		pread: func(fd int, into []byte) (int, error) { return unix.Pread(fd, into, 0) },
		path:  make([]byte, 0, unix.PathMax),
		buf:   make([]byte, 64<<10),
	}
}

var errGarbage = errors.New("no complete number")

// open opens dir+name for reading. unix.Open would allocate a copy of the path each time.
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

// fdCWD is AT_FDCWD as a register holds it.
const fdCWD = ^uintptr(99)

// read reads an open file from its beginning.
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

// slurp opens, reads and closes.
func (f *files) slurp(dir, name string, most int) ([]byte, error) {
	fd, err := f.open(dir, name)
	if err != nil {
		return nil, err
	}
	text, err := f.read(fd, most)
	_ = unix.Close(fd)
	return text, err
}

// isGone tells that a file is no more from that it cannot be read for now.
func isGone(err error) bool {
	errno, ok := err.(syscall.Errno) //nolint:errorlint // straight from a system call, each second for each container
	return ok && (errno == unix.ENOENT || errno == unix.ENODEV || errno == unix.ESRCH || errno == unix.ENOTDIR)
}

// read returns the counter of n. Reborn says that the descriptor was of something that is gone, and that something else
// stands in its place.
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
			return 0, unix.ESRCH // another process has the number now
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

// busySource is where the CPU time of the whole node is read; the zero value is nowhere.
type busySource struct {
	parse func([]byte) (time.Duration, bool)
	name  string
}

// openBusy prefers the root of version 1, which counts what its groups count; then /proc/stat or the root of version 2,
// which count the same ticks of the timer.
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
