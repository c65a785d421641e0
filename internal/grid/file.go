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

// RowError is what is wrong with one row of a file. Readers of rows, of grids and of workloads, all report it.
type RowError struct {
	File  string
	Line  int    // from 1; 0: the file as a whole
	Field string // "" if it is not about one
	Err   error

	Option string // of [CSVOptions], by which the caller can mend it: one of those below, or "" for none
}

// What callers can mend errors by.
const (
	OptionZone   = "zone"
	OptionColumn = "column"
	OptionFill   = "fill"
)

// Error names file, line and field.
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

// ReadFile returns the content of a text file, unpacked if it is gzip and without a byte order mark. Whether a file is
// packed is told from its first bytes, not from its name.
func ReadFile(path string) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		if pathError, ok := errors.AsType[*os.PathError](err); ok {
			err = pathError.Err // the name stands in front already
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

// ReadText is [ReadFile] for what is open already. More than limit bytes, counted after unpacking, are an error.
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
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), nil
}
