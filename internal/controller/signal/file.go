package signal

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/controller/past"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// maxFile is the maximum file size in bytes. It is sufficient for one year of 5-minute values of a zone, or of
// hourly values of many zones, and limits the memory usage.
const maxFile = 8 << 20

// fileSlack is the additional time range that is kept in memory, so that the file is read about once a day.
const fileSlack = 24 * time.Hour

// file is a CSV file in the data directory. It is read again when it has changed, and once a day because only the
// values of the current time range are kept in memory. Its values do not age, but they must cover the current time.
// They count as estimated, because their origin is unknown.
type file struct {
	terms
	data dataFile
	spec *v1alpha1.FileSource

	signal      grid.Signal
	from, until time.Time // time range of signal
}

func newFile(w terms, spec *v1alpha1.FileSource, folder string) (Source, error) {
	data, err := newDataFile(folder, spec.Path, maxFile)
	if err != nil {
		return nil, err
	}
	w.zone = cmp.Or(grid.Zone(spec.Zone), w.zone)
	return &file{terms: w, data: data, spec: spec}, nil
}

func (s *file) Fetch(_ context.Context, now time.Time) (Answer, error) {
	from, until := now.Add(-historySpan), now.Add(buildAhead)
	if err := s.read(from, until); err != nil {
		return Answer{}, err
	}
	series := s.signal.Series
	a := Answer{Step: series.Step(), Ageless: true}
	if wanted := series.Between(from, until); wanted != nil {
		a.Points = pointsIn(wanted, true)
	}
	return a, nil
}

// Past implements [pastSource] with the hourly means of the file.
func (s *file) Past(_ context.Context, now time.Time) (points []Point, err error) {
	err = s.data.read(true, func(text []byte) error {
		signal, err := s.parse(text, now.Add(-past.ArchiveSpan), now)
		if err != nil {
			return err
		}
		hourly := past.HourlyMeans(signal.Series.Start(), signal.Series.End(), func(hour time.Time) (float64, bool) {
			end := hour.Add(time.Hour)
			if !signal.Series.Covers(hour, end) {
				return 0, false
			}
			return signal.Series.Mean(hour, end), true
		})
		if hourly != nil {
			points = pointsIn(hourly, true)
		}
		return nil
	})
	return points, err
}

// read reads the file if it has changed or if the cached values do not cover the given range.
func (s *file) read(from, until time.Time) error {
	kept := s.signal.Series != nil && !from.Before(s.from) && !until.After(s.until)
	return s.data.read(!kept, func(text []byte) error {
		from, until = from.Add(-fileSlack), until.Add(fileSlack)
		signal, err := s.parse(text, from, until)
		if err != nil {
			return err
		}
		s.signal, s.from, s.until = signal, from, until
		return nil
	})
}

func (s *file) parse(text []byte, from, until time.Time) (grid.Signal, error) {
	signal, _, err := grid.ParseCSV(s.spec.Path, text, grid.CSVOptions{
		Column: s.spec.Column, Zone: s.zone, Price: s.quantity == price, Currency: s.currency, From: from, Until: until,
	})
	if err != nil {
		return signal, &dial.Error{Reason: reasonOfRow(err), Err: err}
	}
	return signal, nil
}

// reasonOfRow returns the reason for rejecting a file.
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
