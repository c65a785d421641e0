// Package workload reads and writes traces of jobs and lists of nodes, and makes a synthetic demo.
//
// It fills in what package sched plans on and decides nothing. A file is read whole or not at all: every error names
// file, line and field, and no reader returns part of a trace.
package workload

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// NoDelayGiven is the allowed delay of a job whose trace gives none, so that a default can be told from an explicit
// zero. Whoever reads a trace replaces it; a job that still carries it may not be put off.
const NoDelayGiven time.Duration = -1

const (
	formatCSV     = "csv"
	formatECSched = "ecsched"
)

// Formats lists the formats that [Read] knows.
func Formats() []string { return []string{formatCSV, formatECSched} }

// Read reads a trace, gzip or not. Times that a trace gives in seconds count from start. An empty format means that the
// first line of the file says which it is.
func Read(path, format string, start time.Time) ([]sched.Job, error) {
	if format != "" && format != formatCSV && format != formatECSched {
		return nil, fmt.Errorf("unknown workload format %q: have %s", format, strings.Join(Formats(), ", "))
	}
	text, err := grid.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading workload: %w", err)
	}
	return parse(path, text, format, start)
}

func parse(file string, text []byte, format string, start time.Time) (jobs []sched.Job, err error) {
	if format == "" {
		if format, err = guess(text); err != nil {
			return nil, &grid.RowError{File: file, Err: err}
		}
	}
	if format == formatCSV {
		jobs, err = readCSV(file, text, start)
	} else {
		jobs, err = readECSched(file, text, start)
	}
	if err == nil && len(jobs) == 0 {
		err = &grid.RowError{File: file, Err: errors.New("the file has no jobs")}
	}
	return jobs, err
}

// guess tells the format from the first line that is no comment: a header has commas, ECSched has five numbers.
func guess(text []byte) (string, error) {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0 || line[0] == '#':
			continue
		case bytes.ContainsRune(line, ','):
			return formatCSV, nil
		case isNumbers(strings.Fields(string(line))):
			return formatECSched, nil
		}
		return "", fmt.Errorf("the first line is neither a header nor a job of a known format: want %s", strings.Join(Formats(), " or "))
	}
	return "", errors.New("the file is empty")
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
