package grid

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// RowError is an error in a row of a file. It is returned by all readers of grid and workload files.
type RowError struct {
	File  string
	Line  int    // starting at 1; 0 if the error concerns the whole file
	Field string // empty if the error does not concern a single field
	Err   error

	Option string // of [CSVOptions] that fixes the error: one of the constants below, or empty
}

// Options of [CSVOptions] that can fix an error.
const (
	OptionZone   = "zone"
	OptionColumn = "column"
	OptionFill   = "fill"
)

// Error returns the file, line and field followed by the cause.
func (e *RowError) Error() string {
	switch {
	case e.Line == 0:
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	case e.Field == "":
		return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s:%d: %s: %v", e.File, e.Line, e.Field, e.Err)
}

// Unwrap returns the cause.
func (e *RowError) Unwrap() error { return e.Err }

// ReadFile returns the content of a text file, without a byte order mark. It decompresses gzip files, which it
// recognizes by their first bytes rather than by their name.
func ReadFile(path string) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		if pathError, ok := errors.AsType[*os.PathError](err); ok {
			err = pathError.Err // the path is already in the RowError
		}
		return nil, &RowError{File: path, Err: err}
	}
	f, err := os.Open(path)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	text, err := ReadText(f, math.MaxInt64)
	if err != nil {
		return fail(err)
	}
	return text, nil
}

// ReadText is like [ReadFile] for a reader. It returns an error if the decompressed text exceeds limit bytes.
func ReadText(r io.Reader, limit int64) ([]byte, error) {
	in := bufio.NewReader(r)
	r = in
	packed := false
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("unpacking: %w", err)
		}
		r, packed = unpacked, true
	}
	if limit < math.MaxInt64 {
		r = io.LimitReader(r, limit+1)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		if packed {
			err = fmt.Errorf("unpacking: %w", err)
		}
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("content exceeds %d bytes", limit)
	}
	return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), nil
}
