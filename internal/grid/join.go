package grid

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// ReadFiles is like [ReadCSV] for consecutive files of one zone. A name may be a glob pattern, e.g. DE_202?.csv.
func ReadFiles(o CSVOptions, names ...string) (Signal, Zone, error) {
	var parts []part
	var zone Zone
	for _, path := range Files(names...) {
		signal, z, err := ReadCSV(path, o)
		if err != nil {
			return Signal{}, "", err
		}
		if len(parts) > 0 && z != zone {
			return Signal{}, "", fmt.Errorf("%s has zone %q, but %s has zone %q", path, z, parts[0].path, zone)
		}
		zone = z
		parts = append(parts, part{path, signal})
	}
	slices.SortStableFunc(parts, func(a, b part) int { return a.Series.Start().Compare(b.Series.Start()) })
	signal, err := join(o, parts)
	return signal, zone, err
}

// Files expands file names and glob patterns. The name of an existing file is not expanded. A pattern without
// matches is returned unchanged, so that reading it results in an error.
func Files(names ...string) (paths []string) {
	for _, name := range names {
		found, _ := filepath.Glob(name)
		if _, err := os.Lstat(name); err == nil || len(found) == 0 {
			found = []string{name}
		}
		paths = append(paths, found...)
	}
	return paths
}

// part is the content of one of several files.
type part struct {
	path string
	Signal
}

// join concatenates parts, which must be sorted by start. The result has the smallest of their steps.
func join(o CSVOptions, parts []part) (Signal, error) {
	joined := parts[0].Signal
	if len(parts) == 1 {
		return joined, nil
	}
	step := joined.Series.Step()
	for _, p := range parts {
		step = min(step, p.Series.Step())
	}
	var values []float64
	for i, p := range parts {
		ratio := p.Series.Step() / step
		gap := time.Duration(0)
		if i > 0 {
			gap = p.Series.Start().Sub(parts[i-1].Series.End())
		}
		regular := p.Series.Step()%step == 0 && ratio <= maxRefinement
		if !regular || gap != 0 && !o.fills(gap, step) {
			err := &RowError{File: p.path, Err: fmt.Errorf("starting at %s with step %v, it does not follow %s, "+
				"ending at %s with step %v",
				p.Series.Start().Format(time.RFC3339), p.Series.Step(), parts[max(0, i-1)].path,
				parts[max(0, i-1)].Series.End().Format(time.RFC3339), step)}
			if regular && gap > 0 {
				err.Option = OptionFill
			}
			return Signal{}, err
		}
		joined.Quality = min(joined.Quality, p.Quality)
		if gap > 0 {
			values = append(values, o.between(values[len(values)-1], p.Series.Value(0), int(gap/step))...)
			joined.Quality = energy.Estimated
		}
		for _, v := range p.Series.values {
			values = append(values, slices.Repeat([]float64{v}, int(ratio))...)
		}
	}
	series, err := NewSeries(parts[0].Series.Start(), step, values)
	joined.Series = series
	return joined, err
}
