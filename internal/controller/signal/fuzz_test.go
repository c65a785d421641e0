package signal

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/controller/past"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// believable fails the test if an invalid answer passes the check, or if a valid one results in an invalid status.
func believable(t *testing.T, a Answer, marginal bool) {
	w := terms{zone: "DE", quantity: carbon, marginal: marginal, maxAge: 2 * time.Hour}
	if a.Zone != "" {
		w.zone = a.Zone
	}
	present, err := w.check(&a, noon)
	if err != nil {
		if dial.ReasonOf(err) == "" {
			t.Errorf("error without a reason: %v", err)
		}
		return
	}
	_ = new(standstill).frozen(&a, noon)
	h := &past.Track{Span: historySpan}
	a.addTo(h, noon)
	s := w.read(&a, present, noon, "x")
	l := &link{name: "x"}
	l.complete(s, basis{track: h}, noon)
	for i, v := range s.Values {
		if math.IsNaN(v) || v < 0 || v > maxIntensity || s.Low != nil && (s.Low[i] > v || s.High[i] < v) {
			t.Fatalf("invalid value %v was accepted", v)
		}
	}
	if expired(s, noon, w.maxAge) || len(s.Values) > maxValues || s.Step.Duration < minStep {
		t.Fatalf("%d values with step %v from %v", len(s.Values), s.Step, s.Start)
	}
	l.status = s
	k := &Keeper{terms: w, links: []*link{l}}
	if got := k.state(noon); !got.Fresh || got.Signal.Series == nil {
		t.Fatalf("%+v", got)
	}
}

func FuzzElectricityMaps(f *testing.F) {
	f.Add([]byte(latest("DE", noon.Truncate(time.Hour), "300")))
	f.Add(
		[]byte(
			`{"zone":"DE","history":[{"value":1,"unit":"gCO2eq/kWh","datetime":"2026-03-10T12:00Z"}],"forecast":[{"carbonIntensity":null}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		defer memtest.Limit(t, 100*len(body))()
		s := &electricityMaps{spec: new(v1alpha1.ElectricityMapsSource), zone: "DE", quantity: carbon}
		if a, err := s.decode(body); err == nil {
			a.Step, a.IssuedAt = minGap(a.Points), newest(a.Points, noon)
			believable(t, a, false)
		}
		s.quantity, s.currency = price, "EUR"
		_, _ = s.decode(body)
	})
}

func FuzzUKCarbonIntensity(f *testing.F) {
	f.Add(
		[]byte(
			`{"data":[{"from":"2026-03-10T12:00Z","to":"2026-03-10T12:30Z","intensity":{"forecast":184,"actual":null}}]}`))
	f.Add([]byte(regional(noon.Truncate(time.Hour), noon.Truncate(time.Hour).Add(30*time.Minute), "RG10",
		`"forecast":1`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		defer memtest.Limit(t, 100*len(body))()
		for _, spec := range []v1alpha1.UKCarbonIntensitySource{{}, {Postcode: "RG10"}} {
			s := &ukCarbonIntensity{spec: &spec}
			if a, err := s.decode(body); err == nil {
				a.Step, a.IssuedAt = ukCarbonIntensitySlot, newest(a.Points, noon)
				believable(t, a, false)
			}
		}
	})
}

func FuzzWattTime(f *testing.F) {
	f.Add(
		[]byte(
			`{"data":[{"point_time":"2026-03-10T12:15:00+00:00","value":900}],"meta":{"region":"A","signal_type":"co2_moer","units":"lbs_co2_per_mwh","data_point_period_seconds":300}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		defer memtest.Limit(t, 100*len(body))()
		s := &wattTime{spec: &v1alpha1.WattTimeSource{Region: "A"}}
		if a, err := s.decode(body); err == nil {
			a.Step = wattTimeStep
			believable(t, a, true)
		}
	})
}

func FuzzPrometheus(f *testing.F) {
	f.Add([]byte(sampleText(noon, "300")))
	f.Add([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1773145200.5,"0.42"]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		defer memtest.Limit(t, 100*len(body))()
		_, _ = decodePrometheusRange(body)
		if p, err := decodePrometheus(body); err == nil {
			believable(t, Answer{Points: []Point{p}, IssuedAt: p.Time}, false)
		}
	})
}

func FuzzHTTP(f *testing.F) {
	f.Add([]byte(list("DE", 1, "300", "310")), "v", "0", "1")
	f.Add([]byte(`{"a":{"b":[{"t":"2026-03-10T13:00:00Z","x":{"y":8}}]}}`), "a.b", "t", "x.y")
	f.Fuzz(func(t *testing.T, body []byte, one, two, three string) {
		defer memtest.Limit(t, 100*(len(body)+len(one)+len(two)+len(three)))()
		l := &httpJSON{spec: &v1alpha1.HTTPSource{List: one, ListTime: two, ListValue: three}, scale: 1}
		if a, err := l.decode(body, noon, noon); err == nil {
			believable(t, a, false)
		}
		v := &httpJSON{spec: &v1alpha1.HTTPSource{Value: one, Time: two, Zone: three}, scale: 1000}
		if a, err := v.decode(body, noon, noon); err == nil {
			believable(t, a, false)
		}
	})
}

