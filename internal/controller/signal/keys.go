package signal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxKey is the maximum length of a key in bytes.
const maxKey = 16 << 10

// KeyFolder is a directory with a file for each key, such as a mounted Secret. Keys are read each time they are
// needed, so that changes take effect immediately.
type KeyFolder string

// Key returns the content of the file with the given name without surrounding whitespace. Symbolic links must not
// leave the directory.
func (folder KeyFolder) Key(name string) (string, error) {
	if folder == "" {
		return "", fmt.Errorf("the controller has no directory for keys of this kind (--keys-dir, --meter-keys-dir or "+
			"--budget-webhook-dir; in the chart signals.keysSecret, meterKeysSecret or budgets.webhookKeySecret): %w",
			fs.ErrNotExist)
	}
	f, err := os.OpenInRoot(string(folder), name)
	if err != nil {
		return "", noPath(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err != nil {
		return "", noPath(err)
	}
	if len(text) > maxKey {
		return "", fmt.Errorf("the key is too long, want at most %d bytes", maxKey)
	}
	return strings.TrimSpace(string(text)), nil
}

// noPath removes the path from an error, because callers already add the name of the file.
func noPath(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}
