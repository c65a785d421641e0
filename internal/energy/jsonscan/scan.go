// Package jsonscan decodes untrusted JSON. The caller specifies the fields of each object and the maximum length of
// each array, so that memory is bounded by the caller and not by the input. It is stricter than encoding/json: it
// rejects duplicate keys in an object, and keys in another capitalization or with escapes, which other parsers might
// resolve differently.
package jsonscan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrTooMany is returned if an array is longer than its limit.
var ErrTooMany = errors.New("too many elements")

// A Scanner reads JSON. It retains the first error; afterwards its methods return meaningless values.
type Scanner struct {
	tokens *jsontext.Decoder
	err    error
}

// A Field is a key of an object and the function that reads its value. The field with the empty key, which must come
// last, reads the values of all other keys.
type Field[T any] struct {
	Key  string
	Read func(s *Scanner, to *T)
}

// Decode reads data, which must be a single JSON object.
func Decode[T any](data []byte, to *T, fields []Field[T]) error {
	// duplicate names are detected by Object
	s := Scanner{tokens: jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))}
	Object(&s, to, fields)
	if _, err := s.tokens.ReadToken(); s.err == nil && err != io.EOF {
		s.Check(errors.New("unexpected data after the value"))
	}
	return s.err
}

// Check records err, if any, as the error of the current value.
func (s *Scanner) Check(err error) {
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("at byte %d: %w", s.tokens.InputOffset(), err)
	}
}

// more reports whether the current object or array has another element.
func (s *Scanner) more() bool {
	kind := s.tokens.PeekKind()
	return s.err == nil && kind != '}' && kind != ']'
}

// token reads a token, which must be of one of the kinds.
func (s *Scanner) token(kinds ...jsontext.Kind) jsontext.Token {
	t, err := s.tokens.ReadToken()
	if err == nil && !slices.Contains(kinds, t.Kind()) {
		err = fmt.Errorf("got %s, want %s", t.Kind(), kinds[0])
	}
	s.Check(err)
	return t
}

// List reads an array of at most limit elements.
func List[T any](s *Scanner, limit int, read func(s *Scanner, to *T)) []T {
	all := []T{}
	for s.token('['); s.more(); {
		if len(all) == limit {
			s.Check(fmt.Errorf("%w: more than %d", ErrTooMany, limit))
			return nil
		}
		all = append(all, *new(T))
		read(s, &all[len(all)-1])
	}
	s.token(']')
	return all
}

// Object reads an object. A null value leaves its field unchanged.
func Object[T any](s *Scanner, to *T, fields []Field[T]) *T {
	seen := uint32(0)
	for s.token('{'); s.more(); {
		key := bytes.Trim(s.Skip(), `"`) // as written
		i := slices.IndexFunc(fields, func(f Field[T]) bool { return f.Key == "" || f.Key == string(key) })
		if i < 0 || seen&(1<<i) != 0 && fields[i].Key != "" {
			s.Check(fmt.Errorf("unknown or duplicate key %.40q", key))
			break
		}
		seen |= 1 << i
		if s.tokens.PeekKind() == 'n' {
			s.Skip() // treated as a missing key
		} else {
			fields[i].Read(s, to)
		}
	}
	s.token('}')
	return to
}

// Skip skips a value and returns its bytes, which are only valid until the next value is read.
func (s *Scanner) Skip() []byte {
	v, err := s.tokens.ReadValue()
	s.Check(err)
	return v
}

// Text reads a string.
func (s *Scanner) Text() string {
	t := s.token('"')
	return t.String()
}

// Time reads a time in RFC 3339.
func (s *Scanner) Time() (t time.Time) {
	s.Check(t.UnmarshalText([]byte(s.Text())))
	return t
}

// Signed reads a nonnegative integer. It accepts -0.
func (s *Scanner) Signed() int64 {
	v, err := strconv.ParseInt(string(s.Skip()), 10, 64)
	if s.Check(err); v < 0 {
		s.Check(errors.New("number is negative"))
	}
	return v
}

// Integer reads a nonnegative integer.
func (s *Scanner) Integer() uint64 {
	v, err := strconv.ParseUint(string(s.Skip()), 10, 64)
	s.Check(err)
	return v
}

// Bool reads true or false.
func (s *Scanner) Bool() bool { return s.token('t', 'f').Kind() == 't' }
