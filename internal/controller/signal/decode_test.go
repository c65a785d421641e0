package signal

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

func on(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func sum(points []Point) (total float64) {
	for _, p := range points {
		total += p.Value
	}
	return total
}

func TestElectricityMapsRecorded(t *testing.T) {
	s := &electricityMaps{spec: &v1alpha1.ElectricityMapsSource{}, zone: "US-CAR-DUK", quantity: carbon}
	a, err := s.decode(data(t, "electricitymaps/latest_carbon_intensity.json"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Point{{Time: on("2024-03-06T19:00:00Z"), Value: 216, Estimated: true}}, a.Points); diff != "" {
		t.Error(diff)
	}
	s.zone = "de" // zones are the same in any case
	a, err = s.decode(data(t, "electricitymaps/carbon_intensity_history.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Points) != 24 || a.Points[0] != (Point{Time: on("2024-03-05T20:00:00Z"), Value: 599}) ||
		minGap(a.Points) != time.Hour {
		t.Errorf("%d points from %+v", len(a.Points), a.Points[0])
	}
	var estimated int
	for _, p := range a.Points {
		if p.Estimated {
			estimated++
		}
	}
	if total := sum(a.Points); total != 14399 || estimated != 2 {
		t.Errorf("sum of values = %v, with %d estimated values", total, estimated)
	}
	for _, name := range []string{
		"no-data-response.json", "unknown-response.json", "zones.json", "latest_power_breakdown.json",
	} {
		if a, err := s.decode(data(t, "electricitymaps/"+name)); err == nil {
			t.Errorf("decode(%s) returned %v, want an error", name, a.Points)
		}
	}
}

func TestElectricityMapsShapes(t *testing.T) {
	at := on("2026-03-10T12:00:00Z")
	want := []Point{{Time: at, Value: 75}}
	s := &electricityMaps{spec: &v1alpha1.ElectricityMapsSource{}, zone: "DE", quantity: carbon}
	for name, text := range map[string]string{
		"one":               `{"zone":"DE","carbonIntensity":75,"datetime":"2026-03-10T12:00:00.000Z","estimationMethod":null}`,
		"v4, value":         `{"zone":"DE","data":[{"value":75,"datetime":"2026-03-10T12:00:00Z","unit":"gCO2eq/kWh"}]}`,
		"v4, unit on top":   `{"zone":"DE","unit":"gCO2eq/kWh","data":[{"value":75,"datetime":"2026-03-10T12:00:00Z"}]}`,
		"history":           `{"zone":"DE","history":[{"zone":"DE","carbonIntensity":75,"datetime":"2026-03-10T12:00Z"}]}`,
		"forecast":          `{"zone":"DE","forecast":[{"carbonIntensity":75,"datetime":"2026-03-10T13:00:00+01:00"}],"updatedAt":"2026-03-10T11:58:00Z"}`,
		"zone in rows only": `{"data":[{"zone":"DE","carbonIntensity":75,"datetime":"2026-03-10T12:00:00Z"}]}`,
		"a gap":             `{"zone":"DE","history":[{"carbonIntensity":null,"datetime":"2026-03-10T11:00Z"},{"carbonIntensity":75,"datetime":"2026-03-10T12:00Z"}]}`,
	} {
		a, err := s.decode([]byte(text))
		if diff := cmp.Diff(want, a.Points); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	s.spec.EmissionFactors = "Direct"
	if _, err := s.decode([]byte(latest("DE", at, "75"))); err == nil || dial.ReasonOf(err) != dial.ReasonKind {
		t.Errorf("lifecycle instead of direct factors: %v", err)
	}
}

// TestElectricityMapsAsks verifies the parameters and the key of all requests.
func TestElectricityMapsAsks(t *testing.T) {
	now := noon
	hour := noon.Truncate(time.Hour)
	var asked []string
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.Header.Get("auth-token") != "sesame" || q.Get("zone") != "DE" || q.Get("disableCallerLookup") != "true" ||
			q.Get("shouldUseFallbackCallerLookup") != "false" || q.Get("emissionFactorType") != "direct" ||
			strings.Contains(r.URL.String(), "sesame") {
			t.Errorf("asked %s", r.URL)
		}
		asked = append(asked, strings.TrimPrefix(r.URL.Path, "/v3/carbon-intensity/"))
		at, key := hour, "data"
		switch {
		case strings.HasSuffix(r.URL.Path, "history"):
			at, key = hour.Add(-time.Hour), "history"
		case strings.HasSuffix(r.URL.Path, "forecast"):
			at, key = hour.Add(time.Hour), "forecast"
		}
		fmt.Fprintf(w, `{"zone":"DE",%q:[%s]}`, key, strings.Replace(latest("DE", at, "75"), "lifecycle", "direct", 1))
	})
	spec := &v1alpha1.ElectricityMapsSource{
		Version: "v3", URL: p.URL, Key: "em", EmissionFactors: "Direct", Forecast: true,
	}
	s := newElectricityMaps(terms{zone: "DE", quantity: carbon}, spec,
		testFetcher(t, p.Server, map[string]string{"em": "sesame"}))
	for range 4 {
		a, err := s.Fetch(t.Context(), now)
		if err != nil || len(a.Points) != 3 || a.Points[0].Estimated || !a.Points[2].Estimated {
			t.Fatalf("%+v, %v", a, err)
		}
		now = now.Add(15 * time.Minute)
	}
	if diff := cmp.Diff([]string{"latest", "history", "forecast", "latest", "latest", "latest"}, asked); diff != "" {
		t.Errorf("unexpected requests within an hour: %s", diff)
	}
}

// TestElectricityMapsWithoutForecast verifies that a forecast that is not part of the plan is requested only once
// per day, and that other data remains usable.
func TestElectricityMapsWithoutForecast(t *testing.T) {
	forecasts := 0
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "forecast") {
			forecasts++
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, latest("DE", noon.Truncate(time.Hour), "75"))
	})
	s := newElectricityMaps(terms{zone: "DE", quantity: carbon},
		&v1alpha1.ElectricityMapsSource{URL: p.URL, Forecast: true},
		testFetcher(t, p.Server, nil))
	for i := range 8 {
		a, err := s.Fetch(t.Context(), noon.Add(time.Duration(i)*time.Hour))
		if err != nil || len(a.Points) != 1 || (a.Lacks != nil) != (i == 0) {
			t.Fatalf("poll %d: %+v, %v", i, a, err)
		}
	}
	if forecasts != 1 {
		t.Errorf("%d forecasts were requested, want 1", forecasts)
	}
}

