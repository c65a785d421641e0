package signal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// tariff is a time-of-use tariff, which is known for all times.
type tariff struct {
	grid.Tariff
}

func newTariff(spec *v1alpha1.TariffSource, currency, folder string) (Source, error) {
	if spec.File != "" {
		return newTariffFile(spec, currency, folder)
	}
	t, err := NewTariff(spec, currency)
	if err != nil {
		return nil, dial.Refuse(dial.ReasonShape, "%w", err)
	}
	return &tariff{t}, nil
}

// tariffFile is a tariff in a file with pricing schedules of Compute Gardener. The file is read again when it has
// changed.
type tariffFile struct {
	tariff

	data     dataFile
	spec     *v1alpha1.TariffSource
	currency string
}

func newTariffFile(spec *v1alpha1.TariffSource, currency, folder string) (Source, error) {
	if spec.Price != nil || len(spec.Schedules) > 0 {
		return nil, dial.Refuse(dial.ReasonShape, "want either a file or a price and schedules, not both")
	}
	data, err := newDataFile(folder, spec.File, maxSchedulesFile)
	if err != nil {
		return nil, err
	}
	return &tariffFile{data: data, spec: spec, currency: currency}, nil
}

func (s *tariffFile) Fetch(ctx context.Context, now time.Time) (Answer, error) {
	err := s.data.read(false, func(text []byte) error {
		spec, err := ReadPricingSchedules(text, s.currency)
		if err != nil {
			return dial.Refuse(dial.ReasonShape, "file %q: %w", s.spec.File, err)
		}
		spec.Holidays = s.spec.Holidays
		t, err := NewTariff(spec, s.currency)
		if err != nil {
			return dial.Refuse(dial.ReasonShape, "file %q: %w", s.spec.File, err)
		}
		s.Tariff = t
		return nil
	})
	if err != nil {
		return Answer{}, err
	}
	return s.tariff.Fetch(ctx, now)
}

func (s *tariff) Fetch(_ context.Context, now time.Time) (Answer, error) {
	series, err := s.Series(now, now.Add(buildAhead), time.Hour)
	if err != nil {
		return Answer{}, dial.Refuse(dial.ReasonShape, "%w", err)
	}
	return Answer{Step: series.Step(), Ageless: true, Points: pointsIn(series, false)}, nil
}

// NewTariff validates a tariff and converts it for price queries in the given currency.
func NewTariff(spec *v1alpha1.TariffSource, currency string) (grid.Tariff, error) {
	if spec.Price == nil {
		return grid.Tariff{}, errors.New("price is missing: want the price outside of all schedules")
	}
	t := grid.Tariff{Price: grid.Price(*spec.Price), Currency: currency}
	var errs []error
	for i, s := range spec.Schedules {
		zone := cmp.Or(s.TimeZone, spec.TimeZone)
		schedule, err := newSchedule(s, zone)
		if err != nil {
			errs = append(errs, fmt.Errorf("schedules[%d]: %w", i, err))
		}
		t.Schedules = append(t.Schedules, schedule)
	}
	var err error
	if t.Holiday, err = holidays(spec.Holidays); err != nil {
		errs = append(errs, fmt.Errorf("holidays: %w", err))
	}
	if len(errs) == 0 {
		errs = append(errs, t.Validate())
	}
	return t, errors.Join(errs...)
}

func newSchedule(s v1alpha1.TariffSchedule, zone string) (grid.Schedule, error) {
	schedule := grid.Schedule{Price: grid.Price(s.Price)}
	var err error
	if schedule.Days, err = grid.ParseWeekdays(s.Days); err != nil {
		return schedule, fmt.Errorf("days: %w", err)
	}
	if schedule.Months, err = grid.ParseMonths(s.Months); err != nil {
		return schedule, fmt.Errorf("months: %w", err)
	}
	if schedule.Start, err = grid.ParseClock(s.Start); err != nil {
		return schedule, fmt.Errorf("start: %w", err)
	}
	if schedule.End, err = grid.ParseClock(s.End); err != nil {
		return schedule, fmt.Errorf("end: %w", err)
	}
	if zone == "Local" { // would depend on the machine
		return schedule, errors.New(`timeZone: "Local" is not an IANA time zone: want a name such as Europe/Berlin`)
	}
	if schedule.Location, err = time.LoadLocation(zone); err != nil {
		return schedule, fmt.Errorf("timeZone: %q is not an IANA time zone: want a name such as Europe/Berlin", zone)
	}
	return schedule, nil
}

type pricingSchedule struct {
	Name        string   `json:"name"`
	DayOfWeek   string   `json:"dayOfWeek"`
	StartTime   string   `json:"startTime"`
	EndTime     string   `json:"endTime"`
	TimeZone    string   `json:"timezone"`
	PeakRate    *float64 `json:"peakRate"`
	OffPeakRate *float64 `json:"offPeakRate"`
}

const (
	maxSchedules     = 64 // in a GridZone
	maxSchedulesFile = 1 << 20
)

