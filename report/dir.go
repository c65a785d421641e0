package report

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/sim"
)

// WriteDir writes decisions.csv, summary.json and plots into dir, and returns the paths. Everything is made before the
// first file is touched, and each file is replaced by rename, so that an error leaves nothing half-written.
func WriteDir(dir string, r *Report, results []*sim.Result) (paths []string, err error) {
	files, err := plots(results)
	if err != nil {
		return nil, fmt.Errorf("drawing plots: %w", err)
	}
	var summary bytes.Buffer
	if err := writeJSON(&summary, r); err != nil {
		return nil, fmt.Errorf("writing the summary: %w", err)
	}
	files["summary.json"] = summary.Bytes()
	if files["decisions.csv"], err = decisions(results); err != nil {
		return nil, fmt.Errorf("writing decisions: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("writing results: %w", err)
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	if paths, err = replaceAll(dir, names, files); err != nil {
		return nil, fmt.Errorf("writing results: %w", err)
	}
	return paths, nil
}

// replaceAll writes all files beside their final names first, so that a full disk leaves no mixture of two reports.
func replaceAll(dir string, names []string, files map[string][]byte) (paths []string, err error) {
	staged := make([]string, 0, len(names))
	defer func() {
		for _, path := range staged {
			_ = os.Remove(path) // gone already if all went well
		}
	}()
	for _, name := range names {
		path, err := stage(dir, files[name])
		if err != nil {
			return nil, err
		}
		staged = append(staged, path)
	}
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
			return nil, fmt.Errorf("%s is a directory", filepath.Join(dir, name))
		}
	}
	for i, name := range names {
		path := filepath.Join(dir, name)
		if err := os.Rename(staged[i], path); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// stage writes content into a file of its own in dir.
func stage(dir string, content []byte) (path string, err error) {
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		_ = os.Remove(f.Name()) // what went wrong before tells more
		return "", err
	}
	return f.Name(), nil
}

// decisions lists every job of every run. Energy and emissions are what the job was estimated to add when it was
// placed; the idle power of nodes that were awake anyway is nobody's, so the sums are below the totals.
func decisions(results []*sim.Result) ([]byte, error) {
	var b bytes.Buffer
	out := csv.NewWriter(&b)
	rows := [][]string{{
		"JobID", "Strategy", "Submitted", "HeldUntil", "Released", "Started", "Finished", "AssignedNode",
		"MarginalEnergyJ", "MarginalEmissionsG", "Reason",
	}}
	for _, r := range results {
		for i := range r.Outcomes {
			o, j := &r.Outcomes[i], &r.Scenario.Jobs[i]
			reason := o.Placed.Reason
			if o.Held() {
				reason = o.Hold.Reason.Kind
			}
			why := reason.String()
			if reason == sched.NoOpinion { // observed elsewhere: the reason is not known here
				why = ""
			}
			rows = append(rows, []string{
				j.ID, r.Strategy, stamp(j.Submitted), stamp(o.HeldUntil()), stamp(o.Released), stamp(o.Start),
				stamp(o.Finish), o.Placed.Node,
				strconv.FormatFloat(float64(o.Placed.Cost.Energy), 'f', 0, 64),
				strconv.FormatFloat(float64(o.Placed.Cost.Carbon), 'f', 3, 64), why,
			})
		}
	}
	if err := out.WriteAll(rows); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
