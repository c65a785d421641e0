package signal

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// maxFile is that of a year of 5-minute values of a zone, or of hours of many. The controller is to get by with
// little memory.
const maxFile = 8 << 20

// fileSlack is for how long what was kept of a file suffices.
const fileSlack = 24 * time.Hour

// file is a CSV file in the folder of data. It is read again when it was written to, and once a day: of a file of a
// year only what is of use now is kept. What it says does not age, but is of use only as long as it says something
// about now.
type file struct {
	terms
	data dataFile
	spec *v1alpha1.FileSource

	signal      grid.Signal
	from, until time.Time // what was kept of it
}

func newFile(w terms, spec *v1alpha1.FileSource, folder string) (Source, error) {
	data, err := newDataFile(folder, spec.Path, maxFile)
	if err != nil {
		return nil, err
	}
	w.zone, w.marginal = cmp.Or(grid.Zone(spec.Zone), w.zone), spec.Signal == signalMarginal
	return &file{terms: w, data: data, spec: spec}, nil
}

func (s *file) Fetch(_ context.Context, now time.Time) (Answer, error) {
	from, until := now.Add(-historySpan), now.Add(buildAhead)
	if err := s.read(from, until); err != nil {
		return Answer{}, err
	}
	series := s.signal.Series
	a := Answer{Step: series.Step(), Ageless: true, Marginal: s.marginal}
	if wanted := series.Between(from, until); wanted != nil {
		a.Points = pointsIn(wanted, s.signal.Quality == energy.Estimated)
	}
	return a, nil
}

// read reads the file if it is another one than before, or if more of it is needed than was kept.
func (s *file) read(from, until time.Time) error {
	kept := s.signal.Series != nil && !from.Before(s.from) && !until.After(s.until)
	return s.data.read(!kept, func(text []byte) error {
		from, until = from.Add(-fileSlack), until.Add(fileSlack)
		signal, _, err := grid.ParseCSV(s.spec.Path, text, grid.CSVOptions{
			Column: s.spec.Column, Zone: s.zone, Price: s.quantity == price, Currency: s.currency, From: from,
			Until: until,
		})
		if err != nil {
			return &dial.Error{Reason: reasonOfRow(err), Err: err}
		}
		s.signal, s.from, s.until = signal, from, until
		return nil
	})
}

// reasonOfRow returns why a file of values was not believed.
func reasonOfRow(err error) dial.Reason {
	if errors.Is(err, grid.ErrOutside) {
		return dial.ReasonMissing
	}
	if row, ok := errors.AsType[*grid.RowError](err); ok {
		switch {
		case row.Option == grid.OptionZone:
			return dial.ReasonZone
		case row.Field == "time":
			return dial.ReasonTime
		}
	}
	return dial.ReasonShape
}
