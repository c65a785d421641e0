package signal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func sharedFile(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.FromSlash("../../../../shared/data"), filepath.FromSlash(name)))
	if err != nil {
		t.Skipf("the shared data is not available: %v", err)
	}
	return text
}

// priceAt returns the price of a tariff at a local time.
func priceAt(t testing.TB, tariff grid.Tariff, zone, local string) grid.Price {
	t.Helper()
	l, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.ParseInLocation("2006-01-02 15:04", local, l)
	if err != nil {
		t.Fatal(err)
	}
	return tariff.At(at)
}

func TestTariffSource(t *testing.T) {
	s, err := newTariff(&v1alpha1.TariffSource{
		Price: new(0.1), TimeZone: "Europe/Berlin",
		Schedules: []v1alpha1.TariffSchedule{
			{Days: "1-5", Start: "17:00", End: "20:15", Price: 0.4},
			{Start: "22:00", End: "06:00", Price: 0.05},
		},
	}, "EUR", "")
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Fetch(t.Context(), noon)
	if err != nil {
		t.Fatal(err)
	}
	if !a.Ageless || a.Step != 15*time.Minute {
		t.Errorf("answer with ageless = %v and step = %v", a.Ageless, a.Step)
	}
	if _, err = (terms{quantity: price, currency: "EUR", maxAge: time.Hour}).check(&a, noon); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		ahead time.Duration
		value float64
	}{
		{0, 0.1},
		{3*time.Hour + 39*time.Minute, 0.1},
		{3*time.Hour + 40*time.Minute, 0.4},
		{6*time.Hour + 55*time.Minute, 0.1},
		{9 * time.Hour, 0.05},
		{48 * time.Hour, 0.1},
	} {
		p, ok := a.at(noon.Add(want.ahead))
		if !ok || p.Value != want.value || p.Estimated {
			t.Errorf("price in %v = %+v, want %v", want.ahead, p, want.value)
		}
	}
}

