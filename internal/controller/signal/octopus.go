package signal

import (
	"cmp"
	"context"
	"net/url"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

const (
	octopusURL  = "https://api.octopus.energy"
	octopusSlot = 30 * time.Minute
)

// octopus provides the unit rates of a tariff of Octopus Energy for customers in Great Britain, including VAT.
type octopus struct {
	spec  *v1alpha1.OctopusSource
	fetch *fetcher
}

// Fetch requests the last day and the next two days. These half-hourly rates fit on one page. Further pages would
// contain older rates.
func (s *octopus) Fetch(ctx context.Context, now time.Time) (Answer, error) {
	from := now.UTC().Truncate(octopusSlot).Add(-24 * time.Hour)
	until := from.Add(72 * time.Hour)
	points, err := fetched(ctx, s.fetch, request{
		url: cmp.Or(s.spec.URL, octopusURL), path: "/v1/products/" + url.PathEscape(s.spec.Product) +
			"/electricity-tariffs/" + url.PathEscape(s.spec.Tariff) + "/standard-unit-rates/",
		query: url.Values{
			"period_from": {from.Format(time.RFC3339)}, "period_to": {until.Format(time.RFC3339)}, "page_size": {"300"},
		},
	}, func(body []byte) ([]Point, error) { return octopusRates(body, from, until) })
	return Answer{Points: points, Step: octopusSlot, IssuedAt: newest(points, now), Currency: "GBP"}, err
}

// octopusRates parses a response and returns the half-hourly prices in the given time range.
func octopusRates(body []byte, from, until time.Time) ([]Point, error) {
	var text struct {
		// Results contains the price of each period in pence per kWh. A result without an end is in effect until
		// further notice.
		Results []struct {
			ValueIncVAT   number  `json:"value_inc_vat"`
			ValidFrom     instant `json:"valid_from"`
			ValidTo       instant `json:"valid_to"`
			PaymentMethod string  `json:"payment_method"`
		} `json:"results"`
	}
	if err := decode(body, &text); err != nil {
		return nil, err
	}
	var points []Point
	for _, r := range text.Results {
		start, end := r.ValidFrom.Time, r.ValidTo.Time
		if end.IsZero() || end.After(until) {
			end = until
		}
		switch {
		case r.PaymentMethod == "NON_DIRECT_DEBIT":
			continue // a second price of the same period for other payment methods
		case !r.ValueIncVAT.set:
			return nil, dial.Refuse(dial.ReasonShape, "a rate has no field value_inc_vat")
		case start.IsZero() || !start.Equal(start.Truncate(octopusSlot)) || !end.Equal(end.Truncate(octopusSlot)):
			return nil, dial.Refuse(dial.ReasonTime, "a rate is valid from %s to %s, want half hours",
				start.Format(time.RFC3339), end.Format(time.RFC3339))
		}
		for t := timeutil.Later(start, from); t.Before(end); t = t.Add(octopusSlot) {
			points = append(points, Point{Time: t, Value: r.ValueIncVAT.value / 100})
		}
		if len(points) > maxPoints {
			return nil, dial.Refuse(dial.ReasonSize, "the rates overlap: they cover more than %d half hours", maxPoints)
		}
	}
	if len(points) == 0 {
		return nil, dial.Refuse(dial.ReasonMissing, "no rates from %s to %s in the response",
			from.Format(time.RFC3339), until.Format(time.RFC3339))
	}
	return points, nil
}
