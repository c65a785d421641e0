package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/workload"
)

//go:embed field.tsv
var openData []byte

const manifestName = "field.tsv"

// A source is a grid zone or a trace.
type source struct {
	half   string        // tuning or test
	name   string        // of a zone or trace
	path   string        // of the file
	offset time.Duration // of local time from UTC, for grids
}

// Sources contains the grids and traces of a half. Each file is read once.
type Sources struct {
	grids, traces []source
	signals       map[source]grid.Signal
	jobs          map[string][]sched.Job // by path
}

// ReadSources reads the manifest of a data directory, or that of the open data if the directory has none, and returns
// the sources of a half. Each line contains tab-separated values: the kind (grid or trace), the half (tuning or
// test), the zone or the name of the trace, the path of the file, and for grids the offset of local time from UTC in
// hours.
func ReadSources(dir, half string) (*Sources, error) {
	all := &Sources{signals: map[source]grid.Signal{}, jobs: map[string][]sched.Job{}}
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = openData, nil
	}
	if err != nil {
		return nil, err
	}
	lines := csv.NewReader(bytes.NewReader(text))
	lines.Comma, lines.Comment, lines.FieldsPerRecord = '\t', '#', -1
	rows, err := lines.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", manifestName, err)
	}
	for i, row := range rows {
		row = append(row, "", "", "", "") // optional columns
		hours, err := strconv.ParseFloat(cmp.Or(row[4], "0"), 64)
		s := source{
			half: row[1], name: row[2], path: filepath.Join(dir, row[3]),
			offset: time.Duration(hours * float64(time.Hour)),
		}
		switch {
		case err != nil || s.half != "tuning" && s.half != "test":
			return nil, fmt.Errorf("%s, row %d: want tuning or test, and an offset in hours", manifestName, i+1)
		case row[0] != "grid" && row[0] != "trace":
			return nil, fmt.Errorf("%s, row %d: unknown kind %q", manifestName, i+1, row[0])
		case s.half != half:
		case row[0] == "grid":
			all.grids = append(all.grids, s)
		default:
			all.traces = append(all.traces, s)
		}
	}
	if len(all.grids) == 0 || len(all.traces) == 0 {
		return nil, fmt.Errorf("no grids or no traces of the half %q in %s", half, dir)
	}
	return all, nil
}

func (s *Sources) grid(of source) (grid.Signal, error) {
	if signal, known := s.signals[of]; known {
		return signal, nil
	}
	signal, _, err := grid.ReadCSV(of.path,
		grid.CSVOptions{Zone: grid.Zone(of.name), Fill: 3 * time.Hour, Every: time.Hour})
	if err != nil {
		return signal, err
	}
	s.signals[of] = signal
	return signal, nil
}

// epoch is the reference time of traces with relative times.
var epoch = time.Date(2022, 1, 3, 0, 0, 0, 0, time.UTC)

func (s *Sources) trace(of source) ([]sched.Job, error) {
	if jobs, known := s.jobs[of.path]; known {
		return jobs, nil
	}
	trace, err := workload.LoadWith(of.path, workload.Options{Start: epoch, SkipBad: true})
	if err != nil {
		return nil, err
	}
	for _, note := range trace.LeftOut() {
		fmt.Fprintf(os.Stderr, "field: %s: %s\n", of.path, note)
	}
	for i := range trace.Jobs {
		j := &trace.Jobs[i]
		j.ID = strings.Join([]string{of.name, j.ID}, "/")
		j.Scaling, j.Sites, j.FinishBy, j.Request.GPU = nil, nil, time.Time{}, 0
	}
	s.jobs[of.path] = trace.Jobs
	return trace.Jobs, nil
}
