package guests

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Names in the staging folder, which no guest sees.
const (
	stagedName   = "next"
	stagedFolder = "folder"
	emptyPrefix  = "gone-"
	stuckPrefix  = "stuck-"
	formerPrefix = "spare-" // of files of former agents
)

// stage writes a complete file of that name.
func (p *Publisher) stage(name string, content []byte) (int, error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(p.staging, name, flags, 0o444)
	if errors.Is(err, unix.EEXIST) { // of a process that was killed, or of a rename that failed
		if err = unix.Unlinkat(p.staging, name, 0); err == nil {
			fd, err = unix.Openat(p.staging, name, flags, 0o444)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("staging a file: %w", err)
	}
	if err = writeAt(fd, content, 0); err == nil {
		err = unix.Fchmod(fd, 0o444) // whatever the umask is
	}
	if err != nil {
		_ = unix.Close(fd)
		_ = unix.Unlinkat(p.staging, name, 0)
		return -1, fmt.Errorf("staging a file: %w", err)
	}
	return fd, nil
}

// put puts a complete file in place of whatever has the name.
func (p *Publisher) put(dir int, name string, content []byte) error {
	fd, err := p.putOpen(dir, name, content)
	closeFD(&fd)
	return err
}

// putOpen is put that leaves the file open.
func (p *Publisher) putOpen(dir int, name string, content []byte) (fd int, err error) {
	if fd, err = p.stage(stagedName, content); err != nil {
		return -1, err
	}
	if err := unix.Renameat(p.staging, stagedName, dir, name); err != nil {
		closeFD(&fd)
		return -1, fmt.Errorf("renaming %s into place: %w", name, err)
	}
	return fd, nil
}

// makeFolder makes a folder unless there is something of that name. It gets its mode before it gets to its place:
// there, the name may already mean something else.
func (p *Publisher) makeFolder(dir int, name string) error {
	if err := unix.Mkdirat(p.staging, stagedFolder, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("making a folder: %w", err)
	}
	if err := unix.Fchmodat(p.staging, stagedFolder, 0o755, 0); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	err := unix.Renameat2(p.staging, stagedFolder, dir, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("renaming the folder %s into place: %w", name, err)
	}
	return nil
}
