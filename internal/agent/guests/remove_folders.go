package guests

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A guest may leave millions of files in deeply nested directories. They are removed in small steps.
const (
	stepsAtOnce   = 500 // entries removed or moved per publication, in about a millisecond
	entriesAtOnce = 32  // entries read from a directory at a time
)

// retire moves the directory of a stopped virtual machine to the staging directory after the grace period.
func (p *Publisher) retire(t *tree, now time.Duration) {
	if t.gone == 0 {
		t.gone = max(now, 1)
		t.close()
	}
	if now-t.gone < p.grace {
		return
	}
	err := p.move(p.dir, t.folder, emptyPrefix)
	if err == nil || errors.Is(err, unix.ENOENT) {
		delete(p.trees, t.name)
		return
	}
	p.stats.Stuck++
	p.log.Warn("Failed to remove the directory of a stopped virtual machine", "vm", t.name, "err", err)
	t.gone = max(now-p.grace+renewal, 1) // retry in a minute
}

// move moves a directory to the staging directory with a unique name.
func (p *Publisher) move(dir int, name, prefix string) error {
	err := p.moveTo(dir, name, p.staging, prefix)
	p.litter = p.litter || err == nil
	return err
}

func (p *Publisher) moveTo(dir int, name string, to int, prefix string) error {
	for {
		p.serial++
		err := unix.Renameat2(dir, name, to, prefix+strconv.FormatUint(p.serial, 36), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// sweep removes some entries of the directories in the staging directory, which is the only state of the removal.
func (p *Publisher) sweep() {
	staging, err := openFolder(p.staging, ".") // reopened because it needs its own file offset
	if err != nil {
		return
	}
	defer func() { _ = staging.Close() }()
	steps := stepsAtOnce
	p.litter = false
	for {
		names, err := staging.Readdirnames(entriesAtOnce)
		for _, name := range names {
			if !strings.HasPrefix(name, emptyPrefix) {
				continue
			}
			for gone := false; !gone && err == nil; {
				if steps <= 0 {
					p.litter = true
					return
				}
				gone, err = p.empty(name, &steps)
			}
			if err != nil {
				// Keep it for the administrator.
				p.stats.Stuck++
				p.log.Warn("Failed to remove files of a stopped virtual machine", "folder", stagingName+"/"+name,
					"err", err)
				_ = p.move(p.staging, name, stuckPrefix)
				err = nil
			}
		}
		if err != nil {
			return // usually io.EOF
		}
	}
}

// empty removes some entries of a directory in the staging directory, and the directory itself once it is empty.
// Nested directories are moved to the top level of the directory, so that their depth does not matter. They are
// never moved out of it, because a guest that is still running and has them open could gain access to other files.
func (p *Publisher) empty(name string, steps *int) (gone bool, err error) {
	*steps--
	gone, err = p.removeSome(p.staging, name, steps, func(top int, name string) error {
		_, err := p.removeSome(top, name, steps, func(dir int, name string) error { return p.raise(dir, name, top) })
		return err
	})
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		err = unix.Unlinkat(p.staging, name, 0)
		return err == nil, err
	}
	return gone, err
}

// removeSome removes entries of a directory, and the directory itself once it is empty. It calls inner for
// subdirectories.
func (p *Publisher) removeSome(dir int, name string, steps *int, inner func(dir int, name string) error,
) (gone bool, err error) {
	folder, err := p.openClosed(dir, name)
	if err != nil {
		return false, err
	}
	defer func() { _ = folder.Close() }()
	names, err := folder.Readdirnames(entriesAtOnce)
	if errors.Is(err, io.EOF) {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		return err == nil, err
	}
	for _, entry := range names {
		*steps--
		err := unix.Unlinkat(int(folder.Fd()), entry, 0)
		if errors.Is(err, unix.EISDIR) {
			err = inner(int(folder.Fd()), entry)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return false, fmt.Errorf("removing %q: %w", entry, err)
		}
	}
	return false, err
}

// openClosed opens a directory and makes it accessible, because a guest may have removed its permissions.
func (p *Publisher) openClosed(dir int, name string) (*os.File, error) {
	folder, err := openFolder(dir, name)
	if errors.Is(err, unix.EACCES) {
		flags := 0 // a guest cannot replace an entry of the staging directory by a link
		if dir != p.staging {
			flags = unix.AT_SYMLINK_NOFOLLOW
		}
		if err := unix.Fchmodat(dir, name, 0o700, flags); err != nil {
			return nil, err
		}
		folder, err = openFolder(dir, name)
	}
	if err == nil {
		_ = unix.Fchmod(int(folder.Fd()), 0o700)
	}
	return folder, err
}

// raise moves a directory to the top level. Moving requires write permission for the directory. If moving fails,
// raise tries to remove the directory, which succeeds if it is empty.
func (p *Publisher) raise(dir int, name string, top int) error {
	err := p.moveTo(dir, name, top, emptyPrefix)
	if errors.Is(err, unix.EACCES) && unix.Fchmodat(dir, name, 0o700, unix.AT_SYMLINK_NOFOLLOW) == nil {
		err = p.moveTo(dir, name, top, emptyPrefix)
	}
	if err != nil && unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) == nil {
		return nil
	}
	return err
}
