package signal

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/kube/api/v1alpha1"
)

// maxFile is that of a year of 5-minute values of some zones.
const maxFile = 64 << 20

// file is a CSV file in the folder of data. It is read again when it was written to. What it says does not age, but is of
// use only as long as it says something about now.
type file struct {
	spec     *v1alpha1.FileSource
	folder   string
	zone     grid.Zone
	quantity quantity
	marginal bool

	signal  grid.Signal
	changed time.Time
	size    int64
}

func newFile(zone grid.Zone, spec *v1alpha1.FileSource, q quantity, folder string) (Source, error) {
	if folder == "" {
		return nil, refuse(ReasonAddress, "this controller has no folder of data")
	}
	if spec.Zone != "" {
		zone = grid.Zone(spec.Zone)
	}
	return &file{spec: spec, folder: folder, zone: zone, quantity: q, marginal: spec.Signal == signalMarginal}, nil
}

func (*file) Name() string { return "file" }

func (s *file) Fetch(_ context.Context, now time.Time) (Answer, error) {
	if err := s.read(); err != nil {
		return Answer{}, err
	}
	series := s.signal.Series
	a := Answer{Zone: s.zone, Asked: s.zone, Step: series.Step(), Ageless: true, Marginal: s.marginal}
	from, until := now.Add(-historySpan), now.Add(buildAhead)
	first := max(0, int(from.Sub(series.Start())/series.Step()))
	for i := first; i < series.Len(); i++ {
		t := series.Start().Add(time.Duration(i) * series.Step())
		if !t.Before(until) {
			break
		}
		a.Points = append(a.Points, Point{Time: t, Value: series.Value(i), Estimated: s.signal.Quality == energy.Estimated})
	}
	return a, nil
}

// read reads the file if it is another one than before, without leaving the folder, through links or otherwise.
func (s *file) read() error {
	root, err := os.OpenRoot(s.folder)
	if err != nil {
		return refuse(ReasonAddress, "opening the folder of data: %w", noPath(err))
	}
	defer root.Close()
	info, err := root.Stat(s.spec.Path) // before it is opened, which would wait for the writer of a pipe
	switch {
	case errors.Is(err, os.ErrNotExist):
		return refuse(ReasonMissing, "there is no file %q in the folder of data", s.spec.Path)
	case err != nil:
		return refuse(ReasonAddress, "file %q: %w", s.spec.Path, noPath(err))
	case !info.Mode().IsRegular():
		return refuse(ReasonShape, "%q is no file", s.spec.Path)
	case info.Size() > maxFile:
		return refuse(ReasonSize, "file %q has %d bytes: want at most %d", s.spec.Path, info.Size(), maxFile)
	case s.signal.Series != nil && info.ModTime().Equal(s.changed) && info.Size() == s.size:
		return nil
	}
	f, err := root.Open(s.spec.Path)
	if err != nil {
		return refuse(ReasonAddress, "file %q: %w", s.spec.Path, noPath(err))
	}
	defer f.Close()
	text, err := grid.ReadText(f, maxFile)
	if err != nil {
		return refuse(ReasonSize, "reading file %q: %w", s.spec.Path, noPath(err))
	}
	signal, _, err := grid.ParseCSV(s.spec.Path, text, grid.CSVOptions{Column: s.spec.Column, Zone: s.zone, Price: s.quantity == price})
	if err != nil {
		reason := ReasonShape
		if row, ok := errors.AsType[*grid.RowError](err); ok {
			switch row.Field {
			case "zone":
				reason = ReasonZone
			case "time":
				reason = ReasonTime
			}
		}
		return &Error{Reason: reason, Err: err}
	}
	s.signal, s.changed, s.size = signal, info.ModTime(), info.Size()
	return nil
}
