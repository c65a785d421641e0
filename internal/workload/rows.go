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
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// rows reads a table row by row. It does not interpret fields, and returns errors with file, line and field. A row
// with too many or too few fields is an error.
type rows struct {
	file   string
	next   func() error // advances to the next row; returns io.EOF itself after the last one
	index  map[string]int
	record []string
	line   int
	width  int            // number of fields per row
	zone   *time.Location // of local times, or nil

	// skip handles invalid rows. If it is nil, reading stops at the first invalid row.
	skip func(wrong error)

	field string // the first invalid field of the current row
	err   error  // the error of that field
}

// newRows reads the header of a CSV table. The header must contain every required column and, unless the table is
// wide, no columns other than the required and optional ones. Lines that start with # are comments.
func newRows(file string, text []byte, required, optional []string, wide bool) (*rows, error) {
	table := csv.NewReader(bytes.NewReader(text))
	table.Comment, table.TrimLeadingSpace, table.ReuseRecord, table.LazyQuotes = '#', !wide, true, wide
	header, _ := firstLine(text)
	if i := strings.IndexAny(header, "|;\t,"); wide && i >= 0 {
		table.Comma = rune(header[i])
	}
	r := &rows{file: file, index: map[string]int{}}
	r.next = func() error { return r.nextOf(table) }
	if err := r.next(); err != nil {
		if errors.Is(err, io.EOF) {
			err = &grid.RowError{File: file, Err: errors.New("the file is empty: want a header and rows")}
		}
		return nil, err
	}
	r.width = len(r.record)
	for i, name := range r.record {
		name = strings.Clone(strings.TrimSpace(name))
		if wide {
			name = strings.TrimSuffix(strings.ToLower(name), "raw")
		}
		switch _, twice := r.index[name]; {
		case wide:
			if !twice {
				r.index[name] = i
			}
			continue
		case i == 0 && name == "":
			continue // the row numbers written by pandas
		case twice:
			return nil, r.wrap("", fmt.Errorf("duplicate column %q in the header", name))
		case !slices.Contains(required, name) && !slices.Contains(optional, name):
			return nil, r.wrap("", fmt.Errorf("unknown column %q: have %s, %s", name, strings.Join(required, ", "),
				strings.Join(optional, ", ")))
		}
		r.index[name] = i
	}
	for _, name := range required {
		if _, ok := r.index[name]; !ok {
			return nil, r.wrap("", fmt.Errorf("column %q is missing: want %s, and optionally %s", name,
				strings.Join(required, ", "), strings.Join(optional, ", ")))
		}
	}
	return r, nil
}

func (r *rows) nextOf(table *csv.Reader) error {
	record, err := table.Read()
	if err == nil {
		r.record = record
		r.line, _ = table.FieldPos(0)
		return nil
	}
	if errors.Is(err, csv.ErrFieldCount) {
		r.line, _ = table.FieldPos(0)
		r.record = record
		return r.wrap("", fmt.Errorf("the row has %d fields: want %d, as in the header", len(record), r.width))
	}
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		if parse.Line > parse.StartLine {
			r.skip = nil // an unclosed quote has consumed further rows
		}
		return &grid.RowError{File: r.file, Line: parse.StartLine, Err: parse.Err}
	}
	return err // the only error of reading from memory is io.EOF
}

// newLines reads a table without a header, with fields separated by spaces. A field that starts with the comment
// character ends its line, and a line that starts with # is a comment. If more is set, the first row determines the
// number of columns, and the columns beyond the named ones are ignored.
func newLines(file string, text []byte, columns []string, comment byte, more bool) *rows {
	r := &rows{file: file, width: len(columns)}
	r.index = sliceutil.Places(columns, func(name *string) string { return *name })
	r.next = func() error {
		for len(text) > 0 {
			var line []byte
			line, text, _ = bytes.Cut(text, []byte{'\n'})
			r.line++
			r.record = strings.Fields(string(line))
			if at := slices.IndexFunc(r.record, func(f string) bool { return f[0] == comment }); at >= 0 {
				r.record = r.record[:at]
			}
			if len(r.record) > 0 && r.record[0][0] == '#' {
				r.record = nil
			}
			if more && len(r.record) > 0 {
				r.width, more = max(r.width, len(r.record)), false
			}
			switch len(r.record) {
			case 0:
				continue
			case r.width:
				return nil
			}
			return r.wrap("", fmt.Errorf("the row has %d fields: want %d, %s", len(r.record), r.width,
				strings.Join(columns, ", ")))
		}
		return io.EOF
	}
	return r
}

// each calls add for every remaining row until an error that cannot be skipped.
func (r *rows) each(add func()) error {
	for {
		err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			if add(); r.err != nil {
				err = r.wrap(r.field, r.err)
				r.field, r.err = "", nil
			}
		}
		switch {
		case err == nil:
		case r.skip == nil || slices.ContainsFunc(r.record, func(f string) bool { return strings.Contains(f, "\n") }):
			return err // a multi-line field has consumed rows that would not be counted
		default:
			r.skip(err)
		}
	}
}

// text returns a field of the current row without surrounding spaces, or "" if the table has no such column.
func (r *rows) text(column string) string {
	i, ok := r.index[column]
	if !ok {
		return ""
	}
	return strings.TrimSpace(r.record[i])
}

// refuse records err, if not nil, for a field of the current row. Only the first error is kept.
func (r *rows) refuse(field string, err error) {
	if r.err == nil {
		r.field, r.err = field, err
	}
}

// parsed returns a parsed field of the current row, or the zero value if the row has an error.
func parsed[T any](r *rows, column string, parse func(string) (T, error)) (v T) {
	if r.err != nil {
		return v
	}
	v, err := parse(r.text(column))
	r.refuse(column, err)
	return v
}

// given is like parsed for an optional field. It returns otherwise if the field is empty or missing.
func given[T any](r *rows, column string, otherwise T, parse func(string) (T, error)) T {
	if r.text(column) == "" {
		return otherwise
	}
	return parsed(r, column, parse)
}

// wrap returns an error for the current row; an empty field refers to the whole row.
func (r *rows) wrap(field string, err error) error {
	return &grid.RowError{File: r.file, Line: r.line, Field: field, Err: err}
}

// number parses a decimal number. It rejects NaN, infinities and overflows.
func number(text string) (float64, error) {
	if text == "" {
		return 0, errors.New("is empty: want a number")
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is not a finite number", text)
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

// positive wraps parse and rejects zero.
func positive[T comparable](parse func(string) (T, error)) func(string) (T, error) {
	return func(text string) (v T, err error) {
		var zero T
		if v, err = parse(text); err == nil && v == zero {
			err = fmt.Errorf("%q must be more than 0", text)
		}
		return v, err
	}
}

// inUnit wraps parse for a column with an implied unit.
func inUnit(unit string, parse func(string) (int64, error)) func(string) (int64, error) {
	return func(text string) (int64, error) {
		if _, err := notNegative(text); err != nil {
			return 0, err
		}
		v, err := parse(text + unit)
		if err != nil {
			err = errors.New(strings.Replace(err.Error(), strconv.Quote(text+unit), strconv.Quote(text), 1))
		}
		return v, err
	}
}
