package signal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxKey is longer than any key: a folder of keys holds nothing else.
const maxKey = 16 << 10

// KeyFolder is a folder with a file for each key, as a mounted Secret is. A key is read each time that it is needed, so
// that a new one counts at once.
type KeyFolder string

// Key returns the content of the file of that name, which lies in the folder itself or where a link in it leads
// inside it.
func (folder KeyFolder) Key(name string) (string, error) {
	if folder == "" {
		return "", fmt.Errorf("the controller has no folder of such keys (--keys-dir, --meter-keys-dir or "+
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
		return "", fmt.Errorf("longer than %d bytes", maxKey)
	}
	return strings.TrimSpace(string(text)), nil
}

// noPath leaves the path out of an error: the name stands in front of it already.
func noPath(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}
