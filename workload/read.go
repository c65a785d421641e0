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

// The formats of traces, as [Load] and its callers name them.
const (
	formatCSV         = "csv"
	formatECSched     = "ecsched"
	formatSWF         = "swf"
	formatAlibaba     = "alibaba"
	formatOpenB       = "openb"
	formatGAIA        = "gaia"
	formatGAIAHours   = "gaia-hours"
	formatGAIASeconds = "gaia-seconds"
	formatSURF        = "surf"
)

// Formats lists the formats that [Load] knows.
func Formats() []string {
	return []string{
		formatCSV, formatECSched, formatSWF, formatAlibaba, formatOpenB, formatGAIA, formatGAIAHours, formatGAIASeconds,
		formatSURF,
	}
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
	for i := range t.Skipped {
		if t.Skipped[i].Why == why {
			t.Skipped[i].Count++
			return
		}
	}
	t.Skipped = append(t.Skipped, Skipped{why, 1})
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
	return parse(path, text, format, start)
}

func parse(file string, text []byte, format string, start time.Time) (*Trace, error) {
	if format == "" {
		var err error
		if format, err = guess(text); err != nil {
			return nil, &grid.RowError{File: file, Err: err}
		}
	}
	t := &Trace{Format: format}
	err := t.read(file, text, start)
	switch {
	case err != nil:
		return nil, err
	case len(t.Jobs) == 0 && len(t.Skipped) > 0:
		return nil, &grid.RowError{File: file, Err: fmt.Errorf("the file has no jobs to run: all %s", t.Skipped[0].Why)}
	case len(t.Jobs) == 0:
		return nil, &grid.RowError{File: file, Err: errors.New("the file has no jobs")}
	}
	if format != formatCSV && format != formatECSched { // whose order is the user's own
		t.Jobs = bySubmission(t.Jobs)
	}
	return t, nil
}

func (t *Trace) read(file string, text []byte, start time.Time) (err error) {
	switch t.Format {
	case formatCSV:
		err = t.readCSV(file, text, start)
	case formatECSched:
		t.Jobs, err = readECSched(file, text, start)
	case formatSWF:
		err = t.readSWF(file, text, start)
	case formatAlibaba:
		err = t.readAlibaba(file, text, start)
	case formatOpenB:
		err = t.readOpenB(file, text, start)
	case formatGAIA, formatGAIAHours, formatGAIASeconds:
		err = t.readGAIA(file, text, start)
	case formatSURF:
		err = t.readSURF(file, text, start)
	}
	return err
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

// headers are columns that no other format has.
var headers = []struct{ column, format string }{
	{columnSubmit, formatCSV},
	{"arrival_time", formatGAIA},
	{"submit_unix_ms", formatSURF},
	{"gpu_milli", formatOpenB},
}

// guess tells the format from the first line that is no comment: a header has commas, ECSched has five numbers and SWF
// eighteen, or comments that begin with a semicolon.
func guess(text []byte) (string, error) {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		fields := strings.Fields(string(line))
		switch {
		case len(line) == 0 || line[0] == '#':
			continue
		case line[0] == ';' || len(fields) == len(swfColumns) && isNumbers(fields):
			return formatSWF, nil
		case bytes.ContainsRune(line, ','):
			return guessTable(string(line)), nil
		case isNumbers(fields):
			return formatECSched, nil
		}
		return "", fmt.Errorf("the first line is neither a header nor a job of a known format: want %s",
			strings.Join(Formats(), ", "))
	}
	return "", errors.New("the file is empty")
}

// guessTable tells the format of a table from its header; what it does not know, our own reader explains best.
func guessTable(header string) string {
	columns := strings.Split(header, ",")
	for i := range columns {
		columns[i] = strings.Trim(columns[i], " \"")
	}
	if slices.Contains(columns, "instances_num") { // which has a submit_time as well
		return formatAlibaba
	}
	for _, h := range headers {
		if slices.Contains(columns, h.column) {
			return h.format
		}
	}
	return formatCSV
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
