// Package workload reads and writes traces of jobs and lists of nodes, and makes synthetic ones.
//
// It fills in what package sched plans on and decides nothing. A file is read whole or not at all: every error names
// file, line and field, and no reader returns part of a trace.
package workload

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
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
	more               bool   // rows without a header may have further columns, all rows alike
	id                 string // the column that the IDs of jobs are taken from, if any is
	ordered            bool   // the order of jobs is the user's own
	dated              bool   // times are those of a calendar, whatever the start
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
		return newLines(file, text, f.required, f.comment, f.more), nil
	}
	return newRows(file, text, f.required, f.optional)
}

// Trace is what a file says of jobs.
type Trace struct {
	Format string
	Dated  bool        // it says itself when its jobs were submitted
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

// skip counts a row that is left out, unless something is wrong with it, too.
func (t *Trace) skip(row *rows, why string) {
	if row.err != nil {
		return
	}
	i := slices.IndexFunc(t.Skipped, func(s Skipped) bool { return s.Why == why })
	if i < 0 {
		i, t.Skipped = len(t.Skipped), append(t.Skipped, Skipped{Why: why})
	}
	t.Skipped[i].Count++
}

// Options say how a trace is read.
type Options struct {
	Format  string    // "": the first line of the file says which it is
	Start   time.Time // times that a trace gives in seconds count from it
	SkipBad bool      // rows that are wrong are left out and counted; else the first one is an error
}

// CheckFormat refuses a format that [Load] does not know.
func CheckFormat(format string) error {
	if format != "" && !slices.Contains(Formats(), format) {
		return fmt.Errorf("unknown workload format %q: have %s", format, strings.Join(Formats(), ", "))
	}
	return nil
}

// Load reads a trace, gzip or not, of which every row is to be right.
func Load(path, format string, start time.Time) (*Trace, error) {
	return LoadWith(path, Options{Format: format, Start: start})
}

// LoadWith reads a trace, gzip or not.
func LoadWith(path string, o Options) (*Trace, error) {
	format := o.Format
	if err := CheckFormat(format); err != nil {
		return nil, err
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
	f := formats[slices.Index(Formats(), format)]
	t := &Trace{Format: format, Dated: f.dated}
	err = t.read(path, text, f, &o)
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
func (t *Trace) read(file string, text []byte, f format, o *Options) (err error) {
	if f.name == formatGAIA {
		if f, err = gaiaByLength(file, text, o.SkipBad); err != nil {
			return err
		}
	}
	row, err := f.open(file, text)
	if err != nil {
		return err
	}
	good := *t // what the rows before have added
	if o.SkipBad {
		first := ""
		row.skip = func(wrong error) {
			*t = good
			first = cmp.Or(first, "wrong, the first one in "+inLine(wrong))
			t.skip(row, first)
			good = *t
		}
	}
	seen := ids{}
	return row.each(func() {
		before := len(t.Jobs)
		f.add(t, row, o.Start)
		for i := before; row.err == nil && i < len(t.Jobs); i++ {
			row.refuse(f.id, seen.add(t.Jobs[i].ID))
		}
		if row.err == nil {
			good = *t
		}
	})
}

// inLine says what is wrong with a row, without the name of the file.
func inLine(wrong error) string {
	row, ok := errors.AsType[*grid.RowError](wrong)
	switch {
	case !ok:
		return wrong.Error()
	case row.Field == "":
		return fmt.Sprintf("line %d: %v", row.Line, row.Err)
	}
	return fmt.Sprintf("line %d: %s: %v", row.Line, row.Field, row.Err)
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

// LeftOut says in lines which rows of a file were left out, and why.
func (t *Trace) LeftOut() (lines []string) {
	for _, s := range t.Skipped {
		rows := "rows"
		if s.Count == 1 {
			rows = "row"
		}
		lines = append(lines, fmt.Sprintf("left out %d %s: %s", s.Count, rows, s.Why))
	}
	return lines
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

// guess tells the format from the first line: a header has commas, ECSched has five numbers and SWF eighteen or more
// columns, the first of them numbers, or comments that begin with a semicolon. A header that no other format has is
// best explained by our own reader, and a row of more than five numbers by that of SWF.
func guess(text []byte) (string, error) {
	line, columns := firstLine(text)
	fields := strings.Fields(line)
	switch {
	case line == "":
		return "", errors.New("the file is empty")
	case line[0] == ';' || len(fields) > len(ecsched.required) && isNumbers(fields[:min(len(fields), len(swfColumns))]):
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
	return len(fields) >= 2 && !slices.ContainsFunc(fields, func(f string) bool {
		_, err := number(f)
		return err != nil
	})
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
