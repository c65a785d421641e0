package grid

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Tariff is a time-of-use price of electricity: the price of the first matching schedule, or Price if none matches.
// It depends on the local time: the hour that is repeated when daylight saving time ends has the same price both
// times, and the hour that is skipped in spring has no price.
type Tariff struct {
	Price     Price
	Schedules []Schedule
	Currency  string // ISO 4217 code, used to validate prices; if empty, any price is accepted
	// Holiday reports whether a day, given as its noon in a schedule's time zone, counts as a Sunday. It may be
	// nil.
	Holiday func(day time.Time) bool
}

// Schedule is a price at certain hours of certain days.
type Schedule struct {
	Days   Weekdays // 0: all
	Months Months   // 0: all
	Start  Clock
	// End is exclusive. If it is not after Start, it is on the next day and the schedule belongs to the day of
	// Start.
	End      Clock
	Location *time.Location
	Price    Price
}

// Clock is a local time of day in minutes: 0 to 24·60.
type Clock int

// EndOfDay is midnight at the end of a day.
const EndOfDay Clock = 24 * 60

// ParseClock parses HH:MM, from 00:00 to 24:00.
func ParseClock(text string) (Clock, error) {
	if text == "24:00" {
		return EndOfDay, nil
	}
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return 0, fmt.Errorf("%q is not a time of day: want HH:MM", text)
	}
	return Clock(60*t.Hour() + t.Minute()), nil
}

// String returns the time as HH:MM.
func (c Clock) String() string { return fmt.Sprintf("%02d:%02d", int(c)/60, int(c)%60) }

// Weekdays is a set of days of the week; bit 0 is Sunday.
type Weekdays uint8

// ParseWeekdays parses days and ranges of days, e.g. "1-5", "0,6" or "5-1". Both 0 and 7 are Sunday. An empty
// string means every day.
func ParseWeekdays(text string) (Weekdays, error) {
	var set Weekdays
	err := parseSet(text, 0, 7, func(d int) { set |= 1 << (d % 7) })
	return set, err
}

// Has reports whether the set contains the day. The empty set contains all days.
func (w Weekdays) Has(d time.Weekday) bool { return w == 0 || w>>uint(d)&1 == 1 }

// Months is a set of months; bit 1 is January.
type Months uint16

// ParseMonths parses months and ranges of months, e.g. "6-9", "1,2,11-12" or "11-2". An empty string means every
// month.
func ParseMonths(text string) (Months, error) {
	var set Months
	err := parseSet(text, 1, 12, func(m int) { set |= 1 << m })
	return set, err
}

// Has reports whether the set contains the month. The empty set contains all months.
func (s Months) Has(m time.Month) bool { return s == 0 || s>>uint(m)&1 == 1 }

// parseSet calls add for every number in a list of numbers and ranges. A range may wrap around, e.g. from Friday to
// Monday.
func parseSet(text string, least, most int, add func(int)) error {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errFirst := parseMember(first, least, most)
		b, errLast := parseMember(last, least, most)
		if errFirst != nil || errLast != nil {
			return fmt.Errorf("%q is neither a number from %d to %d nor a range of them", part, least, most)
		}
		if b < a && b == 0 {
			b = most // 5-0 ends on Sunday, which is also 7
		}
		for i := a; i != b; i = i%most + 1 { // 7 is Sunday and is followed by Monday
			add(i)
		}
		add(b)
	}
	return nil
}

func parseMember(text string, least, most int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || int(n) < least || int(n) > most {
		return 0, fmt.Errorf("%q is not a number from %d to %d", text, least, most)
	}
	return int(n), nil
}