func TestElectricityMapsPrices(t *testing.T) {
	text := `{"zone":"DE","data":[
		{"datetime":"2026-03-10T12:00:00.000Z","value":81.5,"unit":"EUR/MWh","source":"x","updatedAt":"2026-03-09T11:30:00.000Z"},
		{"datetime":"2026-03-10T13:00:00.000Z","value":-4,"unit":"EUR/MWh","source":"x","updatedAt":"2026-03-10T11:29:00.000Z"}]}`
	p := newProvider(t, atPath(map[string]http.HandlerFunc{"/v4/price-day-ahead/combined": description("%s", text)}))
	f := testFetcher(t, p.Server, nil)
	s := newElectricityMaps(terms{zone: "DE", quantity: price, currency: "EUR"},
		&v1alpha1.ElectricityMapsSource{URL: p.URL}, f)
	a, err := s.Fetch(t.Context(), noon)
	if err != nil || a.Points[0].Value != 0.0815 || a.Points[1].Value != -0.004 || a.Step != time.Hour ||
		!a.IssuedAt.Equal(on("2026-03-10T11:29:00Z")) {
		t.Errorf("%+v, %v", a, err)
	}
	s = newElectricityMaps(terms{zone: "DE", quantity: price, currency: "GBP"},
		&v1alpha1.ElectricityMapsSource{URL: p.URL}, f)
	if _, err = s.Fetch(t.Context(), noon); err == nil || dial.ReasonOf(err) != dial.ReasonUnit {
		t.Errorf("prices in EUR instead of GBP: %v", err)
	}
}

