// Package workload reads and writes traces of jobs and lists of nodes, and makes synthetic ones.
//
// It fills in what package sched plans on and decides nothing. A file is read whole or not at all: every error names
// file, line and field, and no reader returns part of a trace.
package workload

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// NoDelayGiven is the allowed delay of a job whose trace gives none, so that a default can be told from an explicit
// zero. Callers replace it; a job that still carries it may not be put off.
const NoDelayGiven time.Duration = -1

// format says how the rows of a file become jobs.
type format struct {
	name string
	// columns of a table with a header; where there is a comment sign: in this order, without a header
	required, optional []string
	comment            byte
	id                 string // the column that the IDs of jobs are taken from, if any is
	ordered            bool   // the order of jobs is the user's own
	add                func(t *Trace, row *rows, start time.Time)
}

// formats are those that [Load] knows.
var formats = []format{
	ours, ecsched, swf, alibaba, openb, gaia(formatGAIA, 0), gaia(formatGAIAHours, time.Hour),
	gaia(formatGAIASeconds, time.Second), surf,
}

// Formats lists the names of the formats that [Load] knows.
func Formats() (names []string) {
	for _, f := range formats {
		names = append(names, f.name)
	}
	return names
}

func (f *format) open(file string, text []byte) (*rows, error) {
	if f.comment != 0 {
		return newLines(file, text, f.required, f.comment), nil
	}
	return newRows(file, text, f.required, f.optional)
}

// Trace is what a file says of jobs.
type Trace struct {
	Format string
	Jobs   []sched.Job // by submission
	// by index of Jobs: the share of its cores that a job keeps busy; nil: all of them
	Use     []float64
	Skipped []Skipped // rows that are no jobs to run again, by what is the matter with them
}

// Skipped counts rows that a trace is known to have and that say nothing which could be run again, such as jobs that
// were cancelled before they ran. A row that is wrong is an error instead.
type Skipped struct {
	Why   string
	Count int
}

// skip counts a row that is left out.
func (t *Trace) skip(why string) {
	i := slices.IndexFunc(t.Skipped, func(s Skipped) bool { return s.Why == why })
	if i < 0 {
		i, t.Skipped = len(t.Skipped), append(t.Skipped, Skipped{Why: why})
	}
	t.Skipped[i].Count++
}

// Load reads a trace, gzip or not. Times that a trace gives in seconds count from start. An empty format means that the
// first line of the file says which it is.
func Load(path, format string, start time.Time) (*Trace, error) {
	if format != "" && !slices.Contains(Formats(), format) {
		return nil, fmt.Errorf("unknown workload format %q: have %s", format, strings.Join(Formats(), ", "))
	}
	text, err := grid.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading workload: %w", err)
	}
	if format == "" {
		if format, err = guess(text); err != nil {
			return nil, &grid.RowError{File: path, Err: err}
		}
	}
	t := &Trace{Format: format}
	f := formats[slices.Index(Formats(), format)]
	err = t.read(path, text, start, f)
	switch {
	case err != nil:
		return nil, err
	case len(t.Jobs) == 0 && len(t.Skipped) > 0:
		return nil, &grid.RowError{File: path, Err: fmt.Errorf("the file has no jobs to run: all %s", t.Skipped[0].Why)}
	case len(t.Jobs) == 0:
		return nil, &grid.RowError{File: path, Err: errors.New("the file has no jobs")}
	}
	if !f.ordered {
		t.Jobs = bySubmission(t.Jobs)
	}
	return t, nil
}

// read adds the jobs of all rows. Each has an ID of its own.
func (t *Trace) read(file string, text []byte, start time.Time, f format) (err error) {
	if f.name == formatGAIA {
		if f, err = gaiaByLength(file, text); err != nil {
			return err
		}
	}
	row, err := f.open(file, text)
	if err != nil {
		return err
	}
	seen := ids{}
	return row.each(func() {
		before := len(t.Jobs)
		f.add(t, row, start)
		for i := before; i < len(t.Jobs); i++ {
			row.refuse(f.id, seen.add(t.Jobs[i].ID))
		}
	})
}

// bySubmission returns jobs in order, those of one instant as they stood. Jobs are large, so that each is moved but
// once.
func bySubmission(jobs []sched.Job) []sched.Job {
	earlier := func(a, b *sched.Job) int { return a.Submitted.Compare(b.Submitted) }
	order := make([]*sched.Job, len(jobs))
	for i := range jobs {
		order[i] = &jobs[i]
	}
	if slices.IsSortedFunc(order, earlier) {
		return jobs
	}
	slices.SortStableFunc(order, earlier)
	sorted := make([]sched.Job, len(jobs))
	for i, j := range order {
		sorted[i] = *j
	}
	return sorted
}

// headers are columns that no other format has. Alibaba's tables have a submit_time as well, so they come first.
var headers = []struct{ column, format string }{
	{alibabaInstances, alibaba.name},
	{columnSubmit, ours.name},
	{gaiaArrival, formatGAIA},
	{surfSubmit, surf.name},
	{openbMilliGPU, openb.name},
}

// firstLine returns the first line that is neither blank nor a comment, and its fields by commas.
func firstLine(text []byte) (line string, columns []string) {
	for l := range bytes.Lines(text) {
		if line = string(bytes.TrimSpace(l)); line != "" && line[0] != '#' {
			columns = strings.Split(line, ",")
			for i := range columns {
				columns[i] = strings.Trim(columns[i], " \"")
			}
			return line, columns
		}
	}
	return "", nil
}

// guess tells the format from the first line: a header has commas, ECSched has five numbers and SWF eighteen, or
// comments that begin with a semicolon. A header that no other format has is best explained by our own reader.
func guess(text []byte) (string, error) {
	line, columns := firstLine(text)
	fields := strings.Fields(line)
	switch {
	case line == "":
		return "", errors.New("the file is empty")
	case line[0] == ';' || len(fields) == len(swfColumns) && isNumbers(fields):
		return swf.name, nil
	case len(columns) > 1:
		for _, h := range headers {
			if slices.Contains(columns, h.column) {
				return h.format, nil
			}
		}
		return ours.name, nil
	case isNumbers(fields):
		return ecsched.name, nil
	}
	return "", fmt.Errorf("the first line is neither a header nor a job of a known format: want %s",
		strings.Join(Formats(), ", "))
}

func isNumbers(fields []string) bool {
	if len(fields) < 2 {
		return false
	}
	for _, f := range fields {
		if _, err := number(f); err != nil {
			return false
		}
	}
	return true
}

// ids makes sure that every job of a trace has an ID of its own.
type ids map[string]bool

func (seen ids) add(id string) error {
	switch {
	case id == "":
		return errors.New("is empty")
	case seen[id]:
		return fmt.Errorf("%q is used twice", id)
	}
	seen[id] = true
	return nil
}
