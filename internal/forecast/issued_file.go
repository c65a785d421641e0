package forecast

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// methodVersion is part of what cached forecasts are known by. It changes when models forecast otherwise.
const methodVersion = 5

// issuedFile is what of Issued is kept in a file.
type issuedFile struct {
	Key          [32]byte  // digest of what they were made from
	Name         string    // of the model
	Hours        []int64   // since the epoch, from which each is issued, in order
	Horizon, Lag int       // hours
	Known        []float64 // value of the hour before each
	Values       []float32 // of all, one after the other, by hour ahead
}

// MarshalBinary writes the forecasts, with a digest of what they were made from.
func (f *Issued) MarshalBinary() ([]byte, error) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(f.issuedFile); err != nil {
		return nil, fmt.Errorf("writing forecasts: %w", err)
	}
	return b.Bytes(), nil
}

// UnmarshalBinary reads what MarshalBinary writes.
func (f *Issued) UnmarshalBinary(data []byte) error {
	var file issuedFile
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&file); err != nil {
		return fmt.Errorf("reading forecasts: %w", err)
	}
	if n := len(file.Hours); n == 0 || file.Horizon <= 0 || len(file.Known) != n || len(file.Values) != n*file.Horizon {
		return errors.New("reading forecasts: the parts do not fit together")
	}
	f.issuedFile = file
	return nil
}

// IssueCached is [Issue], except that forecasts that were made before from the same inputs are read from the folder,
// and new ones are kept there. A file that cannot be read is made again.
func IssueCached(ctx context.Context, folder string, o Issuance) (*Issued, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	key := o.key()
	path := filepath.Join(folder, hex.EncodeToString(key[:12])+".forecasts")
	data, err := os.ReadFile(path)
	if err == nil {
		f := &Issued{}
		if f.UnmarshalBinary(data) == nil && f.Key == key {
			return f, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading forecasts: %w", err)
	}
	f, err := Issue(ctx, o)
	if err != nil {
		return nil, err
	}
	if data, err = f.MarshalBinary(); err != nil {
		return nil, err
	}
	return f, keep(path, data)
}

// keep writes a file in one step, so that no reader sees half of it.
func keep(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a cache of nothing secret
		return fmt.Errorf("keeping forecasts: %w", err)
	}
	if err := renameio.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("keeping forecasts: %w", err)
	}
	return nil
}