func TestUKCarbonIntensityRecorded(t *testing.T) {
	s := &ukCarbonIntensity{spec: new(v1alpha1.UKCarbonIntensitySource)}
	a, err := s.decode(data(t, "uk_carbonintensity_fw24h_2020-05-24.json"))
	if err != nil {
		t.Fatal(err)
	}
	first := Point{Time: on("2020-05-24T20:30:00Z"), Value: 146, Estimated: true}
	if len(a.Points) != 49 || a.Points[0] != first || minGap(a.Points) != ukCarbonIntensitySlot || sum(a.Points) != 6292 {
		t.Errorf("%d slots from %+v with a sum of %v", len(a.Points), a.Points[0], sum(a.Points))
	}
}

func TestUKCarbonIntensity(t *testing.T) {
	var asked []string
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		slot := `{"from":"2026-03-10T%s","to":"2026-03-10T%s","intensity":{"forecast":184,%s"index":"moderate"}}`
		now := fmt.Sprintf(slot, "12:00Z", "12:30Z", `"actual":194,`) + "," + fmt.Sprintf(slot, "12:30Z", "13:00Z",
			`"actual":null,`)
		if strings.Contains(r.URL.Path, "pt24h") {
			now = fmt.Sprintf(slot, "11:30Z", "12:00Z", `"actual":190,`)
		}
		if strings.HasPrefix(r.URL.Path, "/regional") {
			fmt.Fprintf(w, `{"data":{"regionid":13,"shortname":"London","data":[%s]}}`, now)
			return
		}
		fmt.Fprintf(w, `{"data":[%s]}`, now)
	})
	half := func(h int, v float64, estimated bool) Point {
		return Point{
			Time: noon.Truncate(time.Hour).Add(time.Duration(h) * 30 * time.Minute), Value: v, Estimated: estimated,
		}
	}
	for _, spec := range []v1alpha1.UKCarbonIntensitySource{{URL: p.URL}, {URL: p.URL + "/", RegionID: 13}} {
		s, err := newUKCarbonIntensity("GB-LON", &spec, testFetcher(t, p.Server, nil))
		if err != nil {
			t.Fatal(err)
		}
		a, err := s.Fetch(t.Context(), noon)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]Point{half(0, 194, false), half(1, 184, true), half(-1, 190, false)},
			a.Points); diff != "" || !a.IssuedAt.Equal(half(0, 0, false).Time) {
			t.Errorf("issued at %v: %s", a.IssuedAt, diff)
		}
	}
	want := []string{
		"/intensity/2026-03-10T11:30Z/fw48h", "/intensity/2026-03-10T12:00Z/pt24h",
		"/regional/intensity/2026-03-10T11:30Z/fw48h/regionid/13",
		"/regional/intensity/2026-03-10T12:00Z/pt24h/regionid/13",
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
}

func TestWattTimeRecorded(t *testing.T) {
	s := &wattTime{spec: &v1alpha1.WattTimeSource{Region: "CAISO_NORTH"}}
	const want = 412.5 * 0.453592
	a, err := s.decode(data(t, "watttime/watttime-forecast-response-example.json"))
	if err != nil || len(a.Points) != 1 || math.Abs(a.Points[0].Value-want) > 1e-9 ||
		!a.Points[0].Time.Equal(on("2026-04-01T00:00:00Z")) || !a.IssuedAt.Equal(on("2026-05-03T10:00:00Z")) {
		t.Errorf("%+v, %v, %v", a.Points, a.IssuedAt, err)
	}
	if a, err = s.decode(data(t, "watttime/watttime-data-response-example.json")); err != nil ||
		math.Abs(a.Points[0].Value-187.1067) > 1e-9 || !a.IssuedAt.IsZero() {
		t.Errorf("%+v, %v, %v", a.Points, a.IssuedAt, err)
	}
	imputed := strings.Replace(string(data(t, "watttime/watttime-data-response-example.json")), `"value"`,
		`"imputed_data_used":true,"value"`, 1)
	if a, err = s.decode([]byte(imputed)); err != nil || !a.Points[0].Estimated {
		t.Errorf("imputed: %+v, %v", a.Points, err)
	}
	for _, name := range []string{"login", "my-access", "region"} {
		if _, err := s.decode(data(t, "watttime/watttime-"+name+"-response-example.json")); err == nil {
			t.Errorf("decode() of %s succeeded, want an error", name)
		}
	}
}

