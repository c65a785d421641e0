package signal

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

const electricityMapsURL = "https://api.electricitymaps.com"

// The history and the forecast change at most hourly. If they cannot be refreshed, they remain useful for some
// hours.
const (
	electricityMapsSlow = 55 * time.Minute
	electricityMapsKeep = 4 * time.Hour
)

// electricityMaps implements the API of Electricity Maps, versions 3 and 4. If several responses contain the same
// hour, the latest value takes precedence over the history, and the history over the forecast.
type electricityMaps struct {
	spec     *v1alpha1.ElectricityMapsSource
	fetch    *fetcher
	zone     grid.Zone
	quantity quantity
	currency string // of prices

	history, forecast extra
}

func newElectricityMaps(w terms, spec *v1alpha1.ElectricityMapsSource, f *fetcher) *electricityMaps {
	return &electricityMaps{
		spec: spec, fetch: f, zone: cmp.Or(grid.Zone(spec.Zone), w.zone), quantity: w.quantity, currency: w.currency,
	}
}

// Fetch requests the latest intensity and, at most hourly, the last day and the forecast. For prices, it requests
// the day-ahead prices.
func (s *electricityMaps) Fetch(ctx context.Context, now time.Time) (Answer, error) {
	if s.quantity == price {
		a, err := s.get(ctx, "price-day-ahead/combined", nil)
		if a.IssuedAt.IsZero() {
			a.IssuedAt = newest(a.Points, now)
		}
		a.Step = minGap(a.Points)
		return a, err
	}
	a, err := s.get(ctx, "carbon-intensity/latest", nil)
	if err != nil {
		return Answer{}, err
	}
	a.Step, a.IssuedAt = time.Hour, time.Time{}
	for _, p := range a.Points { // updatedAt is also recent if the value is old
		a.IssuedAt = timeutil.Later(a.IssuedAt, p.Time)
	}
	lacks, wrong := s.history.renew(now, electricityMapsSlow, electricityMapsKeep, func() (Answer, error) {
		return s.get(ctx, "carbon-intensity/history", nil)
	})
	if wrong == nil && s.spec.Forecast {
		var more error
		more, wrong = s.forecast.renew(now, electricityMapsSlow, electricityMapsKeep, func() (Answer, error) {
			a, err := s.get(ctx, "carbon-intensity/forecast", url.Values{"horizonHours": {"48"}})
			return a.estimated(), err
		})
		lacks = cmp.Or(more, lacks)
	}
	if wrong != nil {
		return Answer{}, wrong
	}
	a.Lacks = lacks
	a.Points = supplement(supplement(a.Points, s.history.Points), s.forecast.Points)
	return a, nil
}

// get sends a single request.
func (s *electricityMaps) get(ctx context.Context, path string, query url.Values) (Answer, error) {
	r := request{
		url: cmp.Or(s.spec.URL, electricityMapsURL), path: "/" + cmp.Or(s.spec.Version, "v4") + "/" + path,
		query: url.Values{
			"zone":                {string(s.zone)},
			"temporalGranularity": {"hourly"},
			// Without these parameters (the current and the previous name of the same option), requests for an
			// unknown zone return the zone of the caller's IP address.
			"disableCallerLookup":           {"true"},
			"shouldUseFallbackCallerLookup": {"false"},
		},
		key: s.spec.Key, keyHeader: "Auth-Token",
	}
	if s.quantity == carbon {
		r.query.Set("emissionFactorType", s.factors())
	}
	maps.Copy(r.query, query)
	return fetched(ctx, s.fetch, r, s.decode)
}

func (s *electricityMaps) factors() string {
	return strings.ToLower(cmp.Or(s.spec.EmissionFactors, "lifecycle"))
}

// electricityMapsRow is a value. It has the same format in both versions and in all responses.
type electricityMapsRow struct {
	Zone               string  `json:"zone"`
	CarbonIntensity    number  `json:"carbonIntensity"`
	Value              number  `json:"value"`
	Unit               string  `json:"unit"`
	Datetime           instant `json:"datetime"`
	UpdatedAt          instant `json:"updatedAt"`
	EmissionFactorType string  `json:"emissionFactorType"`
	IsEstimated        bool    `json:"isEstimated"`
	EstimationMethod   string  `json:"estimationMethod"`
	Disclaimer         string  `json:"_disclaimer"`
}

