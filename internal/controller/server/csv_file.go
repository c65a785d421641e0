package server

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// table is a CSV file that is rotated by day and by size.
type table struct {
	prefix  string // of all file names
	current string // name of the file that is written; if empty, it contains its creation time
	head    []string

	file   *os.File
	size   int64
	day    string
	broken time.Time // time of the last failed write
}

// open ensures that the table has an open file of the current day that has not reached its maximum size.
func (f *Folder) open(t *table, now time.Time) error {
	day := now.Format(time.DateOnly)
	if t.file != nil && t.day == day && t.size < f.maxBytes {
		return nil
	}
	t.close()
	name, err := f.next(t, now)
	if err != nil {
		return err
	}
	f.prune(t)
	path := filepath.Join(f.o.Dir, name)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640) //nolint:gosec // no user input
	if err != nil {
		return err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	t.file, t.size, t.day = file, size, day
	switch {
	case size == 0:
		return t.write([][]string{t.head})
	case !endsLine(file, size):
		return t.append([]byte("\n")) // a crash interrupted the last write
	}
	return nil
}

// next returns the name of the file to write. If the table has a fixed file name, a full file or a file of another
// day is renamed first.
func (f *Folder) next(t *table, now time.Time) (string, error) {
	if t.current == "" {
		return f.free(t.prefix, now)
	}
	info, err := os.Lstat(filepath.Join(f.o.Dir, t.current))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return t.current, nil
	case err != nil:
		return "", err
	case info.Mode().IsRegular() && info.Size() < f.maxBytes &&
		info.ModTime().UTC().Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.current, nil
	}
	aside, err := f.free(t.prefix, info.ModTime().UTC())
	if err != nil {
		return "", err
	}
	return t.current, os.Rename(filepath.Join(f.o.Dir, t.current), filepath.Join(f.o.Dir, aside))
}

// free returns an unused file name with a timestamp, which is at or the next unused second after it.
func (f *Folder) free(prefix string, at time.Time) (string, error) {
	for ; ; at = at.Add(time.Second) {
		name := prefix + at.Format(stampLayout)
		if _, err := os.Lstat(filepath.Join(f.o.Dir, name)); errors.Is(err, os.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
	}
}

// prune deletes the oldest files of the table, so that at most maxFiles exist after the next one has been created.
func (f *Folder) prune(t *table) {
	entries, err := os.ReadDir(f.o.Dir)
	if err != nil {
		return
	}
	var names []string // sorted like entries
	for _, e := range entries {
		if e.Type().IsRegular() && isStamped(e.Name(), t.prefix) {
			names = append(names, e.Name())
		}
	}
	for len(names) >= f.maxFiles {
		if err := os.Remove(filepath.Join(f.o.Dir, names[0])); err != nil {
			f.o.Log.Warn("Failed to delete an old file of the data folder", "file", names[0], "error", err)
		}
		names = names[1:]
	}
}

// isStamped reports whether name is the name of a rotated file with this prefix. Other files in the folder are
// ignored.
func isStamped(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	_, err := time.Parse(stampLayout, rest)
	return ok && err == nil
}

func endsLine(file *os.File, size int64) bool {
	var last [1]byte
	_, err := file.ReadAt(last[:], size-1)
	return err == nil && last[0] == '\n'
}

func (t *table) write(all [][]string) error {
	var text bytes.Buffer
	_ = csv.NewWriter(&text).WriteAll(all) // writing to a buffer never fails
	return t.append(text.Bytes())
}

func (t *table) append(text []byte) error {
	n, err := t.file.Write(text)
	t.size += int64(n)
	return err
}

func (t *table) close() {
	if t.file != nil {
		_ = t.file.Close()
		t.file = nil
	}
}