// TestWattTimeLogin verifies that a token is reused, that a rejected token is renewed once, and that a wrong
// password is not retried.
func TestWattTimeLogin(t *testing.T) {
	logins, valid, refuseAll := 0, "", false
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, basic := r.BasicAuth()
		switch {
		case r.URL.Path == "/login" && (!basic || user != "ali" || password != "ba:ba"):
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/login":
			logins++
			valid = fmt.Sprintf("token%d", logins)
			fmt.Fprintf(w, `{"token":%q}`, valid)
		case refuseAll || r.Header.Get("Authorization") != "Bearer "+valid:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			marginal("CAISO_NORTH", "lbs_co2_per_mwh", "co2_moer")(w, r)
		}
	})
	s := &wattTime{
		spec:  &v1alpha1.WattTimeSource{URL: p.URL, Region: "CAISO_NORTH", Key: "wt"},
		fetch: testFetcher(t, p.Server, map[string]string{"wt": "ali:ba:ba"}),
	}
	ask := func(after time.Duration, wantLogins int, ok bool) {
		t.Helper()
		_, err := s.Fetch(t.Context(), noon.Add(after))
		if (err == nil) != ok || logins != wantLogins {
			t.Fatalf("after %v: %d logins, %v", after, logins, err)
		}
	}
	ask(0, 1, true)
	ask(20*time.Minute, 1, true)
	ask(30*time.Minute, 2, true) // the token has expired
	valid = "another"
	ask(31*time.Minute, 3, true) // the token was rejected
	refuseAll = true
	before := p.requests.Load()
	ask(32*time.Minute, 4, false)
	if got := p.requests.Load() - before; got > 4 {
		t.Errorf("%d requests while all tokens are rejected, want 4", got)
	}
}

// TestWattTimeForecastAfterAnOutage verifies that a failed login does not disable the forecast for a day.
func TestWattTimeForecastAfterAnOutage(t *testing.T) {
	loginStatus, forecasts, forecastStatus := http.StatusOK, 0, http.StatusOK
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/login":
			w.WriteHeader(loginStatus)
			_, _ = io.WriteString(w, `{"token":"t"}`)
		case "/v3/forecast":
			forecasts++
			w.WriteHeader(forecastStatus)
			marginal("CAISO_NORTH", "lbs_co2_per_mwh", "co2_moer")(w, r)
		default:
			marginal("CAISO_NORTH", "lbs_co2_per_mwh", "co2_moer")(w, r)
		}
	})
	keys := map[string]string{}
	s := &wattTime{
		spec:  &v1alpha1.WattTimeSource{URL: p.URL, Region: "CAISO_NORTH", Key: "wt"},
		fetch: testFetcher(t, p.Server, keys),
	}
	ask := func(after time.Duration, wantForecasts int, ok bool) {
		t.Helper()
		if _, err := s.Fetch(t.Context(), noon.Add(after)); (err == nil) != ok || forecasts != wantForecasts {
			t.Fatalf("after %v: %d forecasts, %v", after, forecasts, err)
		}
	}
	ask(0, 0, false) // without a key
	keys["wt"], loginStatus = "ali:baba", http.StatusForbidden
	ask(5*time.Minute, 0, false)
	loginStatus = http.StatusOK
	ask(10*time.Minute, 1, true)
	forecastStatus = http.StatusForbidden // only the forecast is forbidden, because it is not part of the plan
	ask(15*time.Minute, 2, true)
	ask(20*time.Minute, 2, true)
	ask(25*time.Hour, 3, true)
}

