package meter

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// sample is one line in the Prometheus text format.
type sample struct {
	name   string
	labels map[string]string
	value  string
}

const (
	maxMetrics = 4 << 20 // maximum size of a response; pages with 10,000 processes are smaller
	maxLine    = 32 << 10
)

var errMetricsTooLong = fmt.Errorf("response exceeds %d bytes", maxMetrics)

// eachSample calls f for each sample with a name accepted by wanted. It skips other lines, which may contain
// arbitrary bytes of any length, and a last line without a newline, which may be truncated. It calls invalid if a
// sample cannot be parsed, in which case it may have no labels, or if f returns an error. The response is parsed as a
// stream, because most lines are not needed.
func eachSample(r io.Reader, wanted func(name string) bool, f func(*sample) error, invalid func(*sample, error)) error {
	limited := &io.LimitedReader{R: r, N: maxMetrics + 1}
	lines := bufio.NewReaderSize(limited, maxLine)
	for within := false; ; { // within is true in the rest of a line that is too long
		line, err := lines.ReadSlice('\n')
		if name := nameOf(line); err == nil && !within && wanted(string(name)) {
			s, err := parseSample(string(line))
			if err == nil {
				err = f(s)
			}
			if err != nil {
				invalid(s, fmt.Errorf("parsing %.64q: %w", name, err))
			}
		}
		within = errors.Is(err, bufio.ErrBufferFull)
		switch {
		case err == nil || within:
		case limited.N <= 0:
			return errMetricsTooLong
		case !errors.Is(err, io.EOF):
			return err
		default:
			return nil
		}
	}
}

// nameOf returns the metric name at the start of a line.
func nameOf(line []byte) []byte {
	if end := bytes.IndexAny(line, "{ \t\n"); end >= 0 {
		return line[:end]
	}
	return line
}

var (
	errLabels = errors.New("invalid labels")
	errValue  = errors.New("invalid value")

	// name, labels, value and optional timestamp
	sampleLine = regexp.MustCompile(`^([^{\s]+)[ \t]*(?:\{(.*)\})?[ \t]*(\S*)(?:[ \t]+\S+)?\s*$`)
	labelPair  = regexp.MustCompile(`[ \t,]*([^={},"]+)="((?:[^"\\]|\\.)*)"`)
	unescape   = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")
)

// parseSample parses a line. If it returns an error, the sample has only a name.
func parseSample(line string) (*sample, error) {
	s := &sample{name: string(nameOf([]byte(line)))}
	parts := sampleLine.FindStringSubmatch(line)
	switch {
	case parts == nil && strings.Contains(line, "{"):
		return s, errLabels
	case parts == nil:
		return s, errValue
	}
	labels := map[string]string{}
	for _, pair := range labelPair.FindAllStringSubmatch(parts[2], -1) {
		labels[strings.TrimSpace(pair[1])] = unescape.Replace(pair[2])
	}
	if rest := labelPair.ReplaceAllLiteralString(parts[2], ""); strings.Trim(rest, " \t,") != "" {
		return s, errLabels
	}
	s.labels, s.value = labels, parts[3]
	if s.value == "" {
		return s, errValue
	}
	return s, nil
}

// microjoules converts the value of a counter to microjoules. perUnit is 1 for values in microjoules and 1e6 for
// joules. Integers in microjoules are exact.
func (s *sample) microjoules(perUnit uint64) (uint64, error) {
	if perUnit == 1 {
		if v, err := parseUint([]byte(s.value)); err == nil && v <= math.MaxInt64 {
			return v, nil
		}
	}
	v, err := strconv.ParseFloat(s.value, 64)
	if err != nil || !(v >= 0) {
		return 0, errValue
	}
	u := (energy.Joules(v) * energy.Joules(float64(perUnit)/1e6)).Microjoules()
	if u == math.MaxInt64 {
		return 0, errValue
	}
	return uint64(u), nil
}
