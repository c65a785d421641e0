package jsonscan

import (
	"encoding/json"
	"fmt"
	"io"
)

// A Stream decodes a large JSON document value by value, so that only one value has to fit in memory.
type Stream struct {
	*json.Decoder
	from        io.Reader
	read, limit int64
}

// NewStream returns a decoder that fails if a value is larger than limit bytes.
func NewStream(from io.Reader, limit int64) *Stream {
	s := &Stream{from: from, limit: limit}
	s.Decoder = json.NewDecoder(s)
	return s
}

// Read implements [io.Reader]. The decoder does not read beyond the end of the current value.
func (s *Stream) Read(p []byte) (n int, err error) {
	left := s.InputOffset() + s.limit - s.read
	if left <= 0 {
		return 0, fmt.Errorf("a value is larger than %d KiB", s.limit>>10)
	}
	n, err = s.from.Read(p[:min(int64(len(p)), left)])
	s.read += int64(n)
	return n, err
}

// Each calls next for each key of an object or for each element of an array. It treats null as empty.
func (s *Stream) Each(open json.Delim, next func() error) error {
	first, err := s.Token()
	switch {
	case err != nil || first == nil:
		return err
	case first != open:
		return fmt.Errorf("want %v, have %v", open, first)
	}
	for s.More() {
		if err := next(); err != nil {
			return err
		}
	}
	_, err = s.Token() // the decoder verifies the closing delimiter
	return err
}
