package grid_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests name time zones

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/grid"
)

func location(t testing.TB, name string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// window returns a schedule for the given days and hours.
func window(t testing.TB, days, start, end, zone string, price grid.Price) grid.Schedule {
	t.Helper()
	s := grid.Schedule{Location: location(t, zone), Price: price}
	var err error
	if s.Days, err = grid.ParseWeekdays(days); err != nil {
		t.Fatal(err)
	}
	if s.Start, err = grid.ParseClock(start); err != nil {
		t.Fatal(err)
	}
	if s.End, err = grid.ParseClock(end); err != nil {
		t.Fatal(err)
	}
	return s
}

// spell formats a series as the local times and values of its changes.
func spell(s *grid.Series, l *time.Location) string {
	var b strings.Builder
	last := math.NaN()
	for i := range s.Len() {
		if v := s.Value(i); v != last {
			last = v
			at := s.Start().Add(time.Duration(i) * s.Step()).In(l)
			b.WriteString(at.Format("Mon 15:04-07=") + strconv.FormatFloat(v, 'g', -1, 64) + " ")
		}
	}
	return strings.TrimSpace(b.String())
}

func TestTariff(t *testing.T) {
	const berlin, newYork, lordHowe = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
	for name, c := range map[string]struct {
		schedules []grid.Schedule
		zone      string
		from      string // local day
		days      int
		want      string
		step      time.Duration
	}{
		"over midnight, and the end is exclusive": {
			[]grid.Schedule{window(t, "1", "22:00", "06:00", berlin, 2)},
			berlin, "2026-03-02", 3,
			"Mon 00:00+01=1 Mon 22:00+01=2 Tue 06:00+01=1", time.Hour,
		},
		"over midnight from Sunday": {
			[]grid.Schedule{window(t, "0", "23:30", "00:15", newYork, 2)},
			newYork, "2026-03-01", 2,
			"Sun 00:00-05=1 Sun 23:30-05=2 Mon 00:15-05=1", 15 * time.Minute,
		},
		"to midnight": {
			[]grid.Schedule{window(t, "6", "20:00", "24:00", berlin, 2)},
			berlin, "2026-03-07", 2,
			"Sat 00:00+01=1 Sat 20:00+01=2 Sun 00:00+01=1", time.Hour,
		},
		"odd minutes": {
			[]grid.Schedule{window(t, "", "07:13", "07:14", berlin, 2)},
			berlin, "2026-03-02", 1,
			"Mon 00:00+01=1 Mon 07:13+01=2 Mon 07:14+01=1", time.Minute,
		},
		"the whole day": {
			[]grid.Schedule{window(t, "2", "00:00", "24:00", berlin, 2)},
			berlin, "2026-03-02", 3,
			"Mon 00:00+01=1 Tue 00:00+01=2 Wed 00:00+01=1", time.Hour,
		},
		"the first schedule that matches wins": {
			[]grid.Schedule{window(t, "1-5", "17:00", "19:00", berlin, 3), window(t, "", "16:00", "21:00", berlin, 2)},
			berlin, "2026-03-06", 2,
			"Fri 00:00+01=1 Fri 16:00+01=2 Fri 17:00+01=3 Fri 19:00+01=2 Fri 21:00+01=1 Sat 16:00+01=2 Sat 21:00+01=1",
			time.Hour,
		},
		"each in its time zone": {
			[]grid.Schedule{
				window(t, "", "10:00", "11:00", "Asia/Kolkata", 3), window(t, "", "10:00", "11:00", berlin, 2),
			},
			berlin, "2026-03-02", 1,
			"Mon 00:00+01=1 Mon 05:30+01=3 Mon 06:30+01=1 Mon 10:00+01=2 Mon 11:00+01=1", 30 * time.Minute,
		},
		"spring in Berlin: the hour from 02:00 does not exist, and the window is an hour shorter": {
			[]grid.Schedule{window(t, "", "01:00", "04:00", berlin, 2)},
			berlin, "2026-03-29", 1,
			"Sun 00:00+01=1 Sun 01:00+01=2 Sun 04:00+02=1", time.Hour,
		},
		"spring in Berlin: a window within the hour that does not exist": {
			[]grid.Schedule{window(t, "", "02:00", "03:00", berlin, 2)},
			berlin, "2026-03-29", 1, "Sun 00:00+01=1",
			time.Hour,
		},
		"autumn in Berlin: the hour from 02:00 is repeated": {
			[]grid.Schedule{window(t, "", "02:00", "03:00", berlin, 2)},
			berlin, "2026-10-25", 1,
			"Sun 00:00+02=1 Sun 02:00+02=2 Sun 03:00+01=1", time.Hour,
		},
		"autumn in Berlin: half of it": {
			[]grid.Schedule{window(t, "", "02:30", "03:00", berlin, 2)},
			berlin, "2026-10-25", 1,
			"Sun 00:00+02=1 Sun 02:30+02=2 Sun 02:00+01=1 Sun 02:30+01=2 Sun 03:00+01=1", 30 * time.Minute,
		},
		"spring in New York": {
			[]grid.Schedule{window(t, "0", "01:30", "03:30", newYork, 2)},
			newYork, "2026-03-08", 1,
			"Sun 00:00-05=1 Sun 01:30-05=2 Sun 03:30-04=1", 30 * time.Minute,
		},
		"autumn in New York, over midnight": {
			[]grid.Schedule{window(t, "6", "22:00", "02:00", newYork, 2)},
			newYork, "2026-10-31", 2,
			"Sat 00:00-04=1 Sat 22:00-04=2 Sun 02:00-05=1", time.Hour,
		},
		"spring on Lord Howe, by half an hour": {
			[]grid.Schedule{window(t, "", "02:00", "03:00", lordHowe, 2)},
			lordHowe, "2026-10-04", 1,
			"Sat 23:30+1030=1 Sun 02:30+11=2 Sun 03:00+11=1", 30 * time.Minute,
		},
		"autumn on Lord Howe, by half an hour": {
			[]grid.Schedule{window(t, "", "01:00", "02:00", lordHowe, 2)},
			lordHowe, "2026-04-05", 1,
			"Sun 00:00+11=1 Sun 01:00+11=2 Sun 02:00+1030=1", 30 * time.Minute,
		},
		"midnight that is left out, in Beirut": {
			[]grid.Schedule{window(t, "0", "00:00", "02:00", "Asia/Beirut", 2)},
			"Asia/Beirut", "2026-03-28", 2,
			"Sat 00:00+02=1 Sun 01:00+03=2 Sun 02:00+03=1", time.Hour,
		},
	} {
		l := location(t, c.zone)
		from, err := time.ParseInLocation(time.DateOnly, c.from, l)
		if err != nil {
			t.Fatal(err)
		}
		tariff := grid.Tariff{Price: 1, Schedules: c.schedules}
		s, err := tariff.Series(from, from.AddDate(0, 0, c.days), time.Hour)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := strings.ReplaceAll(spell(s, l), "+10=", "+1030=") // the offset in winter
		if got != c.want || s.Step() != c.step {
			t.Errorf("%s:\n got %s every %v\nwant %s every %v", name, got, s.Step(), c.want, c.step)
		}
	}
}

func TestTariffHolidaysAndMonths(t *testing.T) {
	weekend := window(t, "0", "00:00", "24:00", "Europe/Berlin", 1)
	day := window(t, "1-5", "08:00", "20:00", "Europe/Berlin", 3)
	var err error
	if day.Months, err = grid.ParseMonths("11-2"); err != nil {
		t.Fatal(err)
	}
	night := window(t, "5", "22:00", "06:00", "Europe/Berlin", 0.5)
	tariff := grid.Tariff{Price: 2, Schedules: []grid.Schedule{weekend, day, night}, Holiday: func(d time.Time) bool {
		return d.Month() == time.December && d.Day() == 25 && d.Location().String() == "Europe/Berlin"
	}}
	berlin := location(t, "Europe/Berlin")
	for text, want := range map[string]grid.Price{
		"2026-12-24 12:00": 3, // Thursday
		"2026-12-25 12:00": 1, // Friday, a holiday
		"2026-12-25 23:00": 1, // the night of a holiday does not count as Sunday night
		"2026-12-26 05:00": 2,
		"2026-12-18 23:00": 0.5,
		"2026-12-19 05:59": 0.5, // Saturday morning, part of the night that started on Friday
		"2026-12-19 06:00": 2,
		"2026-07-02 12:00": 2, // not in winter
		"2027-02-26 12:00": 3,
		"2027-03-01 12:00": 2,
	} {
		at, err := time.ParseInLocation("2006-01-02 15:04", text, berlin)
		if err != nil {
			t.Fatal(err)
		}
		if got := tariff.At(at); got != want {
			t.Errorf("At(%s) = %v, want %v", text, got, want)
		}
	}
}

// The series equals the tariff at any time, regardless of the schedules and the start of the series.
func TestTariffSeriesIsExact(t *testing.T) {
	zones := []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"}
	rapid.Check(t, func(t *rapid.T) {
		tariff := grid.Tariff{Price: 1}
		for i := range rapid.IntRange(0, 4).Draw(t, "schedules") {
			l, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
			if err != nil {
				t.Fatal(err)
			}
			tariff.Schedules = append(tariff.Schedules, grid.Schedule{
				Days:     grid.Weekdays(rapid.IntRange(0, 127).Draw(t, "days")),
				Start:    grid.Clock(rapid.IntRange(0, 1439).Draw(t, "start")),
				End:      grid.Clock(rapid.IntRange(0, 1440).Draw(t, "end")),
				Location: l, Price: grid.Price(i + 2),
			})
		}
		from := time.Date(2026, 10, 23, 0, 0, 0, 0,
			time.UTC).Add(time.Duration(rapid.IntRange(0, 100_000).Draw(t, "from")) * time.Second)
		until := from.Add(time.Duration(rapid.IntRange(1, 260_000).Draw(t, "span")) * time.Second)
		step := rapid.SampledFrom([]time.Duration{time.Minute, 15 * time.Minute, time.Hour}).Draw(t, "step")
		s, err := tariff.Series(from, until, step)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Covers(from, until) || from.Sub(s.Start()) >= step || s.End().Sub(until) >= step {
			t.Fatalf("series covers %v to %v, want %v to %v", s.Start(), s.End(), from, until)
		}
		for range 200 {
			at := from.Add(time.Duration(rapid.IntRange(0, int(until.Sub(from)/time.Second)-1).Draw(t, "at")) *
				time.Second)
			if got, want := grid.Price(s.At(at)), tariff.At(at); got != want {
				t.Fatalf("at %v: price of the series = %v, want %v", at, got, want)
			}
		}
	})
}

func TestParseWeekdaysAndMonths(t *testing.T) {
	for text, want := range map[string]grid.Weekdays{
		"": 0, "0": 1, "7": 1, "1-5": 0b0111110, "0,6": 0b1000001, "5-1": 0b1100011, "5-0": 0b1100001, "0-6": 127,
		"0-7": 127, "6,7": 0b1000001,
	} {
		if got, err := grid.ParseWeekdays(text); err != nil || got != want {
			t.Errorf("ParseWeekdays(%q) = %b, %v, want %b", text, got, err, want)
		}
	}
	for text, want := range map[string]grid.Months{
		"": 0, "1": 2, "6-9": 0b1111000000, "11-2": 0b1100000000110, "12": 1 << 12,
	} {
		if got, err := grid.ParseMonths(text); err != nil || got != want {
			t.Errorf("ParseMonths(%q) = %b, %v, want %b", text, got, err, want)
		}
	}
	for _, text := range []string{"8", "1-8", "a", "1-", "-1", "1,,2", "1-2-3"} {
		if got, err := grid.ParseWeekdays(text); err == nil {
			t.Errorf("ParseWeekdays(%q) = %b, want an error", text, got)
		}
	}
	for _, text := range []string{"0", "13", "1-13"} {
		if got, err := grid.ParseMonths(text); err == nil {
			t.Errorf("ParseMonths(%q) = %b, want an error", text, got)
		}
	}
	for text, want := range map[string]grid.Clock{"00:00": 0, "09:05": 545, "23:59": 1439, "24:00": 1440} {
		if got, err := grid.ParseClock(text); err != nil || got != want || got.String() != text {
			t.Errorf("ParseClock(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "9:00", "24:01", "12:60", "12", "12:5", "ab:cd", "-1:00"} {
		if got, err := grid.ParseClock(text); err == nil {
			t.Errorf("ParseClock(%q) = %v, want an error", text, got)
		}
	}
}

func TestTariffRefuses(t *testing.T) {
	good := window(t, "", "10:00", "11:00", "UTC", 1)
	for name, c := range map[string]struct {
		change func(*grid.Schedule)
		want   string
	}{
		"no time zone": {func(s *grid.Schedule) { s.Location = nil }, "schedule 0: no time zone"},
		"late start":   {func(s *grid.Schedule) { s.Start = grid.EndOfDay }, "start is 24:00"},
		"late end":     {func(s *grid.Schedule) { s.End = grid.EndOfDay + 1 }, "end is 24:01"},
		"per MWh":      {func(s *grid.Schedule) { s.Price = 120 }, "price is 120"},
		"NaN":          {func(s *grid.Schedule) { s.Price = grid.Price(math.NaN()) }, "price is NaN"},
		"infinite":     {func(s *grid.Schedule) { s.Price = grid.Price(math.Inf(-1)) }, "price is -Inf"},
	} {
		s := good
		c.change(&s)
		tariff := grid.Tariff{Schedules: []grid.Schedule{s}, Currency: "EUR"}
		if err := tariff.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Validate() = %v, want %q", name, err, c.want)
		}
	}
	for currency, most := range map[string]grid.Price{"EUR": 20, "NOK": 200, "JPY": 2000, "KRW": 20_000} {
		for price, want := range map[grid.Price]bool{most: true, -most: true, most + 1: false} {
			if err := (&grid.Tariff{Price: price, Currency: currency}).Validate(); (err == nil) != want {
				t.Errorf("%v %s: %v", float64(price), currency, err)
			}
		}
	}
	if err := (&grid.Tariff{Price: 31}).Validate(); err != nil {
		t.Errorf("unexpected error for a price without a currency: %v", err)
	}
	tariff := grid.Tariff{Schedules: []grid.Schedule{good}}
	for _, c := range []struct {
		span, step time.Duration
	}{
		{time.Hour, 0},
		{time.Hour, 7 * time.Minute},
		{time.Hour, time.Second},
		{time.Hour, 2 * time.Hour},
		{0, time.Hour},
		{500 * 24 * time.Hour, time.Hour},
	} {
		if s, err := tariff.Series(t0, t0.Add(c.span), c.step); err == nil {
			t.Errorf("Series() over %v with step %v returned %d values, want an error", c.span, c.step, s.Len())
		}
	}
}
