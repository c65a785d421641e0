package workload

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/grid"
)

// rows reads a CSV table with a header. It knows fields, not what they mean, and makes the errors that name file, line
// and field. A row with a field too many or too few is an error, never a row. Lines that begin with # are comments.
type rows struct {
	file    string
	csv     *csv.Reader
	columns []string
	index   map[string]int
	record  []string
	line    int
}

// newRows reads the header, which must have every required column and none that is neither required nor optional.
func newRows(file string, text []byte, required, optional []string) (*rows, error) {
	r := &rows{file: file, csv: csv.NewReader(bytes.NewReader(text)), index: map[string]int{}}
	r.csv.Comment = '#'
	r.csv.TrimLeadingSpace = true
	r.csv.ReuseRecord = true
	if err := r.next(); err != nil {
		if errors.Is(err, io.EOF) {
			err = &grid.RowError{File: file, Err: errors.New("the file is empty: want a header and rows")}
		}
		return nil, err
	}
	for i, name := range r.record {
		name = strings.Clone(strings.TrimSpace(name))
		switch _, twice := r.index[name]; {
		case twice:
			return nil, r.wrap("", fmt.Errorf("column %q stands twice in the header", name))
		case !slices.Contains(required, name) && !slices.Contains(optional, name):
			return nil, r.wrap("", fmt.Errorf("unknown column %q: have %s, %s", name, strings.Join(required, ", "),
				strings.Join(optional, ", ")))
		}
		r.index[name] = i
		r.columns = append(r.columns, name)
	}
	for _, name := range required {
		if _, ok := r.index[name]; !ok {
			return nil, r.wrap("", fmt.Errorf("column %q is missing: want %s; may have %s", name,
				strings.Join(required, ", "), strings.Join(optional, ", ")))
		}
	}
	return r, nil
}

// next moves to the next row; its error is io.EOF itself after the last one.
func (r *rows) next() error {
	record, err := r.csv.Read()
	if err == nil {
		r.record = record
		r.line, _ = r.csv.FieldPos(0)
		return nil
	}
	if errors.Is(err, csv.ErrFieldCount) {
		r.line, _ = r.csv.FieldPos(0)
		return r.wrap("", fmt.Errorf("the row has %d fields: want %d, as in the header", len(record), len(r.columns)))
	}
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		return &grid.RowError{File: r.file, Line: parse.StartLine, Err: parse.Err}
	}
	return err // reading from memory ends in nothing but io.EOF
}

// each calls add for every row that is left, up to the first error; add names the field that it is about.
func (r *rows) each(add func() (field string, err error)) error {
	for {
		err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if field, err := add(); err != nil {
			return r.wrap(field, err)
		}
	}
}

// text returns a field of the present row without surrounding space, "" where the table has no such column.
func (r *rows) text(column string) string {
	i, ok := r.index[column]
	if !ok {
		return ""
	}
	return strings.TrimSpace(r.record[i])
}

// wrap makes an error of the present row; an empty field means the whole row.
func (r *rows) wrap(field string, err error) error {
	return &grid.RowError{File: r.file, Line: r.line, Field: field, Err: err}
}

// number parses a decimal number. It refuses NaN, infinities and what overflows.
func number(text string) (float64, error) {
	if text == "" {
		return 0, errors.New("is empty: want a number")
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is no finite number", text)
	}
	return v, nil
}

func notNegative(text string) (float64, error) {
	v, err := number(text)
	if err == nil && v < 0 {
		err = fmt.Errorf("%q is negative", text)
	}
	return v, err
}
