// Package workload reads and writes traces of jobs and lists of nodes, and generates synthetic ones.
//
// It only provides the input of package sched and makes no decisions. A file is read completely or not at all:
// every error contains the file, line and field, and no reader returns a partial trace.
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
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// NoDelayGiven is the allowed delay of a job if its trace contains none. It distinguishes a missing value from an
// explicit zero. Callers replace it; a job with this value must not be delayed.
const NoDelayGiven time.Duration = -1

// format describes the conversion of the rows of a file to jobs.
type format struct {
	name string
	// required and optional are the columns of a table with a header. If comment is set, the file has no header and
	// the columns are in this order.
	required, optional []string
	comment            byte
	more               bool   // rows without a header may have additional columns, the same number in all rows
	id                 string // the column with the job IDs, if any
	wide               bool   // the header determines the separator, and may contain other columns
	ordered            bool   // the order of the rows is preserved
	dated              bool   // times are absolute, independent of the start
	add                func(t *Trace, row *rows, start time.Time)
}

// formats contains the formats supported by [Load].
var formats = []format{
	ours, ecsched, swf, alibaba, openb, gaia(formatGAIA, 0), gaia(formatGAIAHours, time.Hour),
	gaia(formatGAIASeconds, time.Second), surf, sacct,
}

// Formats returns the names of the formats supported by [Load].
func Formats() []string { return sliceutil.Map(formats, func(f format) string { return f.name }) }

func (f *format) open(file string, text []byte) (*rows, error) {
	if f.comment != 0 {
		return newLines(file, text, f.required, f.comment, f.more), nil
	}
	r, err := newRows(file, text, f.required, f.optional, f.wide)
	if err != nil && f.wide {
		err = fmt.Errorf("%w (want the output of sacct --parsable2 with its header)", err)
	}
	return r, err
}

// Trace contains the jobs of a file.
type Trace struct {
	Format string
	Dated  bool        // the trace contains absolute submission times
	Jobs   []sched.Job // sorted by submission time, or in the order of the rows for formats that preserve it
	// Use is the fraction of its cores that a job uses, by index of Jobs. If it is nil, all jobs use all of their
	// cores.
	Use     []float64
	Skipped []Skipped // skipped rows, by reason
	// Repeated is the number of jobs without a given run time that start or end in the hour that occurs twice when
	// clocks are put back. The first occurrence is assumed if it is possible.
	Repeated int
}

// Skipped counts expected rows of a trace that do not describe a job to run, e.g. jobs that were cancelled before
// they started. Invalid rows are errors instead.
type Skipped struct {
	Why   string
	Count int
}

// skip counts a skipped row, unless it has an error.
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

// Options specifies how to read a trace.
type Options struct {
	Format  string    // if empty, determined from the first line of the file
	Start   time.Time // reference time of relative times
	Zone    string    // time zone of local times, e.g. Europe/Berlin; if empty, local times are errors; only in sacct
	SkipBad bool      // skip and count invalid rows instead of returning the first error
}

// CheckFormat returns an error if [Load] does not support the format.
func CheckFormat(format string) error {
	if format != "" && !slices.Contains(Formats(), format) {
		return fmt.Errorf("unknown workload format %q: have %s", format, strings.Join(Formats(), ", "))
	}
	return nil
}

// Load reads a trace, optionally compressed with gzip. All rows must be valid.
func Load(path, format string, start time.Time) (*Trace, error) {
	return LoadWith(path, Options{Format: format, Start: start})
}

// LoadWith reads a trace, optionally compressed with gzip.
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
		return nil, &grid.RowError{File: path, Err: fmt.Errorf("the file has no jobs to run: all "+
			"rows were skipped: %s", t.Skipped[0].Why)}
	case len(t.Jobs) == 0:
		return nil, &grid.RowError{File: path, Err: errors.New("the file has no jobs")}
	}
	if !f.ordered {
		t.Jobs = bySubmission(t.Jobs)
	}
	return t, nil
}