// Validate returns an error if the tariff is invalid. The other methods require a valid tariff.
func (t *Tariff) Validate() error {
	errs := []error{t.checkPrice(t.Price)}
	for i, s := range t.Schedules {
		err := s.validate()
		if err == nil {
			err = t.checkPrice(s.Price)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("schedule %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func (s Schedule) validate() error {
	switch {
	case s.Location == nil:
		return errors.New("no time zone")
	case s.Start < 0 || s.Start >= EndOfDay:
		return fmt.Errorf("start is %v: want 00:00 to 23:59", s.Start)
	case s.End < 0 || s.End > EndOfDay:
		return fmt.Errorf("end is %v: want 00:00 to 24:00", s.End)
	}
	return nil
}

func (t *Tariff) checkPrice(p Price) error {
	if math.IsNaN(float64(p)) || math.IsInf(float64(p), 0) {
		return fmt.Errorf("price is %v: want a finite number", float64(p))
	}
	if most := MaxPriceOf(t.Currency); t.Currency != "" && math.Abs(float64(p)) > float64(most) {
		return fmt.Errorf("price is %v: want at most %v %s per kWh", float64(p), float64(most), t.Currency)
	}
	return nil
}

// At returns the price at the given time.
func (t *Tariff) At(at time.Time) Price {
	var wall time.Time
	for _, s := range t.Schedules {
		if wall.IsZero() || wall.Location() != s.Location {
			wall = at.In(s.Location)
		}
		if s.matches(wall, t.Holiday) {
			return s.Price
		}
	}
	return t.Price
}

// matches reports whether the schedule applies at the given local time.
func (s Schedule) matches(wall time.Time, holiday func(time.Time) bool) bool {
	clock := Clock(60*wall.Hour() + wall.Minute())
	if s.End > s.Start {
		return clock >= s.Start && clock < s.End && s.on(wall, 0, holiday)
	}
	return clock >= s.Start && s.on(wall, 0, holiday) || clock < s.End && s.on(wall, -1, holiday)
}

// on reports whether the schedule applies on the day of wall plus the given number of days.
func (s Schedule) on(wall time.Time, later int, holiday func(time.Time) bool) bool {
	if s.Days == 0 && s.Months == 0 {
		return true
	}
	y, m, d := wall.Date()
	// Use noon, because midnight does not exist if daylight saving time starts then.
	noon := time.Date(y, m, d+later, 12, 0, 0, 0, s.Location)
	if !s.Months.Has(noon.Month()) {
		return false
	}
	weekday := noon.Weekday()
	if holiday != nil && s.Days != 0 && holiday(noon) {
		weekday = time.Sunday
	}
	return s.Days.Has(weekday)
}

// maxTariffSpan limits the length of a tariff series.
const maxTariffSpan = 400 * 24 * time.Hour

// Series returns the exact prices between from and until. The step is reduced, down to a minute, if a price changes
// between steps. The series starts at the last multiple of step at or before from, and ends at or after until.
func (t *Tariff) Series(from, until time.Time, step time.Duration) (*Series, error) {
	switch {
	case step < time.Minute || step > time.Hour || time.Hour%step != 0 || step%time.Minute != 0:
		return nil, fmt.Errorf("step is %v: want a number of minutes that divides an hour", step)
	case !until.After(from) || until.Sub(from) > maxTariffSpan:
		return nil, fmt.Errorf("from %s until %s: want an end after the start, by at most %v",
			from.Format(time.RFC3339), until.Format(time.RFC3339), maxTariffSpan)
	}
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("tariff: %w", err)
	}
	from = from.Truncate(step)
	count := int((until.Sub(from) + step - 1) / step * step / time.Minute)
	// The price is evaluated for every minute, which covers schedules, daylight saving time and holidays alike.
	prices := make([]float64, count)
	unit := int(step / time.Minute)
	for i := range prices {
		prices[i] = float64(t.At(from.Add(time.Duration(i) * time.Minute)))
		if i > 0 && prices[i] != prices[i-1] {
			unit = divisor(unit, i)
		}
	}
	values := make([]float64, 0, count/unit)
	for i := 0; i < count; i += unit {
		values = append(values, prices[i])
	}
	return NewSeries(from, time.Duration(unit)*time.Minute, values)
}

// divisor returns the greatest common divisor of two positive numbers.
func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
