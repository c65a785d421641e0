package signal

import (
	"errors"
	"os"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// dataFile is a file in the data directory. Compressed files are decompressed.
type dataFile struct {
	folder, path string
	limit        int64 // maximum size in bytes after decompression

	changed time.Time
	size    int64
}

func newDataFile(folder, path string, limit int64) (dataFile, error) {
	if folder == "" {
		return dataFile{}, dial.Refuse(dial.ReasonAddress, "this controller has no data directory")
	}
	return dataFile{folder: folder, path: path, limit: limit}, nil
}

// read calls use with the content of the file if the file has changed since the last successful call, or if anew is
// set. Files outside of the directory are inaccessible, also through symbolic links.
func (d *dataFile) read(anew bool, use func(text []byte) error) error {
	root, err := os.OpenRoot(d.folder)
	if err != nil {
		return dial.Refuse(dial.ReasonAddress, "opening the data directory: %w", noPath(err))
	}
	defer root.Close()
	info, err := root.Stat(d.path) // before Open, which blocks if the file is a named pipe
	switch {
	case errors.Is(err, os.ErrNotExist):
		return dial.Refuse(dial.ReasonMissing, "file %q does not exist in the data directory", d.path)
	case err != nil:
		return dial.Refuse(dial.ReasonAddress, "file %q: %w", d.path, noPath(err))
	case !info.Mode().IsRegular():
		return dial.Refuse(dial.ReasonShape, "%q is not a regular file", d.path)
	case info.Size() > d.limit:
		return dial.Refuse(dial.ReasonSize, "file %q has %d bytes, want at most %d", d.path, info.Size(), d.limit)
	case !anew && info.ModTime().Equal(d.changed) && info.Size() == d.size:
		return nil
	}
	f, err := root.Open(d.path)
	if err != nil {
		return dial.Refuse(dial.ReasonAddress, "file %q: %w", d.path, noPath(err))
	}
	defer f.Close()
	text, err := grid.ReadText(f, d.limit)
	if err != nil {
		return dial.Refuse(dial.ReasonSize, "reading file %q: %w", d.path, noPath(err))
	}
	if err := use(text); err != nil {
		return err
	}
	d.changed, d.size = info.ModTime(), info.Size()
	return nil
}