func TestTariffSourceRefuses(t *testing.T) {
	good := v1alpha1.TariffSchedule{Start: "10:00", End: "11:00", Price: 1}
	for name, c := range map[string]struct {
		change func(*v1alpha1.TariffSource)
		want   string
	}{
		"time zone": {
			func(s *v1alpha1.TariffSource) { s.TimeZone = "Europe/Bärlin" },
			`schedules[0]: timeZone: "Europe/Bärlin" is not an IANA time zone`,
		},
		"time zone of the machine": {
			func(s *v1alpha1.TariffSource) { s.Schedules[0].TimeZone = "Local" },
			`timeZone: "Local" is not an IANA`,
		},
		"days": {func(s *v1alpha1.TariffSource) { s.Schedules[0].Days = "mon" }, "schedules[0]: days"},
		"months": {
			func(s *v1alpha1.TariffSource) { s.Schedules[0].Months = "13" },
			"schedules[0]: months",
		},
		"start":           {func(s *v1alpha1.TariffSource) { s.Schedules[0].Start = "24:00" }, "start is 24:00"},
		"end":             {func(s *v1alpha1.TariffSource) { s.Schedules[0].End = "6pm" }, "schedules[0]: end"},
		"a price per MWh": {func(s *v1alpha1.TariffSource) { s.Price = new(80.0) }, "price is 80"},
		"a schedule per MWh": {
			func(s *v1alpha1.TariffSource) { s.Schedules[0].Price = 80 },
			"schedule 0: price is 80",
		},
		"no price": {func(s *v1alpha1.TariffSource) { s.Price = nil }, "price is missing"},
		"holidays of an unknown country": {
			func(s *v1alpha1.TariffSource) { s.Holidays = "XX" },
			`holidays: the holidays of "XX" are unknown: want one of AT, AU-ACT,`,
		},
		"all of them together": {
			func(s *v1alpha1.TariffSource) { s.Holidays = "XX"; s.Schedules[0].Days = "9" },
			"days",
		},
	} {
		spec := &v1alpha1.TariffSource{Price: new(0.0), Schedules: []v1alpha1.TariffSchedule{good}}
		c.change(spec)
		if _, err := newTariff(spec, "EUR", ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestHolidays(t *testing.T) {
	for _, c := range []struct {
		place, day string
		want       bool
	}{
		{"DE", "2026-10-03", true},
		{"DE", "2026-11-01", false},
		{"DE-BY", "2026-11-01", true},
		{"de-by", "2026-11-01", true},
		{"US", "2026-11-26", true},
		{"US", "2026-07-03", true}, // a Friday, as the fourth is a Saturday
		{"US", "2026-07-06", false},
		{"GB", "2026-12-28", true},
		{"FR", "2026-07-14", true},
		{"FR", "2026-07-15", false},
		{"AT", "2026-10-26", true},
	} {
		holiday, err := holidays(c.place)
		if err != nil {
			t.Fatal(err)
		}
		day, err := time.Parse(time.DateOnly, c.day)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second result is cached
			if got := holiday(day.Add(12 * time.Hour)); got != c.want {
				t.Errorf("holiday %s in %s = %v", c.day, c.place, got)
			}
		}
	}
	if holiday, err := holidays(""); holiday != nil || err != nil {
		t.Errorf("holidays(\"\") returned a function, error %v", err)
	}
}

// TestTariffOfAHoliday verifies that the prices of a Sunday apply on holidays.
func TestTariffOfAHoliday(t *testing.T) {
	tariff, err := NewTariff(&v1alpha1.TariffSource{
		Price: new(0.1), TimeZone: "America/New_York", Holidays: "US",
		Schedules: []v1alpha1.TariffSchedule{
			{Days: "1-5", Start: "14:00", End: "19:00", Price: 0.4},
		},
	}, "USD")
	if err != nil {
		t.Fatal(err)
	}
	for local, want := range map[string]grid.Price{
		"2026-11-25 15:00": 0.4, "2026-11-26 15:00": 0.1, "2026-11-27 15:00": 0.4,
	} {
		if got := priceAt(t, tariff, "America/New_York", local); got != want {
			t.Errorf("price at %s = %v, want %v", local, got, want)
		}
	}
}

func TestReadPricingSchedulesOfTheExample(t *testing.T) {
	got, err := ReadPricingSchedules(sharedFile(t, "price/tou_schedule_compute_gardener_example.yaml"), "USD")
	if err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.TariffSource{Price: new(0.10), TimeZone: "UTC", Schedules: []v1alpha1.TariffSchedule{
		{Days: "1-5", Start: "16:00", End: "21:00", Price: 0.30},
		{Days: "0,6", Start: "13:00", End: "19:00", Price: 0.30},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestReadPricingSchedulesMeansWhatIsDocumented verifies the documented semantics. The implementation of Compute
// Gardener differs from its documentation: it never matches a window over midnight, includes the end of a window,
// and requires equal off-peak rates.
func TestReadPricingSchedulesMeansWhatIsDocumented(t *testing.T) {
	spec, err := ReadPricingSchedules([]byte(`
schedules:
- {name: night, dayOfWeek: "1-5", startTime: "22:00", endTime: "06:00", timezone: America/New_York, peakRate: 0.4, offPeakRate: 0.2}
- {name: weekend, dayOfWeek: "0,6", startTime: "13:00", endTime: "19:00", timezone: America/New_York, peakRate: 0.3, offPeakRate: 0.1}
- {name: again, dayOfWeek: "1-5", startTime: "05:00", endTime: "08:00", timezone: America/New_York, peakRate: 0.4, offPeakRate: 0.2}
`), "USD")
	if err != nil {
		t.Fatal(err)
	}
	tariff, err := NewTariff(spec, "EUR")
	if err != nil {
		t.Fatal(err)
	}
	for local, want := range map[string]grid.Price{
		"2026-03-02 05:00": 0.4, // Monday: the morning peak
		"2026-03-02 04:00": 0.2, // Sunday has no night peak
		"2026-03-02 08:00": 0.2, // the end is exclusive
		"2026-03-02 21:59": 0.2,
		"2026-03-02 22:00": 0.4,
		"2026-03-03 03:00": 0.4, // of Monday's night
		"2026-03-06 23:00": 0.4, // Friday
		"2026-03-07 05:59": 0.4, // of Friday's night
		"2026-03-07 06:00": 0.1, // Saturday
		"2026-03-07 13:00": 0.3,
		"2026-03-07 19:00": 0.1,
	} {
		if got := priceAt(t, tariff, "America/New_York", local); got != want {
			t.Errorf("price at %s = %v, want %v", local, got, want)
		}
	}
}

func TestReadPricingSchedulesRefuses(t *testing.T) {
	const all = `dayOfWeek: "1-5", startTime: "16:00", endTime: "21:00", peakRate: 0.3, offPeakRate: 0.1`
	for name, c := range map[string]struct{ text, want string }{
		"nothing":              {"", "the list schedules is empty"},
		"no YAML":              {"schedules: [", "reading pricing schedules"},
		"an unknown field":     {"schedules: [{" + all + ", shoulderRate: 0.2}]", "shoulderRate"},
		"an unknown top field": {"schedules: [{" + all + "}]\nregion: x", "region"},
		"a field twice":        {"schedules: [{" + all + ", peakRate: 0.2}]", "peakRate"},
		"no days": {
			`schedules: [{startTime: "16:00", endTime: "21:00", peakRate: 0.3, offPeakRate: 0.1}]`,
			"schedules[0]: dayOfWeek is missing",
		},
		"days by name":        {"schedules: [{" + strings.Replace(all, "1-5", "Mon-Fri", 1) + "}]", "dayOfWeek"},
		"a start of 25:00":    {"schedules: [{" + strings.Replace(all, "16:00", "25:00", 1) + "}]", "startTime"},
		"an end in words":     {"schedules: [{" + strings.Replace(all, "21:00", "night", 1) + "}]", "endTime"},
		"start and end alike": {"schedules: [{" + strings.Replace(all, "21:00", "16:00", 1) + "}]", "are both 16:00"},
		"no off-peak rate": {
			"schedules: [{" + strings.Replace(all, ", offPeakRate: 0.1", "", 1) + "}]",
			"offPeakRate is missing",
		},
		"a rate in cents":      {"schedules: [{" + strings.Replace(all, "0.3", "30", 1) + "}]", "price is 30"},
		"an unknown time zone": {"schedules: [{" + all + ", timezone: PST8}]", "not an IANA time zone"},
		"two peaks at once": {"schedules: [{" + all + "}, {" + strings.NewReplacer("16:00", "20:00", "21:00",
			"23:00", "0.3", "0.5").Replace(all) + "}]", "a peak on Monday at 20:00 with different rates: 0.3 and 0.5"},
		"peaks meet at night": {`schedules: [{dayOfWeek: "6", startTime: "22:00", endTime: "04:00", peakRate: 0.3, offPeakRate: 0.1}, {dayOfWeek: "0", startTime: "03:00", endTime: "05:00", peakRate: 0.5, offPeakRate: 0.1}]`, "on Sunday at 03:00"},
		"two off-peak rates": {
			"schedules: [{" + all + "}, {" + strings.NewReplacer("16:00", "08:00", "21:00",
				"10:00", "0.1", "0.2").Replace(all) + "}]",
			"schedules[0] and schedules[1]: the off-peak rates for the same day are 0.1 and 0.2",
		},
		"a day without a schedule": {"schedules: [{" + all + "}, {" + strings.NewReplacer("1-5", "6", "0.1",
			"0.2").Replace(all) + "}]", "some days of the week are in no schedule"},
		"several time zones": {"schedules: [{" + all + "}, {" + strings.NewReplacer("1-5", "0,6", "0.3",
			"0.2").Replace(all) + ", timezone: Asia/Tokyo}]", "the time zones UTC and Asia/Tokyo differ"},
		"too many schedules": {"schedules:\n" + strings.Repeat("- {"+all+"}\n", 65), "want at most 64"},
	} {
		if spec, err := ReadPricingSchedules([]byte(c.text), "USD"); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v; want %q", name, spec, err, c.want)
		}
	}
}

func FuzzReadPricingSchedules(f *testing.F) {
	f.Add([]byte("schedules:\n- {dayOfWeek: \"1-5\", startTime: \"22:00\", endTime: \"06:00\", timezone: " +
		"Europe/Berlin, peakRate: 0.3, offPeakRate: 0.1}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		spec, err := ReadPricingSchedules(text, "EUR")
		if err != nil {
			return
		}
		if _, err := newTariff(spec, "EUR", ""); err != nil {
			t.Errorf("the schedules were converted to an invalid tariff: %v", err)
		}
	})
}
