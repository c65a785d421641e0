package guests

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// noOpenat2 is set if the kernel or a seccomp filter does not support openat2.
var noOpenat2 atomic.Bool

// enter opens the directory with the given name (one path component) in another one. The descriptor can be used for
// path lookups, but not for reading. It returns an error for anything else, including symbolic links and mount
// points.
func enter(dir int, name string) (int, error) { return openBeneath(dir, name, unix.O_PATH) }

// openFolder is like enter, but opens the directory for reading its entries.
func openFolder(dir int, name string) (*os.File, error) {
	fd, err := openBeneath(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func openBeneath(dir int, name string, flags int) (int, error) {
	flags |= unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if !noOpenat2.Load() {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{
			Flags: uint64(flags), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
		})
		// Seccomp filters may return EPERM for unknown system calls.
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return fd, err
		}
		noOpenat2.Store(true)
	}
	return openStep(dir, name, flags)
}

// openStep is the fallback of openBeneath for kernels before 5.6. A single component can leave the directory only
// through a link or a mount point. It detects only mount points of other file systems.
func openStep(dir int, name string, flags int) (int, error) {
	fd, err := unix.Openat(dir, name, flags, 0)
	if err != nil {
		return -1, err
	}
	var above, here unix.Stat_t
	if err = unix.Fstat(dir, &above); err == nil {
		err = unix.Fstat(fd, &here)
	}
	if err == nil && above.Dev != here.Dev {
		err = unix.EXDEV
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func closeFD(fd *int) {
	if *fd >= 0 {
		_ = unix.Close(*fd)
	}
	*fd = -1
}
