package guests

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Names in the staging directory, which is never shared.
const (
	stagedName   = "next"
	stagedFolder = "folder"
	emptyPrefix  = "gone-"
	stuckPrefix  = "stuck-"
)

// stage writes a complete file to the staging directory and returns its descriptor.
func (p *Publisher) stage(name string, content []byte) (int, error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(p.staging, name, flags, 0o444)
	if errors.Is(err, unix.EEXIST) { // left by a killed process or a failed rename
		if err = unix.Unlinkat(p.staging, name, 0); err == nil {
			fd, err = unix.Openat(p.staging, name, flags, 0o444)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("staging a file: %w", err)
	}
	if err = writeAt(fd, content, 0); err == nil {
		err = unix.Fchmod(fd, 0o444) // regardless of the umask
	}
	if err != nil {
		_ = unix.Close(fd)
		_ = unix.Unlinkat(p.staging, name, 0)
		return -1, fmt.Errorf("staging a file: %w", err)
	}
	return fd, nil
}

// put atomically replaces a file.
func (p *Publisher) put(dir int, name string, content []byte) error {
	fd, err := p.putOpen(dir, name, content)
	closeFD(&fd)
	return err
}

// putOpen is like put, but returns the open descriptor of the file.
func (p *Publisher) putOpen(dir int, name string, content []byte) (fd int, err error) {
	if fd, err = p.stage(stagedName, content); err != nil {
		return -1, err
	}
	if err := unix.Renameat(p.staging, stagedName, dir, name); err != nil {
		closeFD(&fd)
		return -1, fmt.Errorf("renaming %s: %w", name, err)
	}
	return fd, nil
}

// makeFolder creates a directory unless an entry with that name exists. The mode is set before the directory is
// renamed, because the guest could replace it afterwards.
func (p *Publisher) makeFolder(dir int, name string) error {
	if err := unix.Mkdirat(p.staging, stagedFolder, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("creating a directory: %w", err)
	}
	if err := unix.Fchmodat(p.staging, stagedFolder, 0o755, 0); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	err := unix.Renameat2(p.staging, stagedFolder, dir, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("renaming directory %s: %w", name, err)
	}
	return nil
}
