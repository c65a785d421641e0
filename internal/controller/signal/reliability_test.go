package signal

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/forecast"
)

// virtual makes the fetchers of a keeper use w. Delays between attempts advance the clock of the test immediately.
func virtual(d Deps, now *time.Time, w wire) Deps {
	d.Reach.tweak = func(f *fetcher) {
		f.HTTP.Transport = w
		f.Now = d.Clock
		f.pause = func(_ context.Context, wait time.Duration) bool {
			*now = now.Add(wait)
			return true
		}
	}
	return d
}

// TestAnswerAfterAMinute verifies that a value is accepted if its timestamp is later than the start of a poll with
// retries.
func TestAnswerAfterAMinute(t *testing.T) {
	now, asked := noon, 0
	d := virtual(testDeps(&now), &now, func(*http.Request) (*http.Response, error) {
		if asked++; asked < 3 {
			return respond(503, "", "Retry-After", "30")
		}
		now = now.Add(4 * time.Second)
		return respond(200, sampleText(now, "300"))
	})
	k := carbonKeeper(t, d, fromPrometheus("https://prometheus.example"))
	k.poll(t.Context())
	s := k.state(now)
	if asked != 3 || !s.Fresh || s.LastError != "" {
		t.Errorf("%d requests until %v: %+v", asked, now.Sub(noon), s)
	}
	if got := k.links[0].next.Sub(now); got < 5*time.Minute {
		t.Errorf("the next poll is %v after the answer", got)
	}
}

// TestFrozenWithoutTime verifies that constant values are detected in sources without timestamps. These values never
// become too old.
func TestFrozenWithoutTime(t *testing.T) {
	for name, source := range map[string]v1alpha1.CarbonSource{
		"http":       {HTTP: &v1alpha1.HTTPSource{URL: "https://own.example", Value: "v"}},
		"prometheus": fromPrometheus("https://prometheus.example"),
	} {
		for _, measured := range []bool{false, true} {
			now := noon
			d := virtual(testDeps(&now), &now, func(r *http.Request) (*http.Response, error) {
				if r.URL.Host == "own.example" {
					return respond(200, `{"v":412}`, "Date", now.Format(http.TimeFormat))
				}
				return respond(200, sampleText(now, "412"))
			})
			limit, s := 24*time.Hour, *source.DeepCopy()
			if measured {
				limit = 6 * time.Hour
				if s.HTTP != nil {
					s.HTTP.Measured = true
				} else {
					s.Prometheus.Measured = true
				}
			}
			k := carbonKeeper(t, d, s)
			for ; now.Before(noon.Add(limit + 4*time.Hour)); now = now.Add(20 * time.Minute) {
				k.poll(t.Context())
				s := k.state(now)
				if now.Before(noon.Add(limit)) && (!s.Fresh || (s.Quality != energy.Estimated.String()) != measured) {
					t.Fatalf("%s: after %v: %+v", name, now.Sub(noon), s)
				}
			}
			if s := k.state(now); s.Fresh || s.Reason != dial.ReasonFrozen {
				t.Errorf("%s, measured %v: %+v", name, measured, s)
			}
		}
	}
}

// TestFrozenBehindAForecast verifies that a forecast for the current hour does not hide that the measured values
// are constant.
func TestFrozenBehindAForecast(t *testing.T) {
	var s standstill
	var err error
	for h := range 12 {
		now := noon.Truncate(time.Hour).Add(time.Duration(h) * time.Hour)
		err = s.frozen(&Answer{Points: []Point{
			{Time: now.Add(-time.Hour), Value: 412},
			{Time: now, Value: 300 + float64(h), Estimated: true},
			{Time: now.Add(time.Hour), Value: 280, Estimated: true},
		}}, now)
	}
	if err == nil || dial.ReasonOf(err) != dial.ReasonFrozen {
		t.Errorf("got %v", err)
	}
}

