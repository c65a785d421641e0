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

// A sample is one line of Prometheus' text format.
type sample struct {
	name   string
	labels map[string]string
	value  string
}

const (
	maxMetrics = 4 << 20 // of one answer: a page with 10,000 processes has less
	maxLine    = 32 << 10
)

var errMetricsTooLong = fmt.Errorf("the answer is longer than %d bytes", maxMetrics)

// eachSample calls f with the samples whose names wanted accepts. Other lines, which may be any bytes of any length,
// are skipped; so is a last line without an end, which may have been cut. Bad lines of wanted names are skipped and
// reported. The page is read as a stream: most of its lines are of no use here.
func eachSample(r io.Reader, wanted func(name string) bool, f func(*sample) error) error {
	limited := &io.LimitedReader{R: r, N: maxMetrics + 1}
	lines := bufio.NewReaderSize(limited, maxLine)
	var bad error
	for within := false; ; { // a line that is too long
		line, err := lines.ReadSlice('\n')
		if name := nameOf(line); err == nil && !within && wanted(string(name)) {
			if err := useSample(string(line), f); err != nil {
				bad = fmt.Errorf("reading %.64q: %w", name, err)
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
			return bad
		}
	}
}

// nameOf returns what a line begins with, up to its labels or its value.
func nameOf(line []byte) []byte {
	if end := bytes.IndexAny(line, "{ \t\n"); end >= 0 {
		return line[:end]
	}
	return line
}

var (
	errLabels = errors.New("its labels cannot be read")
	errValue  = errors.New("its value cannot be read")

	// a name, its labels, its value and, perhaps, a time
	sampleLine = regexp.MustCompile(`^([^{\s]+)[ \t]*(?:\{(.*)\})?[ \t]*(\S*)(?:[ \t]+\S+)?\s*$`)
	labelPair  = regexp.MustCompile(`[ \t,]*([^={},"]+)="((?:[^"\\]|\\.)*)"`)
	unescape   = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")
)

func useSample(line string, f func(*sample) error) error {
	parts := sampleLine.FindStringSubmatch(line)
	switch {
	case parts == nil && strings.Contains(line, "{"):
		return errLabels
	case parts == nil || parts[3] == "":
		return errValue
	}
	s := sample{name: parts[1], labels: map[string]string{}, value: parts[3]}
	for _, pair := range labelPair.FindAllStringSubmatch(parts[2], -1) {
		s.labels[strings.TrimSpace(pair[1])] = unescape.Replace(pair[2])
	}
	if rest := labelPair.ReplaceAllLiteralString(parts[2], ""); strings.Trim(rest, " \t,") != "" {
		return errLabels
	}
	return f(&s)
}

// microjoules reads the value of a counter in microjoules, or in joules. Whole microjoules are exact.
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
