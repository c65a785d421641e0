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
	"slices"
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

// sources contains the grids and traces of a data directory.
type sources struct{ grids, traces []source }

// readSources reads the manifest of a data directory, or that of the open data if the directory has none. Each line
// contains tab-separated values: the kind (grid or trace), the half (tuning or test), the zone or the name of the
// trace, the path of the file, and for grids the offset of local time from UTC in hours.
func readSources(dir string) (all sources, err error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = openData, nil
	}
	if err != nil {
		return all, err
	}
	lines := csv.NewReader(bytes.NewReader(text))
	lines.Comma, lines.Comment, lines.FieldsPerRecord = '\t', '#', -1
	rows, err := lines.ReadAll()
	if err != nil {
		return all, fmt.Errorf("reading %s: %w", manifestName, err)
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
			return all, fmt.Errorf("%s, row %d: want tuning or test, and an offset in hours", manifestName, i+1)
		case row[0] == "grid":
			all.grids = append(all.grids, s)
		case row[0] == "trace":
			all.traces = append(all.traces, s)
		default:
			return all, fmt.Errorf("%s, row %d: unknown kind %q", manifestName, i+1, row[0])
		}
	}
	return all, nil
}

// of returns the sources of a half.
func (all sources) of(half string) sources {
	other := func(s source) bool { return s.half != half }
	return sources{
		slices.DeleteFunc(slices.Clone(all.grids), other), slices.DeleteFunc(slices.Clone(all.traces), other),
	}
}

// A cache reads each file once.
type cache struct {
	grids  map[source]grid.Signal
	traces map[string][]sched.Job
}

func (c *cache) grid(s source) (grid.Signal, error) {
	if signal, known := c.grids[s]; known {
		return signal, nil
	}
	signal, _, err := grid.ReadCSV(s.path,
		grid.CSVOptions{Zone: grid.Zone(s.name), Fill: 3 * time.Hour, Every: time.Hour})
	if err != nil {
		return signal, err
	}
	c.grids[s] = signal
	return signal, nil
}

// epoch is the reference time of traces with relative times.
var epoch = time.Date(2022, 1, 3, 0, 0, 0, 0, time.UTC)

func (c *cache) trace(s source) ([]sched.Job, error) {
	if jobs, known := c.traces[s.path]; known {
		return jobs, nil
	}
	trace, err := workload.LoadWith(s.path, workload.Options{Start: epoch, SkipBad: true})
	if err != nil {
		return nil, err
	}
	for _, note := range trace.LeftOut() {
		fmt.Fprintf(os.Stderr, "field: %s: %s\n", s.path, note)
	}
	for i := range trace.Jobs {
		j := &trace.Jobs[i]
		j.ID = strings.Join([]string{s.name, j.ID}, "/")
		j.Scaling, j.Sites, j.FinishBy, j.Request.GPU = nil, nil, time.Time{}, 0
	}
	c.traces[s.path] = trace.Jobs
	return trace.Jobs, nil
}