// TestKeysInAnswersStaySecret verifies that a server that echoes requests cannot leak a key into the state, which
// is published in conditions, or into the log.
func TestKeysInAnswersStaySecret(t *testing.T) {
	const key = "S3same-aLongToken/with+specials=="
	asked := func(r *http.Request) string {
		return strings.Repeat("Sorry. ", 24) + r.URL.RawQuery + " " + r.Header.Get("Auth-Token") +
			r.Header.Get("Authorization")
	}
	for name, c := range map[string]struct {
		carbon v1alpha1.CarbonSource
		price  *v1alpha1.PriceSource
		answer func(r *http.Request) string
	}{
		"acknowledgement, cut off": {price: new(fromENTSOE("https://x.example")), answer: func(r *http.Request) string {
			text := asked(r)[:190] + r.URL.Query().Get("securityToken")
			return "<Acknowledgement_MarketDocument><Reason><code>999</code><text>" + text +
				"</text></Reason></Acknowledgement_MarketDocument>"
		}},
		"acknowledgement": {price: new(fromENTSOE("https://x.example")), answer: func(r *http.Request) string {
			text := strings.ReplaceAll(r.URL.RawQuery, "&", "&amp;")
			return "<Acknowledgement_MarketDocument><Reason><code>401</code><text>" + text +
				"</text></Reason></Acknowledgement_MarketDocument>"
		}},
		"document": {price: new(fromENTSOE("https://x.example")), answer: func(r *http.Request) string {
			return "<x><y>" + r.URL.Query().Get("securityToken") + "</z></x>"
		}},
		"zone": {carbon: electricityMapsAt("https://x.example"), answer: func(r *http.Request) string {
			return fmt.Sprintf(`{"zone":%q,"carbonIntensity":1,"datetime":"2026-03-10T12:00:00Z"}`,
				r.Header.Get("Auth-Token"))
		}},
		"time": {carbon: electricityMapsAt("https://x.example"), answer: func(r *http.Request) string {
			return fmt.Sprintf(`{"zone":"DE","carbonIntensity":1,"datetime":%q}`, r.Header.Get("Auth-Token"))
		}},
		"name twice": {carbon: electricityMapsAt("https://x.example"), answer: func(r *http.Request) string {
			return fmt.Sprintf(`{%[1]q:1,%[1]q:2}`, r.Header.Get("Auth-Token"))
		}},
		"status": {
			carbon: v1alpha1.CarbonSource{Prometheus: &v1alpha1.PrometheusSource{
				URL: "https://x.example", Query: "q", Key: "em",
			}},
			answer: func(r *http.Request) string {
				return fmt.Sprintf(`{"status":%q}`, strings.ToLower(r.Header.Get("Authorization")))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := noon
			d := virtual(testDeps(&now), &now, func(r *http.Request) (*http.Response, error) {
				return respond(200, c.answer(r))
			})
			var log bytes.Buffer
			d.Keys, d.Log = testKeys{"em": key}, slog.New(slog.NewTextHandler(&log, nil))
			k, err := NewCarbonKeeper("DE", &v1alpha1.CarbonSpec{Sources: []v1alpha1.CarbonSource{c.carbon}}, d)
			if c.price != nil {
				k, err = NewPriceKeeper("DE", &v1alpha1.PriceSpec{
					Currency: "EUR", Sources: []v1alpha1.PriceSource{*c.price},
				}, d)
			}
			if err != nil {
				t.Fatal(err)
			}
			k.poll(t.Context())
			s := k.state(now)
			if s.LastError == "" || !strings.Contains(log.String(), "Signal source failed") {
				t.Fatalf("expected an error: %+v, %s", s, log.String())
			}
			for _, text := range []string{s.LastError, log.String()} {
				if strings.Contains(strings.ToLower(text), "s3same") || strings.Contains(text, "aLong") {
					t.Errorf("the key was leaked in %s", text)
				}
			}
		})
	}
}

