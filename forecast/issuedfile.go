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
const methodVersion = 4

// issuedFile is the written form of Issued.
type issuedFile struct {
	Key          [32]byte
	Model        string
	Starts       []int64 // of pieces
	Firsts       []int
	Horizon, Lag int
	Known        []float64
	Values       []float32
}

// MarshalBinary writes the forecasts, with a digest of what they were made from.
func (f *Issued) MarshalBinary() ([]byte, error) {
	file := issuedFile{Key: f.key, Model: f.model, Horizon: f.horizon, Lag: f.lag, Known: f.known, Values: f.values}
	for _, p := range f.pieces {
		file.Starts, file.Firsts = append(file.Starts, p.start), append(file.Firsts, p.first)
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(file); err != nil {
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
	if file.Horizon <= 0 || len(file.Known) == 0 || len(file.Values) != file.Horizon*len(file.Known) ||
		len(file.Starts) == 0 || len(file.Starts) != len(file.Firsts) {
		return errors.New("reading forecasts: the parts do not fit together")
	}
	f.key, f.model, f.horizon, f.lag, f.known, f.values = file.Key, file.Model, file.Horizon, file.Lag, file.Known,
		file.Values
	f.pieces = nil
	for i, start := range file.Starts {
		f.pieces = append(f.pieces, piece{start: start, first: file.Firsts[i]})
	}
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
		if f.UnmarshalBinary(data) == nil && f.key == key {
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

// keep writes a file in one step, so that nobody reads half of it.
func keep(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a cache of nothing secret
		return fmt.Errorf("keeping forecasts: %w", err)
	}
	if err := renameio.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("keeping forecasts: %w", err)
	}
	return nil
}
