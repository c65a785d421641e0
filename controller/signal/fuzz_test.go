package signal

import (
	"math"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/controller/dial"
)

// believable fails if an answer passes the check that should not, or becomes a reading that nobody may see.
func believable(t *testing.T, a Answer, marginal bool) {
	w := terms{zone: "DE", quantity: carbon, marginal: marginal, maxAge: 2 * time.Hour}
	if a.Zone != "" {
		w.zone = a.Zone
	}
	present, err := w.check(&a, noon)
	if err != nil {
		if dial.ReasonOf(err) == "" {
			t.Errorf("no reason: %v", err)
		}
		return
	}
	_ = new(standstill).frozen(&a, noon)
	h := &Track{Span: historySpan}
	h.add(&a, noon)
	s := w.read(&a, present, noon, "x")
	l := &link{name: "x"}
	l.complete(s, h, nil, noon)
	for i, v := range s.Values {
		if math.IsNaN(v) || v < 0 || v > maxIntensity || s.Low != nil && (s.Low[i] > v || s.High[i] < v) {
			t.Fatalf("%v is believed", v)
		}
	}
	if expired(s, noon, w.maxAge) || len(s.Values) > maxValues || s.Step.Duration < minStep {
		t.Fatalf("%d values of %v from %v", len(s.Values), s.Step, s.Start)
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
		s := &wattTime{spec: &v1alpha1.WattTimeSource{Region: "A"}}
		if a, err := s.decode(body); err == nil {
			a.Step, a.Marginal = wattTimeStep, true
			believable(t, a, true)
		}
	})
}

func FuzzPrometheus(f *testing.F) {
	f.Add([]byte(sampleText(noon, "300")))
	f.Add([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1773145200.5,"0.42"]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if p, err := decodePrometheus(body); err == nil {
			believable(t, Answer{Points: []Point{p}, IssuedAt: p.Time}, false)
		}
	})
}

func FuzzHTTP(f *testing.F) {
	f.Add([]byte(list("DE", 1, "300", "310")), "v", "0", "1")
	f.Add([]byte(`{"a":{"b":[{"t":"2026-03-10T13:00:00Z","x":{"y":8}}]}}`), "a.b", "t", "x.y")
	f.Fuzz(func(t *testing.T, body []byte, one, two, three string) {
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
