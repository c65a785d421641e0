package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/hack/resume"
)

// A record is the last outcome of a part on any machine, for a commit.
type record struct {
	day, commit string
	verdict     string
	seconds     float64
	detail      string
}

// records contains the last outcome of each part that is not a fuzz target. They are committed, because the state of a
// night is bound to the code and to the machine.
type records map[string]record

var recordsFile = filepath.Join("docs", "measurements", "nightly.tsv")

const recordsHead = "part\tday\tcommit\tverdict\tseconds\tdetail\n"

// readRecords reads the records from a file. It returns none if the file does not exist.
func readRecords(name string) (records, error) {
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := records{}
	for line := range strings.Lines(strings.TrimPrefix(string(text), recordsHead)) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(f) != 6 {
			return nil, fmt.Errorf("%s: %q does not have six columns", name, line)
		}
		seconds, err := strconv.ParseFloat(f[4], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[f[0]] = record{f[1], f[2], f[3], seconds, f[5]}
	}
	return all, nil
}

// add records an outcome and writes all records to a file.
func (all records) add(name, part, commit string, o outcome) error {
	detail := strings.Join(strings.Fields(o.Detail), " ")
	all[part] = record{time.Now().UTC().Format(time.DateOnly), commit, o.Verdict, o.Seconds, detail}
	var b bytes.Buffer
	b.WriteString(recordsHead)
	for _, part := range slices.Sorted(maps.Keys(all)) {
		r := all[part]
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%.0f\t%s\n", part, r.day, r.commit, r.verdict, r.seconds, r.detail)
	}
	return resume.Replace(name, b.Bytes())
}

// order sorts parts by the day of their last outcome, starting with those without any.
func (all records) order(parts []part) {
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(all[a.name].day, all[b.name].day) })
}