func FuzzOctopus(f *testing.F) {
	f.Add([]byte(`{"results":[{"value_inc_vat":20.5,"valid_from":"2026-03-10T12:00:00Z","valid_to":null,
		"payment_method":null},
		{"value_inc_vat":-3,"valid_from":"2026-03-09T11:30:00Z","valid_to":"2026-03-10T12:00:00Z"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		defer memtest.Limit(t, 100*len(body))()
		from, until := noon.Add(-24*time.Hour), noon.Add(48*time.Hour)
		points, err := octopusRates(body, from, until)
		for _, p := range points {
			if err != nil || p.Time.Before(from) || !p.Time.Before(until) || math.IsNaN(p.Value) {
				t.Fatalf("unexpected point %+v, error %v", p, err)
			}
		}
		a := Answer{Points: points, Step: octopusSlot, IssuedAt: newest(points, noon), Currency: "GBP"}
		w := terms{zone: "GB", quantity: price, currency: "GBP", maxAge: 2 * time.Hour}
		present, err := w.check(&a, noon)
		if err == nil && !(math.Abs(w.read(&a, present, noon, "x").Now) <= grid.MaxPrice) {
			t.Fatalf("invalid answer %+v was accepted", a)
		}
	})
}

// FuzzZone parses the spec of a GridZone, polls all sources that need no server, and verifies the resulting status.
func FuzzZone(f *testing.F) {
	f.Add([]byte(`{"zone":"DE","carbon":{"signal":"Average","maxAge":"2h","sources":[{"static":{"value":300}},
		{"typical":{}},
		{"file":{"path":"a.csv"}},{"electricityMaps":{"key":"k"},"every":"1s","maxCallsPerHour":-1}]},"price":{"currency":
		"EUR","sources":[{"tariff":{"price":0.3,"timeZone":"Europe/Berlin","periods":[{"price":0.1,"from":"22:00","to":
		"06:00","days":["Sat"]}]}},{"static":{"value":-0.1}},{"octopus":{}},{"entsoe":{}}]}}`))
	f.Add([]byte(`{"zone":"?","carbon":{"signal":"Marginal","maxAge":"1ns","sources":[{"typical":{"zone":"FR"}},
		{},{"http":{
		"url":"http://10.0.0.1","value":"$.a[0]"}},{"prometheus":{"url":":","query":"q"}},{"wattTime":{}}]}}`))
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		var spec v1alpha1.GridZoneSpec
		if json.Unmarshal(text, &spec) != nil {
			return
		}
		clock := func() time.Time { return noon }
		d := Deps{
			Calls: refusing{}, Data: folder, Clock: clock, Log: slog.New(slog.DiscardHandler),
			Metrics: NewMetrics(clock),
		}
		var keepers []*Keeper
		if spec.Carbon != nil {
			k, _ := NewCarbonKeeper(grid.Zone(spec.Zone), spec.Carbon, d)
			keepers = append(keepers, k)
		}
		if spec.Price != nil {
			k, _ := NewPriceKeeper(grid.Zone(spec.Zone), spec.Price, d)
			keepers = append(keepers, k)
		}
		for _, k := range keepers {
			if k == nil {
				continue
			}
			for range k.links { // each poll adds one source of the chain
				k.poll(t.Context())
			}
			if next := k.poll(t.Context()); !next.After(noon) {
				t.Fatalf("the next poll is at %v, want a later time", next)
			}
			for _, l := range k.links {
				if err := l.err; err != nil && strings.Contains(err.Error(), "reading the response: runtime error") {
					t.Fatal(err)
				}
			}
			s, _ := k.Look(noon)
			if s == nil {
				continue
			}
			for _, v := range s.Values {
				if k.terms.quantity == carbon && !(v >= 0 && v <= maxIntensity) ||
					k.terms.quantity == price && !(math.Abs(v) <= grid.MaxPrice) {
					t.Fatalf("invalid value %v was accepted", v)
				}
			}
			if s.Step.Duration <= 0 || len(s.Values) == 0 || len(s.Values) > maxValues {
				t.Fatalf("%d values with step %v", len(s.Values), s.Step)
			}
		}
	})
}

// refusing is a budget that grants no requests.
type refusing struct{}

func (refusing) Reserve(_ context.Context, _ string, _ int, now time.Time) (bool, time.Time, error) {
	return false, now.Add(time.Hour), nil
}
func (refusing) Block(context.Context, string, time.Time, time.Time) error { return nil }
