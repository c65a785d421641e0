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

// methodVersion is part of the key of cached forecasts. It must be changed when models produce different forecasts.
const methodVersion = 5

// issuedFile contains the fields of Issued that are stored in a file.
type issuedFile struct {
	Key          [32]byte  // digest of the inputs
	Name         string    // name of the model
	Hours        []int64   // sorted origins, in hours since the epoch
	Horizon, Lag int       // in hours
	Known        []float64 // value of the hour before each origin
	Values       []float32 // forecasts of all origins, Horizon values for each
}

// MarshalBinary encodes the forecasts and the digest of their inputs.
func (f *Issued) MarshalBinary() ([]byte, error) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(f.issuedFile); err != nil {
		return nil, fmt.Errorf("encoding forecasts: %w", err)
	}
	return b.Bytes(), nil
}

// UnmarshalBinary decodes the output of MarshalBinary.
func (f *Issued) UnmarshalBinary(data []byte) error {
	var file issuedFile
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&file); err != nil {
		return fmt.Errorf("decoding forecasts: %w", err)
	}
	if n := len(file.Hours); n == 0 || file.Horizon <= 0 || len(file.Known) != n || len(file.Values) != n*file.Horizon {
		return errors.New("decoding forecasts: inconsistent lengths")
	}
	f.issuedFile = file
	return nil
}

// IssueCached is like [Issue], but reads forecasts from the directory if they have been made from the same inputs
// before, and stores new ones there. Unreadable files are replaced.
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
		return nil, fmt.Errorf("reading cached forecasts: %w", err)
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

// keep writes a file atomically, so that readers never see a partial file.
func keep(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a cache of nothing secret
		return fmt.Errorf("caching forecasts: %w", err)
	}
	if err := renameio.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("caching forecasts: %w", err)
	}
	return nil
}
