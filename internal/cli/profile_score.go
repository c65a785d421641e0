package cli

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
)

// score compares profiles with the measured machines of a file. It does not access a cluster.
func (f *profileFlags) score(t cmdutil.Terminal, catalogue *hardware.Catalog) error {
	since, err := time.Parse("2006-01", f.since)
	if f.since != "" && err != nil {
		return cmdutil.UsageErrorf("--since is %q: want a month, e.g. 2021-06", f.since)
	}
	text, err := grid.ReadFile(f.results)
	if err != nil {
		return cmdutil.NewUsageError(err)
	}
	results, err := hardware.ReadResults(text)
	if err != nil {
		return cmdutil.UsageErrorf("%s: %w", f.results, err)
	}
	results = slices.DeleteFunc(results, func(r hardware.Result) bool { return r.Published.Before(since) })
	if len(results) == 0 {
		return errors.New("the file contains no results, or no results since the month given by --since")
	}
	return t.Print((*profileScore)(new(catalogue.Score(results))), f.output.Value)
}

type profileScore hardware.Score

const worst = 10 // maximum number of rows in the text output

// Text returns the errors by kind of profile and the results with the largest errors.
func (s *profileScore) Text(bool, bool) string {
	of := report.Heads(6, "PROFILES BY", "RESULTS", "IDLE MEDIAN", "IDLE P90", "FULL MEDIAN", "FULL P90")
	for _, e := range s.Errors {
		of.Add(e.Basis, e.Results, whole(e.IdleMedian), whole(e.IdleP90), whole(e.FullMedian), whole(e.FullP90))
	}
	far := s.Sheet()
	far.Rows = far.Rows[:min(worst, len(far.Rows)-s.Unknown)]
	return fmt.Sprintf("%s, %d (%s) with unknown CPU. Absolute errors of the others:\n%s\n"+
		"Largest errors at full load:\n%s", humanize.Count(s.Results, "result"), s.Unknown,
		whole(float64(s.Unknown)/float64(s.Results)), of.Plain(), far.Plain())
}

func whole(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// Sheet returns the table for the CSV format. Results are sorted by error in descending order, followed by unknown
// ones.
func (s *profileScore) Sheet() *report.Table {
	signed := func(v float64) string { return fmt.Sprintf("%+.0f %%", 100*v) }
	watts := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	t := &report.Table{Columns: []report.Column{
		{Name: "CPU", Field: "cpu", Words: true},
		{Name: "PROFILE BY", Field: "basis", Words: true},
		{Name: "SOCKETS", Field: "sockets"},
		{Name: "THREADS", Field: "threads"},
		{Name: "GB", Field: "memoryGB"},
		{Name: "IDLE W", Field: "idleWatts", Show: watts},
		{Name: "PROFILE", Field: "profileIdleWatts", Show: watts},
		{Name: "ERROR", Field: "idleErrorRatio", Show: signed},
		{Name: "FULL W", Field: "fullWatts", Show: watts},
		{Name: "PROFILE", Field: "profileFullWatts", Show: watts},
		{Name: "ERROR", Field: "fullErrorRatio", Show: signed},
	}}
	for _, r := range s.Rows {
		cells := []any{
			r.CPU, r.Basis, int(r.Sockets), int(r.Threads), r.MemoryGB, float64(r.Idle), float64(r.ProfileIdle),
			r.IdleError, float64(r.Full), float64(r.ProfileFull), r.FullError,
		}
		if r.Basis == "" {
			cells[6], cells[7], cells[9], cells[10] = nil, nil, nil, nil
		}
		t.Add(cells...)
	}
	return t
}
