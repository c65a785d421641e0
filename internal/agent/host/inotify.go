package host

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// watcher detects created and removed groups with inotify. This works with both versions and through bind mounts,
// because the directory itself is watched.
type watcher struct {
	fd     int
	places map[int32]place
	byDir  map[string]int32
	full   bool // a watch could not be added
	buf    []byte
}

// place is a directory that may contain groups of interest.
type place struct {
	hier  *hierarchy
	dir   string
	role  role // slice only if it contains pods
	depth int
}

// newWatcher returns a watcher. If inotify is unavailable, it returns an error together with a watcher without
// events.
func newWatcher() (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	return &watcher{
		fd: fd, places: map[int32]place{}, byDir: map[string]int32{}, full: err != nil, buf: make([]byte, 64<<10),
	}, err
}

func (w *watcher) close() error {
	if w.fd < 0 {
		return nil
	}
	err := unix.Close(w.fd)
	w.fd = -1
	return err
}

// add watches a directory. It ignores directories that no longer exist; other errors set full.
func (w *watcher) add(p place) {
	const mask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	wd, err := unix.InotifyAddWatch(w.fd, p.dir, mask)
	if err != nil {
		w.full = w.full || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR)
		return
	}
	if old, ok := w.byDir[p.dir]; ok && old != int32(wd) {
		delete(w.places, old) // the name was reused by another directory
	}
	w.places[int32(wd)] = p
	w.byDir[p.dir] = int32(wd)
}

func (w *watcher) has(dir string) bool {
	_, ok := w.byDir[dir]
	return ok
}

// drop removes the watch of a directory. This is necessary because the watch of a removed control group exists
// until all open files in it are closed.
func (w *watcher) drop(dir string) {
	if wd, ok := w.byDir[dir]; ok {
		_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
		delete(w.byDir, dir)
		delete(w.places, wd)
	}
}

// forget handles the kernel's notification that a watch was removed.
func (w *watcher) forget(wd int32) {
	if p, ok := w.places[wd]; ok {
		delete(w.places, wd)
		if w.byDir[p.dir] == wd {
			delete(w.byDir, p.dir)
		}
	}
}

// event is a change in a watched directory.
type event struct {
	in      place
	name    string
	created bool
	moved   bool
}

// drain calls each for every event since the last call. It reports whether events were lost.
func (w *watcher) drain(each func(event)) (overflow bool) {
	for {
		n, err := unix.Read(w.fd, w.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n < unix.SizeofInotifyEvent {
			return overflow
		}
		for rest := w.buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(rest))
			mask := binary.NativeEndian.Uint32(rest[4:])
			size := int(binary.NativeEndian.Uint32(rest[12:]))
			rest = rest[unix.SizeofInotifyEvent:]
			if size > len(rest) {
				break
			}
			name := rest[:size]
			rest = rest[size:]
			overflow = w.event(wd, mask, name, each) || overflow
		}
	}
}

func (w *watcher) event(wd int32, mask uint32, name []byte, each func(event)) (overflow bool) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return true
	}
	if mask&unix.IN_IGNORED != 0 {
		w.forget(wd)
		return false
	}
	p, ok := w.places[wd]
	if !ok || mask&unix.IN_ISDIR == 0 {
		return false
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	each(event{
		in: p, name: string(name),
		created: mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0,
		moved:   mask&unix.IN_MOVED_TO != 0,
	})
	return false
}