// ReadPricingSchedules converts a file with pricing schedules of Compute Gardener to a tariff with the documented
// semantics. The peak rate of a schedule applies on its days from its start to its end, which may be on the next
// day, and the off-peak rate applies otherwise. A minute in the peak of any schedule is a peak. Schedules with
// different prices for the same time are an error, and so are undocumented fields.
func ReadPricingSchedules(data []byte, currency string) (*v1alpha1.TariffSource, error) {
	var file struct {
		Schedules []pricingSchedule `json:"schedules"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, fmt.Errorf("reading pricing schedules: %w", err)
	}
	if len(file.Schedules) == 0 {
		return nil, errors.New("reading pricing schedules: the list schedules is empty")
	}
	weeks := make([]pricedWeek, len(file.Schedules))
	var errs []error
	for i, s := range file.Schedules {
		var err error
		if weeks[i], err = s.week(); err != nil {
			errs = append(errs, fmt.Errorf("schedules[%d]: %w", i, err))
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("reading pricing schedules: %w", errors.Join(errs...))
	}
	for i := range weeks {
		for j := range i {
			if err := weeks[j].contradicts(&weeks[i]); err != nil {
				errs = append(errs, fmt.Errorf("schedules[%d] and schedules[%d]: %w", j, i, err))
			}
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("reading pricing schedules: %w", errors.Join(errs...))
	}
	return tariffOf(weeks, currency)
}

// tariffOf converts schedules without contradictions to a tariff. It contains the peaks, followed by the off-peak
// rates of each day if they differ.
func tariffOf(weeks []pricedWeek, currency string) (*v1alpha1.TariffSource, error) {
	t := &v1alpha1.TariffSource{Price: &weeks[0].offPeak, TimeZone: weeks[0].zone}
	own := func(zone string) string {
		if zone == t.TimeZone {
			return ""
		}
		return zone
	}
	var covered grid.Weekdays
	same := true
	for _, w := range weeks {
		t.Schedules = append(t.Schedules, v1alpha1.TariffSchedule{
			Days: w.text.DayOfWeek, Start: w.text.StartTime, End: w.text.EndTime, Price: w.peak, TimeZone: own(w.zone),
		})
		covered |= w.days
		same = same && w.offPeak == *t.Price
	}
	if !same {
		if covered != allDays {
			return nil, errors.New("reading pricing schedules: the off-peak rates differ, but some days of the week " +
				"are in no schedule, so their rate is unknown")
		}
		for _, w := range weeks {
			t.Schedules = append(t.Schedules, v1alpha1.TariffSchedule{
				Days: w.text.DayOfWeek, Start: "00:00", End: "24:00", Price: w.offPeak, TimeZone: own(w.zone),
			})
		}
		t.Schedules = slices.Compact(t.Schedules)
	}
	if len(t.Schedules) > maxSchedules {
		return nil, fmt.Errorf("reading pricing schedules: the tariff has %d schedules, want at most %d",
			len(t.Schedules), maxSchedules)
	}
	if _, err := NewTariff(t, currency); err != nil {
		return nil, fmt.Errorf("reading pricing schedules: %w", err)
	}
	return t, nil
}

const (
	allDays     = grid.Weekdays(1<<7 - 1)
	weekMinutes = 7 * int(grid.EndOfDay)
)

// pricedWeek is a validated pricing schedule with the minutes of the week in its peak.
type pricedWeek struct {
	text          pricingSchedule
	days          grid.Weekdays
	zone          string
	peak, offPeak float64
	minutes       [weekMinutes]bool
}

func (s pricingSchedule) week() (w pricedWeek, err error) {
	w = pricedWeek{text: s, zone: s.TimeZone}
	w.zone = cmp.Or(w.zone, "UTC")
	if s.DayOfWeek == "" {
		return w, errors.New(`dayOfWeek is missing: want days such as "1-5"`)
	}
	if w.days, err = grid.ParseWeekdays(s.DayOfWeek); err != nil {
		return w, fmt.Errorf("dayOfWeek: %w", err)
	}
	start, err := grid.ParseClock(s.StartTime)
	if err != nil || start == grid.EndOfDay {
		return w, fmt.Errorf("startTime: %q is not a time of day: want 00:00 to 23:59", s.StartTime)
	}
	end, err := grid.ParseClock(s.EndTime)
	if err != nil {
		return w, fmt.Errorf("endTime: %w", err)
	}
	if start == end {
		return w, fmt.Errorf("startTime and endTime are both %v, want different times", start)
	}
	if s.PeakRate == nil || s.OffPeakRate == nil {
		return w, errors.New("peakRate or offPeakRate is missing, want both")
	}
	w.peak, w.offPeak = *s.PeakRate, *s.OffPeakRate
	if end < start {
		end += grid.EndOfDay
	}
	for day := range time.Weekday(7) {
		for m := start; m < end && w.days.Has(day); m++ {
			w.minutes[(int(day)*int(grid.EndOfDay)+int(m))%weekMinutes] = true
		}
	}
	return w, nil
}

// contradicts returns an error if two schedules define different prices for the same time.
func (w *pricedWeek) contradicts(other *pricedWeek) error {
	if w.zone != other.zone && (w.peak != other.peak || w.offPeak != other.offPeak) {
		return fmt.Errorf(
			"the time zones %s and %s differ, and so do the rates: want the same time zone or the same rates",
			w.zone, other.zone)
	}
	if shared := w.days & other.days; shared != 0 && w.offPeak != other.offPeak {
		return fmt.Errorf("the off-peak rates for the same day are %v and %v", w.offPeak, other.offPeak)
	}
	if w.peak == other.peak {
		return nil
	}
	for m := range w.minutes {
		if w.minutes[m] && other.minutes[m] {
			at := grid.Clock(m % int(grid.EndOfDay))
			return fmt.Errorf("both have a peak on %v at %v with different rates: %v and %v",
				time.Weekday(m/int(grid.EndOfDay)), at, w.peak, other.peak)
		}
	}
	return nil
}
