package report

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/google/renameio/v2"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// WriteDir writes the figures as SVG and PNG, their data, and summary.json into dir, and returns the paths. It
// renders everything before it writes the first file, and replaces each file atomically, so that an error does not
// leave incomplete files.
func WriteDir(dir string, r *Report, results []*sim.Result) (paths []string, err error) {
	files, err := rendered(map[string]func(io.Writer) error{
		"summary.json":  func(w io.Writer) error { return WriteJSON(w, r) },
		"summary.csv":   r.Sheet().CSV,
		"decisions.csv": decisions(results).CSV,
		"timeline.csv":  timeline(results).CSV,
		"nodes.csv":     cellTable(results).CSV,
		"holds.csv":     holdTable(results).CSV,
	})
	if err != nil {
		return nil, err
	}
	drawAll(plots(results), files)
	return replaceAll(dir, files)
}

// rendered returns the contents of files without figures. JSON refuses numbers that cannot be drawn, so figures are
// drawn afterwards.
func rendered(all map[string]func(io.Writer) error) (files map[string][]byte, err error) {
	files = map[string][]byte{}
	for name, write := range all {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
		files[name] = b.Bytes()
	}
	return files, nil
}

// replaceAll writes all files under temporary names before it renames them, so that a full disk does not leave a
// mixture of two reports.
func replaceAll(dir string, files map[string][]byte) (paths []string, err error) {
	defer func() {
		if err != nil {
			paths, err = nil, fmt.Errorf("writing results: %w", err)
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var staged []*renameio.PendingFile
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return nil, fmt.Errorf("%s is a directory", path)
		}
		f, err := renameio.NewPendingFile(path, renameio.WithStaticPermissions(0o644), renameio.WithTempDir(dir))
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Cleanup() }() // no-op after a successful rename
		if _, err := f.Write(files[name]); err != nil {
			return nil, err
		}
		staged, paths = append(staged, f), append(paths, path)
	}
	for _, f := range staged {
		if err := f.CloseAtomicallyReplace(); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// DecisionsID is the first column of decisions.csv. No other table has it.
const DecisionsID = "JobID"

// decisions lists every job of every run. Energy and emissions are the estimated increase at placement. The idle
// power of nodes that were awake anyway belongs to no job, so the sums are below the totals.
func decisions(results []*sim.Result) *Table {
	t := Sheet(DecisionsID, "Strategy", "Submitted", "HeldUntil", "Released", "Started", "Finished", "AssignedNode",
		"MarginalEnergyJ", "MarginalEmissionsG", "Reason", "EmptyNodes")
	t.Columns[8].Exact = func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }
	t.Columns[9].Exact = func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
	for _, r := range results {
		for i := range r.Outcomes {
			o, j := &r.Outcomes[i], &r.Scenario.Jobs[i]
			reason := o.Placed.Reason
			if o.Held() {
				reason = o.Hold.Reason.Kind
			}
			why := reason.String()
			if reason == sched.NoOpinion { // the job was observed elsewhere, and the reason is unknown
				why = ""
			}
			t.Add(j.ID, r.Strategy, j.Submitted, o.HeldUntil(), o.Released, o.Start, o.Finish, o.Placed.Node,
				float64(o.Placed.Cost.Energy), float64(o.Placed.Cost.Carbon), why, emptyNodes(r))
		}
	}
	return t
}

func emptyNodes(r *sim.Result) string {
	if r.Scenario.Sleeps() {
		return sim.EmptyNodesSleep
	}
	return sim.EmptyNodesIdle
}