// electricityMapsText is a response with a single row, or with rows in one of three fields.
type electricityMapsText struct {
	electricityMapsRow

	Data     []electricityMapsRow `json:"data"`
	History  []electricityMapsRow `json:"history"`
	Forecast []electricityMapsRow `json:"forecast"`
}

// decode parses a response. IssuedAt is the time of its last update. Each row, or the response as a whole, must be
// of the requested zone.
func (s *electricityMaps) decode(body []byte) (Answer, error) {
	var text electricityMapsText
	if err := decode(body, &text); err != nil {
		return Answer{}, err
	}
	rows := slices.Concat(text.Data, text.History, text.Forecast)
	if len(rows) == 0 {
		rows = append(rows, text.electricityMapsRow)
	}
	a := Answer{IssuedAt: text.UpdatedAt.Time}
	for _, row := range rows {
		if err := sandbox(text.EstimationMethod, text.Disclaimer, row.EstimationMethod, row.Disclaimer); err != nil {
			return Answer{}, err
		}
		row.Zone, row.Unit = cmp.Or(row.Zone, text.Zone), cmp.Or(row.Unit, text.Unit)
		if !strings.EqualFold(row.Zone, string(s.zone)) {
			return Answer{}, dial.Refuse(dial.ReasonZone, "the response is for zone %.40q, want %s", row.Zone, s.zone)
		}
		p, known, err := s.point(row)
		if err != nil {
			return Answer{}, err
		}
		if !known {
			continue // a gap
		}
		a.IssuedAt = timeutil.Later(a.IssuedAt, row.UpdatedAt.Time)
		a.Points = append(a.Points, p)
	}
	if len(a.Points) == 0 {
		return Answer{}, dial.Refuse(dial.ReasonMissing, "the response has no values or only null")
	}
	return a, nil
}

// sandbox returns an error if the marks of a value by Electricity Maps state that a sandbox key was used. Such values
// are invented. Disclaimers with other contents, such as the license, are ignored.
func sandbox(marks ...any) error {
	for _, mark := range marks {
		if text, ok := mark.(string); ok && strings.Contains(strings.ToLower(text), "sandbox") {
			return dial.Refuse(dial.ReasonKind, "the key is for the sandbox, so the values are invented: %.80q", text)
		}
	}
	return nil
}

// point converts a row. known is false if the row has no value.
func (s *electricityMaps) point(row electricityMapsRow) (p Point, known bool, err error) {
	value := row.Value
	if s.quantity == carbon && row.CarbonIntensity.set {
		value = row.CarbonIntensity
	}
	scale, err := s.scale(row.Unit)
	switch {
	case err != nil:
		return Point{}, false, err
	case !value.set:
		return Point{}, false, nil
	case row.Datetime.IsZero():
		return Point{}, false, dial.Refuse(dial.ReasonTime, "a value has no datetime")
	case s.quantity == carbon && row.EmissionFactorType != "" &&
		!strings.EqualFold(row.EmissionFactorType, s.factors()):
		return Point{}, false, dial.Refuse(dial.ReasonKind,
			"the values use %.20q emission factors, want %s", row.EmissionFactorType, s.factors())
	}
	return Point{
		Time: row.Datetime.Time, Value: value.value * scale, Estimated: row.IsEstimated || row.EstimationMethod != "",
	}, true, nil
}

// scale returns the conversion factor of a unit. The unit is required for prices and optional for intensities.
func (s *electricityMaps) scale(unit string) (float64, error) {
	want := s.currency + "/MWh"
	switch {
	case s.quantity == price && unit == want:
		return 1.0 / 1000, nil
	case s.quantity == price && unit == s.currency+"/kWh":
		return 1, nil
	case s.quantity == carbon:
		if want = "gCO2eq/kWh"; unit == "" || strings.EqualFold(unit, want) || strings.EqualFold(unit, "gCO2e/kWh") {
			return 1, nil
		}
	}
	return 0, dial.Refuse(dial.ReasonUnit, "the unit is %.20q, want %s", unit, want)
}
