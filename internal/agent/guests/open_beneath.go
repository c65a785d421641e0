package guests

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// noOpenat2 is set once the kernel, or a filter of system calls, was found not to know openat2.
var noOpenat2 atomic.Bool

// enter opens the folder of that name, one component, below another: as a handle to walk on, not to read. Whatever else
// has the name, a symbolic link above all, is an error, and so is something that is mounted there.
func enter(dir int, name string) (int, error) { return openBeneath(dir, name, unix.O_PATH) }

// openFolder opens a folder to read its entries, under the same conditions.
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
		// Filters of system calls answer EPERM to what they do not know.
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return fd, err
		}
		noOpenat2.Store(true)
	}
	return openStep(dir, name, flags)
}

// openStep is openBeneath for kernels before 5.6. A single component cannot leave the folder but through a link or a
// mount; of mounts it sees those of other file systems.
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