// TestLargeFile verifies that only a part of a large file is kept in memory, that the file is read again when other
// values are needed, and that a file of the maximum size is accepted.
func TestLargeFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "year.csv")
	var text strings.Builder
	text.WriteString("t,v\n")
	const step = 15 * time.Minute
	start := noon.Truncate(time.Hour).Add(-100 * 24 * time.Hour)
	for i := range 110 * int(24*time.Hour/step) {
		fmt.Fprintf(&text, "%s,%d\n", start.Add(time.Duration(i)*step).Format(time.RFC3339), 100+i%97)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text.String())
	s, err := newFile(terms{zone: "DE", quantity: carbon}, &v1alpha1.FileSource{Path: "year.csv"}, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, now := range []time.Time{
		noon, noon.Add(10 * time.Hour), noon.Add(40 * time.Hour), noon.Add(-60 * 24 * time.Hour),
	} {
		a, err := s.Fetch(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		first, last := a.Points[0].Time, a.Points[len(a.Points)-1].Time
		if now.Sub(first) < historySpan-time.Hour || last.Sub(now) < horizon || len(a.Points) > maxPoints {
			t.Errorf("Fetch() at %v returned %d values from %v to %v", now, len(a.Points), first, last)
		}
		i := int(first.Sub(start) / step)
		if a.Points[0].Value != float64(100+i%97) {
			t.Errorf("value at %v = %v, want %v", first, a.Points[0].Value, 100+i%97)
		}
		if kept := s.(*file).signal.Series.Len(); kept > int((historySpan+buildAhead+2*fileSlack)/step)+1 {
			t.Errorf("%d values are kept in memory", kept)
		}
	}
	full := text.String() + strings.Repeat("\n", maxFile-text.Len())
	write(full)
	if _, err := s.Fetch(t.Context(), noon); err != nil {
		t.Errorf("reading a file of %d bytes: %v", len(full), err)
	}
	write(full + "\n")
	if _, err := s.Fetch(t.Context(), noon); err == nil || dial.ReasonOf(err) != dial.ReasonSize {
		t.Errorf("reading a file that is one byte too large: %v", err)
	}
}

// TestForecastSurvivesARestart verifies that a forecast based on weeks of history is not replaced by the typical
// day after a restart until there is one day of history.
func TestForecastSurvivesARestart(t *testing.T) {
	now := noon
	source := fromPrometheus("https://prometheus.example")
	value := func(t time.Time) float64 { return 300 + 100*float64(t.Hour())/24 + float64(t.Minute())/60 }
	d := virtual(testDeps(&now), &now, func(*http.Request) (*http.Response, error) {
		return respond(200, sampleText(now, fmt.Sprint(value(now))))
	})
	for _, c := range []struct {
		model string
		age   time.Duration // age of the stored status
		want  string        // forecast model after the first poll
	}{
		{forecast.Blend, 0, forecast.Blend},
		{forecast.TypicalModel, 0, forecast.TypicalModel},
		{forecast.Blend, 3 * time.Hour, forecast.TypicalModel}, // too old to be restored
	} {
		now = noon
		hour := metav1.NewTime(now.Truncate(time.Hour).Add(-c.age))
		status := &v1alpha1.SignalStatus{
			Now: 1, Unit: "gCO2e/kWh", Quality: "derived", Source: "prometheus", AsOf: &hour, Start: hour,
			Step: metav1.Duration{Duration: time.Hour}, ForecastSource: c.model,
		}
		for h := range 49 {
			status.Values = append(status.Values, 700+float64(h%24))
		}
		k := carbonKeeper(t, d, source)
		k.Seed(status)
		k.links[0].next = now
		k.poll(t.Context())
		s := k.state(now)
		if !s.Fresh || s.ForecastSource != c.want || math.Abs(s.Now-value(now)) > 0.05 {
			t.Fatalf("%+v: model %s, values %v", c, s.ForecastSource, s.Values)
		}
		if got := s.Signal.Series.At(now.Add(20 * time.Hour)); (got == 720) != (c.want == forecast.Blend) {
			t.Errorf("%+v: value in 20 hours = %v", c, got)
		}
		if c.want != forecast.Blend {
			continue
		}
		for ; now.Before(noon.Add(26 * time.Hour)); now = now.Add(10 * time.Minute) {
			k.poll(t.Context())
			s := k.state(now)
			if after := now.Sub(noon); after < 23*time.Hour && (!s.Fresh || s.ForecastSource != forecast.Blend ||
				s.Signal.Series.Len() < 24) {
				t.Fatalf("after %v: model %s, %d values", after, s.ForecastSource, s.Signal.Series.Len())
			}
		}
		if s := k.state(now); s.Signal.Series.Len() < 48 || s.Signal.Series.At(now.Add(20*time.Hour)) > 500 ||
			s.ForecastSource == forecast.TypicalModel {
			t.Errorf("a day later: model %s, values %v", s.ForecastSource, s.Values)
		}
	}
}

// blocking is a budget that stores the times passed to Block.
type blocking struct{ until map[string]time.Time }

func (b *blocking) Block(_ context.Context, source string, until, _ time.Time) error {
	b.until[source] = until
	return nil
}

func (b *blocking) Reserve(_ context.Context, source string, _ int, now time.Time) (bool, time.Time, error) {
	return !b.until[source].After(now), b.until[source], nil
}

// TestPausesSurviveARestart verifies that a delay requested by the provider and a rejected key also apply after a
// restart.
func TestPausesSurviveARestart(t *testing.T) {
	for _, c := range []struct {
		code  int
		after string
		pause time.Duration // 0 if no delay is stored
	}{
		{429, "2400", 40 * time.Minute},
		{503, "120", 2 * time.Minute},
		{401, "", hopelessRetry},
		{503, "20", 0},
		{500, "", 0},
	} {
		now, asked := noon, 0
		budget := &blocking{until: make(map[string]time.Time)}
		d := virtual(testDeps(&now), &now, func(*http.Request) (*http.Response, error) {
			asked++
			return respond(c.code, "", "Retry-After", c.after)
		})
		d.Calls = budget
		carbonKeeper(t, d, electricityMapsAt("https://x.example")).poll(t.Context())
		until, blocked := budget.until["DE/carbon/electricityMaps"]
		if blocked != (c.pause > 0) || blocked && until.Sub(now) < c.pause {
			t.Errorf("status %d with Retry-After %q: blocked until %v", c.code, c.after, until)
		}
		if !blocked {
			continue
		}
		before := asked
		now = now.Add(time.Minute)
		k := carbonKeeper(t, d, electricityMapsAt("https://x.example"))
		k.poll(t.Context())
		if asked != before || k.state(now).Reason != dial.ReasonRate {
			t.Errorf("status %d: unexpected request after a restart: %+v", c.code, k.state(now))
		}
		now = until
		k = carbonKeeper(t, d, electricityMapsAt("https://x.example"))
		if k.poll(t.Context()); asked == before {
			t.Errorf("status %d: no request after the delay", c.code)
		}
	}
}

// TestMetricsOfTwoObjects verifies that the metrics of two keepers with the same zone are those of the first one,
// and that the counters of a source are removed with its last keeper.
func TestMetricsOfTwoObjects(t *testing.T) {
	now := noon
	d := testDeps(&now)
	d.Reach.Loopback = false
	one := carbonKeeper(t, d, staticSource(100), fromPrometheus("https://127.0.0.1"))
	for range 50 {
		two := carbonKeeper(t, d, staticSource(200))
		d.Metrics.add(one)
		d.Metrics.add(two)
		one.poll(t.Context())
		two.poll(t.Context())
		if err := testutil.CollectAndCompare(d.Metrics, strings.NewReader(`
# HELP kubenergy_grid_carbon_intensity_grams_per_kilowatthour Current carbon intensity of electricity in gCO2e per kWh.
# TYPE kubenergy_grid_carbon_intensity_grams_per_kilowatthour gauge
kubenergy_grid_carbon_intensity_grams_per_kilowatthour{quality="estimated",signal="average",zone="DE"} 100
`), "kubenergy_grid_carbon_intensity_grams_per_kilowatthour"); err != nil {
			t.Fatal(err)
		}
		d.Metrics.rejected.WithLabelValues("DE", string(carbon), "prometheus", string(dial.ReasonHTTP)).Inc()
		d.Metrics.rejected.WithLabelValues("DE", string(carbon), "static", string(dial.ReasonRange)).Inc()
		d.Metrics.remove(one)
		if n := testutil.CollectAndCount(d.Metrics.rejected); n != 1 {
			t.Fatalf("%d series remain, want only the series of static", n)
		}
		d.Metrics.remove(two)
		if n := testutil.CollectAndCount(d.Metrics.rejected); n != 0 {
			t.Fatalf("%d series remain, want 0", n)
		}
	}
}

// TestTariffFile verifies that a file with pricing schedules is read again after a change.
func TestTariffFile(t *testing.T) {
	now, dir := noon, t.TempDir()
	write := func(rate string, at time.Time) {
		t.Helper()
		path := filepath.Join(dir, "pricing-schedules.yaml")
		text := `schedules: [{name: day, dayOfWeek: "1-5", startTime: "09:00", endTime: "18:00", timezone: UTC, peakRate: ` + rate + `, offPeakRate: 0.1}]`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	d := testDeps(&now)
	d.Data = dir
	keeper := func(currency string, spec v1alpha1.TariffSource) *Keeper {
		t.Helper()
		k, err := NewPriceKeeper("DE", &v1alpha1.PriceSpec{
			Currency: currency, Sources: []v1alpha1.PriceSource{{Tariff: &spec}},
		}, d)
		if err != nil {
			t.Fatal(err)
		}
		k.poll(t.Context())
		return k
	}
	file := v1alpha1.TariffSource{File: "pricing-schedules.yaml", TimeZone: "UTC"}
	write("0.3", now)
	k := keeper("USD", file)
	if s := k.state(now); !s.Fresh || s.Source != "tariff" || s.Signal.Series.At(now) != 0.3 ||
		s.Signal.Series.At(now.Add(8*time.Hour)) != 0.1 {
		t.Fatalf("%+v", s)
	}
	write("0.4", now.Add(time.Minute))
	now = now.Add(time.Hour)
	k.poll(t.Context())
	if got := k.state(now).Signal.Series.At(now); got != 0.4 {
		t.Errorf("unexpected current price %v", got)
	}
	write("50", now.Add(time.Minute))
	if s := keeper("USD", file).state(now); s.Fresh || s.Reason != dial.ReasonShape ||
		!strings.Contains(s.LastError, "price is 50") {
		t.Errorf("50 dollars: %+v", s)
	}
	if s := keeper("JPY", file).state(now); !s.Fresh || s.Signal.Series.At(now) != 50 {
		t.Errorf("50 yen: %+v", s)
	}
	for want, spec := range map[string]v1alpha1.TariffSource{
		"does not exist": {File: "absent.yaml"}, "not both": {File: "pricing-schedules.yaml", Price: new(0.1)},
		"price is missing": {TimeZone: "UTC"},
		"folder":           {File: "../x.yaml"},
	} {
		if s := keeper("USD", spec).state(now); s.Fresh || !strings.Contains(s.LastError, want) && want != "folder" {
			t.Errorf("%s: %+v", want, s)
		}
	}
}

// TestPricesOfSmallCurrencies verifies that the range check of prices in files and tariffs depends on the currency
// of the zone.
func TestPricesOfSmallCurrencies(t *testing.T) {
	now, dir := noon, t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "yen.csv"), []byte("t,JPY/kWh\n2026-03-10T12:00Z,31\n2026-03-10T13:00Z,28\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	d := testDeps(&now)
	d.Data = dir
	for name, source := range map[string]v1alpha1.PriceSource{
		"file":   {File: &v1alpha1.FileSource{Path: "yen.csv"}},
		"tariff": {Tariff: &v1alpha1.TariffSource{Price: new(31.0), TimeZone: "Asia/Tokyo"}},
	} {
		for currency, want := range map[string]bool{"JPY": true, "EUR": false} {
			k, err := NewPriceKeeper("DE", &v1alpha1.PriceSpec{
				Currency: currency, Sources: []v1alpha1.PriceSource{source},
			}, d)
			if err != nil {
				t.Fatal(err)
			}
			k.poll(t.Context())
			if s := k.state(now); s.Fresh != want || want && s.Signal.Series.At(now) != 31 {
				t.Errorf("%s: 31 %s: %+v", name, currency, s)
			}
		}
	}
}

// TestFileWithAChangeOfStep verifies that a price file with hours and then quarters of an hour is read, and that a
// file without a unit is rejected with the required word.
func TestFileWithAChangeOfStep(t *testing.T) {
	dir := t.TempDir()
	fetch := func(column string) (Answer, error) {
		var text strings.Builder
		fmt.Fprintf(&text, "Datetime (UTC),%s\n", column)
		for h := range 6 * 24 {
			at := noon.Add(time.Duration(h-3*24) * time.Hour)
			for q := range 4 {
				if q == 0 || at.After(noon) {
					fmt.Fprintf(&text, "%s,%d\n", at.Add(time.Duration(q)*15*time.Minute).Format(time.DateTime), 100+h+q)
				}
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "mtu.csv"), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := newFile(terms{zone: "DE", quantity: price, currency: "EUR"}, &v1alpha1.FileSource{Path: "mtu.csv"}, dir)
		if err != nil {
			t.Fatal(err)
		}
		return s.Fetch(t.Context(), noon)
	}
	a, err := fetch("Price (EUR/MWh)")
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range a.Points {
		hour, quarter := int(p.Time.Sub(noon.Add(-3*24*time.Hour))/time.Hour), int(p.Time.Sub(noon.Add(-3*24*time.Hour))/(15*time.Minute))%4
		if p.Time.Before(noon.Add(time.Hour)) {
			quarter = 0
		}
		if want := float64(100+hour+quarter) / 1000; i > 0 && p.Time.Sub(a.Points[i-1].Time) != 15*time.Minute ||
			math.Abs(p.Value-want) > 1e-9 {
			t.Fatalf("value at %v is %v, want %v", p.Time, p.Value, want)
		}
	}
	if _, err := fetch("LMP"); err == nil || !strings.Contains(err.Error(), "per-MWh") {
		t.Errorf("a price without a unit: %v", err)
	}
}