// read adds the jobs of all rows and ensures that their IDs are unique.
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
	if o.Zone != "" {
		if row.zone, err = time.LoadLocation(o.Zone); err != nil {
			return fmt.Errorf("unknown time zone %q: want a name such as UTC or Europe/Berlin", o.Zone)
		}
	}
	good := *t // result of the previous rows
	if o.SkipBad {
		first := ""
		row.skip = func(wrong error) {
			*t = good
			first = cmp.Or(first, "invalid, the first one in "+inLine(wrong))
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

// inLine formats the error of a row without the name of the file.
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

// bySubmission returns jobs sorted by submission time, preserving the order of jobs submitted at the same time.
// Jobs are large, so each is moved only once.
func bySubmission(jobs []sched.Job) []sched.Job {
	order := sliceutil.Order(len(jobs), func(a, b int) int { return jobs[a].Submitted.Compare(jobs[b].Submitted) })
	if slices.IsSorted(order) {
		return jobs
	}
	return sliceutil.Map(order, func(k int) sched.Job { return jobs[k] })
}

// LeftOut returns notes on skipped rows, and on ambiguous times and unlikely numbers.
func (t *Trace) LeftOut() (lines []string) {
	for _, s := range t.Skipped {
		lines = append(lines, fmt.Sprintf("skipped %s: %s", humanize.Count(s.Count, "row"), s.Why))
	}
	lines = append(lines, t.doubts()...)
	if t.Repeated > 0 {
		lines = append(lines, fmt.Sprintf("assumed the first occurrence of ambiguous local times of %d jobs: clocks "+
			"are put back, so add the column Elapsed, or run sacct with SLURM_TIME_FORMAT=%%s", t.Repeated))
	}
	return lines
}

// headers maps columns that are unique to a format. Alibaba's tables also have a submit_time and must come first.
var headers = []struct{ column, format string }{
	{alibabaInstances, alibaba.name},
	{columnSubmit, ours.name},
	{gaiaArrival, formatGAIA},
	{surfSubmit, surf.name},
	{openbMilliGPU, openb.name},
}

// firstLine returns the first line that is neither blank nor a comment, and its comma-separated fields.
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

// guess determines the format from the first line: a header contains commas, ECSched has five numbers, and SWF has
// at least eighteen columns that start with numbers, or comments that start with a semicolon. A header with the
// column JobID is from sacct. An unknown header is passed to our own reader and a row of more than five numbers to the
// SWF reader, because their errors are the most helpful.
func guess(text []byte) (string, error) {
	line, columns := firstLine(text)
	fields := strings.Fields(line)
	switch {
	case line == "":
		return "", errors.New("the file is empty")
	case line[0] == ';' || len(fields) > len(ecsched.required) && isNumbers(fields[:min(len(fields), len(swfColumns))]):
		return swf.name, nil
	case strings.Contains(strings.ToLower(line), "jobid"):
		return sacct.name, nil
	case len(columns) > 1:
		for _, h := range headers {
			if slices.Contains(columns, h.column) {
				return h.format, nil
			}
		}
		if name := unsupported(columns); name != "" {
			return "", fmt.Errorf("the file is %s; want %s, or csv with %s", name, strings.Join(Formats(), ", "),
				strings.Join(ours.required, ", "))
		}
		return ours.name, nil
	case isNumbers(fields):
		return ecsched.name, nil
	}
	return "", fmt.Errorf("the first line is neither a header nor a job of a known format: want %s; csv has columns "+
		"separated by commas: %s, and optionally %s", strings.Join(Formats(), ", "), strings.Join(ours.required, ", "),
		strings.Join(ours.optional, ", "))
}

// unsupported returns a description of a published table that is not supported, or an empty string.
func unsupported(columns []string) string {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(columns, name) })
	}
	switch {
	case has("Terminated", "Failed", "Running", "Waiting") || has("task_name", "instance_num"):
		return "a raw table of Alibaba's cluster-trace-v2018: only CloudSimPy's batch tasks are supported"
	case has("vmId", "vmid", "vmTypeId", "HashOwner", "vmcreated"):
		return "a table of Azure's public traces: only GAIA's conversion is supported"
	case has("collection_id", "collection_logical_name", "missing info", "missing_info", "missing_type"):
		return "a table of Google's cluster traces, which are not supported"
	case has(ours.required...):
		return ""
	}
	return "a table of unknown format"
}

func isNumbers(fields []string) bool {
	return len(fields) >= 2 && !slices.ContainsFunc(fields, func(f string) bool {
		_, err := number(f)
		return err != nil
	})
}

// ids ensures that job IDs are unique within a trace.
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
