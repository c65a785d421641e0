package meter

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/kubenergy/kubenergy/energy"
)

// A sample is one line of Prometheus' text format. It is valid until the next one is read.
type sample struct {
	name   []byte
	labels []label
	value  []byte
}

type label struct {
	name, value []byte
}

// label returns the value of a label.
func (s *sample) label(name string) string {
	for _, l := range s.labels {
		if string(l.name) == name {
			return string(l.value)
		}
	}
	return ""
}

const (
	maxMetrics = 4 << 20 // of one answer: a page with 10,000 processes has less
	maxLine    = 32 << 10
	maxLabels  = 64
)

var errMetricsTooLong = fmt.Errorf("the answer is longer than %d bytes", maxMetrics)

// eachSample calls f with the samples whose names wanted accepts. Other lines, which may be any bytes of any length,
// are skipped; so is a last line without an end, which may have been cut. Bad lines of wanted names are skipped and
// reported.
func eachSample(r io.Reader, wanted func(name []byte) bool, f func(*sample) error) error {
	limited := &io.LimitedReader{R: r, N: maxMetrics + 1}
	lines := bufio.NewReaderSize(limited, maxLine)
	var s sample
	var bad error
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if err = skipLine(lines); err == nil {
				continue
			}
		case err == nil:
			if name := nameOf(line); wanted(name) {
				if err := parseSample(line[:len(line)-1], &s); err != nil {
					bad = fmt.Errorf("reading %.64q: %w", name, err)
				} else if err := f(&s); err != nil {
					bad = fmt.Errorf("reading %.64q: %w", name, err)
				}
			}
			continue
		}
		switch {
		case limited.N <= 0:
			return errMetricsTooLong
		case !errors.Is(err, io.EOF):
			return err
		}
		return bad
	}
}

func skipLine(lines *bufio.Reader) error {
	for {
		if _, err := lines.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// nameOf returns what a line begins with, up to its labels or its value.
func nameOf(line []byte) []byte {
	for i, c := range line {
		if c == '{' || c == ' ' || c == '\t' || c == '\n' {
			return line[:i]
		}
	}
	return line
}

var (
	errLabels = errors.New("its labels cannot be read")
	errValue  = errors.New("its value cannot be read")
)

// parseSample reads a line without its end. It overwrites the line where a label's value has escapes.
func parseSample(line []byte, s *sample) error {
	s.name, s.labels, s.value = nameOf(line), s.labels[:0], nil
	rest := bytes.TrimLeft(line[len(s.name):], " \t")
	if len(rest) > 0 && rest[0] == '{' {
		var err error
		if rest, err = s.parseLabels(rest[1:]); err != nil {
			return err
		}
	}
	fields := bytes.Fields(rest)
	if len(fields) == 0 || len(fields) > 2 { // a value and, perhaps, a time
		return errValue
	}
	s.value = fields[0]
	return nil
}

// parseLabels reads labels behind their opening brace and returns what follows the closing one.
func (s *sample) parseLabels(rest []byte) ([]byte, error) {
	for {
		rest = bytes.TrimLeft(rest, " \t,")
		if len(rest) > 0 && rest[0] == '}' {
			return rest[1:], nil
		}
		name, quoted, ok := bytes.Cut(rest, []byte(`="`))
		if !ok || len(s.labels) == maxLabels {
			return nil, errLabels
		}
		value, after, ok := unquote(quoted)
		if !ok {
			return nil, errLabels
		}
		s.labels = append(s.labels, label{name: bytes.TrimSpace(name), value: value})
		rest = after
	}
}

// unquote returns the text up to the closing quote, and what follows it. It removes escapes in place.
func unquote(text []byte) (value, rest []byte, ok bool) {
	n := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch c {
		case '"':
			return text[:n], text[i+1:], true
		case '\\':
			if i++; i == len(text) {
				return nil, nil, false
			}
			if c = text[i]; c == 'n' {
				c = '\n'
			}
		}
		text[n] = c
		n++
	}
	return nil, nil, false
}

// microjoules reads the value of a counter in microjoules, or in joules. Whole microjoules are exact.
func (s *sample) microjoules(perUnit uint64) (uint64, error) {
	if perUnit == 1 {
		if v, err := parseUint(s.value); err == nil && v <= math.MaxInt64 {
			return v, nil
		}
	}
	v, err := strconv.ParseFloat(string(s.value), 64)
	if err != nil || !(v >= 0) {
		return 0, errValue
	}
	u := (energy.Joules(v) * energy.Joules(float64(perUnit)/1e6)).Microjoules()
	if u == math.MaxInt64 {
		return 0, errValue
	}
	return uint64(u), nil
}
