package signal

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

func TestOctopusOfARecordedAnswer(t *testing.T) {
	body := sharedFile(t, "api/octopus_agile_unit_rates_2020-05-25.json")
	var path, query string
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		path, query = r.URL.Path, r.URL.RawQuery
		_, _ = w.Write(body)
	})
	s := &octopus{&v1alpha1.OctopusSource{
		Product: "AGILE-18-02-21", Tariff: "E-1R-AGILE-18-02-21-D", URL: p.URL + "/",
	}, testFetcher(t, p.Server, nil)}
	now := time.Date(2020, 5, 25, 17, 10, 0, 0, time.UTC)
	a, err := s.Fetch(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	if want := "/v1/products/AGILE-18-02-21/electricity-tariffs/E-1R-AGILE-18-02-21-D/standard-unit-rates/"; path != want {
		t.Errorf("requested %s, want %s", path, want)
	}
	if want := "page_size=300&period_from=2020-05-24T17%3A00%3A00Z&period_to=2020-05-27T17%3A00%3A00Z"; query != want {
		t.Errorf("requested %s, want %s", query, want)
	}
	if a.Currency != "GBP" || a.Step != 30*time.Minute || !a.IssuedAt.Equal(now.Truncate(30*time.Minute)) {
		t.Errorf("answer with currency %s, step %v, issued at %v", a.Currency, a.Step, a.IssuedAt)
	}
	if _, err = (terms{quantity: price, currency: "GBP", maxAge: 36 * time.Hour}).check(&a, now); err != nil {
		t.Fatal(err)
	}
	// Recorded prices: 21.966 p/kWh from 17:30, and 7.2975 p/kWh in the last published half hour.
	for at, want := range map[string]float64{"17:30": 0.21966, "18:00": 0.08316, "21:30": 0.072975} {
		clock, err := time.Parse("15:04", at)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := a.at(now.Truncate(24 * time.Hour).Add(clock.Sub(clock.Truncate(24 * time.Hour))))
		if !ok || got.Value < want-1e-9 || got.Value > want+1e-9 {
			t.Errorf("price at %s = %v, want %v", at, got.Value, want)
		}
	}
	if _, ok := a.at(now.Add(6 * time.Hour)); ok {
		t.Error("unexpected price that is not published yet")
	}
}

// TestOctopus uses three constructed rates: a past one, the current one, and a later one of one hour.
func TestOctopus(t *testing.T) {
	body, err := os.ReadFile("testdata/octopus.json")
	if err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		if want := "/v1/products/A/electricity-tariffs/B%2FC/standard-unit-rates/"; r.URL.EscapedPath() != want {
			t.Errorf("requested %s, want %s", r.URL.EscapedPath(), want)
		}
		_, _ = w.Write(body)
	})
	s := &octopus{&v1alpha1.OctopusSource{Product: "A", Tariff: "B/C", URL: p.URL}, testFetcher(t, p.Server, nil)}
	now := time.Date(2026, 1, 2, 17, 40, 0, 0, time.UTC)
	a, err := s.Fetch(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	if a.Currency != "GBP" || a.Step != 30*time.Minute || len(a.Points) != 4 {
		t.Errorf("unexpected answer %+v", a)
	}
	prices := map[string]float64{}
	for _, point := range a.Points {
		prices[point.Time.Format("15:04")] = point.Value
	}
	want := map[string]float64{"17:00": -0.0105, "17:30": 0.21, "18:00": 0.105, "18:30": 0.105}
	if diff := cmp.Diff(want, prices, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Error(diff)
	}
	if _, err := s.Fetch(t.Context(), now.AddDate(1, 0, 0)); dial.ReasonOf(err) != dial.ReasonMissing {
		t.Errorf("a year later: %v", err)
	}
}

func TestOctopusRates(t *testing.T) {
	from := noon.Truncate(time.Hour)
	until := from.Add(4 * time.Hour)
	rate := func(value, start, end, method string) string {
		return `{"value_inc_vat":` + value + `,"valid_from":` + start + `,"valid_to":` + end + `,"payment_method":` +
			method + `}`
	}
	const h12, h13, h14 = `"2026-03-10T12:00:00Z"`, `"2026-03-10T13:00:00Z"`, `"2026-03-10T14:00:00Z"`
	for name, c := range map[string]struct {
		rates  string
		count  int
		reason dial.Reason
	}{
		"an hour":              {rate("20", h12, h13, "null"), 2, ""},
		"negative":             {rate("-3.5", h12, h13, "null"), 2, ""},
		"until further notice": {rate("20", h13, "null", "null"), 6, ""},
		"from long ago":        {rate("20", `"2020-01-01T00:00:00Z"`, h13, "null"), 2, ""},
		"another payment method": {rate("20", h12, h13, `"DIRECT_DEBIT"`) + "," +
			rate("25", h12, h13, `"NON_DIRECT_DEBIT"`), 2, ""},
		"none": {"", 0, dial.ReasonMissing},
		"of another time": {
			rate("20", `"2020-01-01T00:00:00Z"`, `"2020-01-02T00:00:00Z"`, "null"), 0,
			dial.ReasonMissing,
		},
		"no value":           {rate("null", h12, h13, "null"), 0, dial.ReasonShape},
		"a value in quotes":  {rate(`"20"`, h12, h13, "null"), 0, dial.ReasonShape},
		"off the half hours": {rate("20", `"2026-03-10T12:10:00Z"`, h13, "null"), 0, dial.ReasonTime},
		"no start":           {rate("20", "null", h13, "null"), 0, dial.ReasonTime},
		"invalid start":      {rate("20", `"noon"`, h13, "null"), 0, dial.ReasonTime},
		"empty period":       {rate("20", h14, h14, "null"), 0, dial.ReasonMissing},
	} {
		points, err := octopusRates([]byte(`{"count":1,"next":"https://example.com/?page=2","results":[`+c.rates+`]}`),
			from, until)
		if c.reason != "" {
			if err == nil || dial.ReasonOf(err) != c.reason {
				t.Errorf("%s: %d points, %v; want reason %s", name, len(points), err, c.reason)
			}
			continue
		}
		if err != nil || len(points) != c.count {
			t.Errorf("%s: %d points, %v; want %d", name, len(points), err, c.count)
		}
	}
	if _, err := octopusRates([]byte(`{"results":[`+strings.Repeat(rate("1", h12, "null", "null")+",", 2000)+rate("1",
		h12, "null", "null")+`]}`), from, until); dial.ReasonOf(err) != dial.ReasonSize {
		t.Errorf("2001 rates for the same time: %v", err)
	}
}