func TestPrometheus(t *testing.T) {
	for name, text := range map[string]string{
		"vector": `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"zone":"DE"},"value":[1773145200.5,"0.42"]}]}}`,
		"scalar": `{"status":"success","data":{"resultType":"scalar","result":[1773145200.5,"0.42"]},"warnings":["x"]}`,
	} {
		p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/prom/api/v1/query" || r.URL.Query().Get("query") != `grid{zone="DE"}` ||
				r.Header.Get("Authorization") != "Bearer token" {
				t.Errorf("unexpected request to %s with header %q", r.URL, r.Header.Get("Authorization"))
			}
			_, _ = io.WriteString(w, text)
		})
		spec := &v1alpha1.PrometheusSource{
			URL: p.URL + "/prom/", Query: `grid{zone="DE"}`, Unit: "kg/kWh", Key: "k", Signal: "Marginal",
			Measured: name == "scalar",
		}
		s, err := newPrometheus(spec, carbon, testFetcher(t, p.Server, map[string]string{"k": "token"}))
		if err != nil {
			t.Fatal(err)
		}
		a, err := s.Fetch(t.Context(), noon)
		at := time.Unix(1773145200, 5e8)
		if err != nil || len(a.Points) != 1 || a.Points[0].Value != 420 || !a.Points[0].Time.Equal(at) ||
			!a.IssuedAt.Equal(at) || a.Points[0].Estimated == spec.Measured {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

func TestHTTP(t *testing.T) {
	hour := noon.Truncate(time.Hour)
	for _, c := range []struct {
		name   string
		spec   v1alpha1.HTTPSource
		text   string
		points []Point
		issued time.Time
	}{
		{
			"value",
			v1alpha1.HTTPSource{Value: "data.0.intensity", Unit: "lb/MWh", Measured: true},
			`{"data":[{"intensity":1000}]}`,
			[]Point{{Time: noon, Value: 453.592}},
			noon,
		},
		{
			"value marked as estimated",
			v1alpha1.HTTPSource{Value: "data.0.intensity", Measured: true},
			`{"data":[{"intensity":100,"isEstimated":true}]}`,
			[]Point{{Time: noon, Value: 100, Estimated: true}},
			noon,
		},
		{
			"value with a license",
			v1alpha1.HTTPSource{Value: "v", Measured: true},
			`{"_disclaimer":"This data is the exclusive property of its provider","v":100}`,
			[]Point{{Time: noon, Value: 100}},
			noon,
		},
		{
			"value with time",
			v1alpha1.HTTPSource{Value: "v", Time: "at"},
			`{"v":7,"at":"2026-03-10T12:00:00Z"}`,
			[]Point{{Time: hour, Value: 7, Estimated: true}},
			hour,
		},
		{
			"time in seconds",
			v1alpha1.HTTPSource{Value: "v", Time: "at"},
			`{"v":7,"at":1773144000}`,
			[]Point{{Time: hour, Value: 7, Estimated: true}},
			hour,
		},
		{
			"time in milliseconds",
			v1alpha1.HTTPSource{Value: "v", Time: "at"},
			`{"v":7,"at":1773144000000}`,
			[]Point{{Time: hour, Value: 7, Estimated: true}},
			hour,
		},
		{
			"list",
			v1alpha1.HTTPSource{List: "a.b", ListTime: "t", ListValue: "x.y", Zone: "z", Measured: true},
			`{"z":"DE","a":{"b":[{"t":"2026-03-10T13:00:00Z","x":{"y":8}},{"t":"2026-03-10T12:00:00Z","x":{"y":7}},{"t":"2026-03-10T14:00:00Z","x":{"y":null}}]}}`,
			[]Point{{Time: hour.Add(time.Hour), Value: 8}, {Time: hour, Value: 7}},
			hour,
		},
		{
			"list at the top",
			v1alpha1.HTTPSource{List: "0", ListTime: "0", ListValue: "1"},
			`[[["2026-03-10T12:00:00Z",7]]]`,
			[]Point{{Time: hour, Value: 7, Estimated: true}},
			hour,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/US CAL/x" || r.URL.RawQuery != "z=US%20CAL" || r.Header.Get("X-Key") != "token" {
					t.Errorf("unexpected request to %s with header %q", r.URL, r.Header.Get("X-Key"))
				}
				w.Header().Set("Date", noon.Format(http.TimeFormat))
				_, _ = io.WriteString(w, c.text)
			})
			c.spec.URL, c.spec.Key, c.spec.Header = p.URL+"/{zone}/x?z={zone}", "k", "x-key"
			s, err := newHTTP("US CAL", &c.spec, carbon, testFetcher(t, p.Server, map[string]string{"k": "token"}))
			if err != nil {
				t.Fatal(err)
			}
			a, err := s.Fetch(t.Context(), noon.Add(time.Minute))
			if diff := cmp.Diff(c.points, a.Points); err != nil || diff != "" || !a.IssuedAt.Equal(c.issued) {
				t.Errorf("error %v, issued at %v: %s", err, a.IssuedAt, diff)
			}
		})
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		q    quantity
		unit v1alpha1.Unit
		want float64 // 0 if the unit is rejected
	}{
		{carbon, "", 1},
		{carbon, "g/kWh", 1},
		{carbon, "kg/MWh", 1},
		{carbon, "lb/MWh", 0.453592},
		{carbon, "kg/kWh", 1000},
		{carbon, "per-kWh", 0},
		{carbon, "per-MWh", 0},
		{carbon, "cents/kWh", 0},
		{carbon, "stones", 0},
		{price, "", 1},
		{price, "per-kWh", 1},
		{price, "per-MWh", 0.001},
		{price, "cents/kWh", 0.01},
		{price, "g/kWh", 0},
		{price, "kg/MWh", 0},
		{price, "lb/MWh", 0},
		{price, "kg/kWh", 0},
	} {
		got, err := factor(c.q, c.unit)
		if got != c.want || (err == nil) != (c.want != 0) || err != nil && dial.ReasonOf(err) != dial.ReasonUnit {
			t.Errorf("%s in %q: %v, %v", c.q, c.unit, got, err)
		}
	}
}

// TestFile verifies that a file is read again after a change, and that symbolic links within the directory are
// followed, which mounted volumes use.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	write := func(value int, at time.Time) {
		t.Helper()
		path := filepath.Join(dir, "real.csv")
		text := fmt.Sprintf(
			"t,zone,v\n2026-03-10T12:00Z,DE,%d\n2026-03-10T13:00Z,DE,200\n2026-03-10T12:00Z,FR,9\n2026-03-10T13:00Z,FR,9\n", value)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(100, noon)
	if err := os.Symlink("real.csv", filepath.Join(dir, "link.csv")); err != nil {
		t.Skip("symbolic links are not supported")
	}
	s, err := newFile(terms{zone: "DE", quantity: carbon}, &v1alpha1.FileSource{Path: "link.csv"}, dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{100, 100, 300} {
		if i == 2 {
			write(300, noon.Add(time.Minute))
		}
		a, err := s.Fetch(t.Context(), noon)
		if err != nil || len(a.Points) != 2 || a.Points[0].Value != want || !a.Points[0].Estimated ||
			!a.Ageless || a.Step != time.Hour {
			t.Fatalf("%+v, %v", a, err)
		}
	}
}

func TestPaths(t *testing.T) {
	var v any
	if err := decode([]byte(`{"a":[{"b":1},[2,{"c":null}]],"0":{"d":true}}`), &v); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"a.0.b": "1", "a.1.0": "2", "0.d": "true", "a.1.1.c": "<nil>", "a.2": "<nil>", "a.-1": "<nil>", "a.x": "<nil>",
		"": "<nil>", "a..b": "<nil>", "a.0.b.c": "<nil>",
	} {
		if got := fmt.Sprint(standing(v, path)); got != want {
			t.Errorf("%q is %s, want %s", path, got, want)
		}
	}
}
