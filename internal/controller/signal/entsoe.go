package signal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

const (
	entsoeURL      = "https://web-api.tp.entsoe.eu"
	entsoePrices   = "A44"
	entsoeDayAhead = "A01" // contract type day-ahead, in contrast to intraday
	entsoeOmitting = "A03" // curve type that omits positions with an unchanged value
	entsoeTime     = "200601021504"
	entsoeCoupled  = 1 // position of the coupled auction; 0 if there is only one auction
	maxPeriod      = 31 * 24 * time.Hour
)

// entsoe provides day-ahead prices of a bidding zone from the transparency platform of ENTSO-E.
type entsoe struct {
	spec  *v1alpha1.ENTSOESource
	fetch *fetcher
}

// Fetch requests the prices of today and tomorrow in UTC. The response contains all market days, which start at
// midnight in Brussels, that overlap with this period. The prices of tomorrow are available from the early
// afternoon.
func (s *entsoe) Fetch(ctx context.Context, now time.Time) (Answer, error) {
	token, err := s.fetch.keyFor(s.url(), s.spec.Key)
	if err != nil {
		return Answer{}, err
	}
	today := now.UTC().Truncate(24 * time.Hour)
	a, err := fetched(ctx, s.fetch, request{
		url: s.url(), path: "/api",
		query: url.Values{
			"documentType": {entsoePrices}, "in_Domain": {s.spec.Domain}, "out_Domain": {s.spec.Domain},
			"periodStart": {today.Format(entsoeTime)}, "periodEnd": {today.Add(48 * time.Hour).Format(entsoeTime)},
		},
		secret: url.Values{"securityToken": {token}},
		accept: "application/xml",
	}, s.decode)
	a.IssuedAt = newest(a.Points, now)
	return a, err
}

func (s *entsoe) url() string { return cmp.Or(s.spec.URL, entsoeURL) }

// entsoeDocument is a publication of prices, or an acknowledgement if there are no prices. Only local names of
// elements are matched, because the namespace depends on the version of the schema.
type entsoeDocument struct {
	XMLName xml.Name
	Series  []entsoeSeries `xml:"TimeSeries"`
	Reason  struct {
		Code string `xml:"code"`
		Text string `xml:"text"`
	} `xml:"Reason"`
}

type entsoeSeries struct {
	Contract string `xml:"contract_MarketAgreement.type"`
	// Auction is the position of the auction in zones with several auctions. The coupled auction is the first one. The
	// prices of others, such as that of EXAA in Germany and Austria, are published hours earlier and only indicate the
	// coupled prices.
	Auction  int            `xml:"classificationSequence_AttributeInstanceComponent.position"`
	Domain   string         `xml:"in_Domain.mRID"`
	Currency string         `xml:"currency_Unit.name"`
	Unit     string         `xml:"price_Measure_Unit.name"`
	Curve    string         `xml:"curveType"`
	Periods  []entsoePeriod `xml:"Period"`
}

type entsoePeriod struct {
	Start      string `xml:"timeInterval>start"`
	End        string `xml:"timeInterval>end"`
	Resolution string `xml:"resolution"`
	Points     []struct {
		Position int    `xml:"position"`
		Price    string `xml:"price.amount"`
	} `xml:"Point"`
}

// entsoeRun contains the prices of a period at regular times.
type entsoeRun struct {
	auction int
	step    time.Duration
	points  []Point
}

func (s *entsoe) decode(body []byte) (Answer, error) {
	doc, err := readENTSOE(body)
	if err != nil {
		return Answer{}, err
	}
	var runs []entsoeRun
	var currency string
	count := 0
	for _, series := range doc.Series {
		if series.Contract != "" && series.Contract != entsoeDayAhead {
			continue
		}
		switch {
		case series.Domain != "" && series.Domain != s.spec.Domain:
			return Answer{}, dial.Refuse(dial.ReasonZone, "the prices are for domain %.20q, want %s", series.Domain,
				s.spec.Domain)
		case series.Unit != "MWH":
			return Answer{}, dial.Refuse(dial.ReasonUnit, "the prices are per %.20q, want MWH", series.Unit)
		case series.Currency == "" || currency != "" && series.Currency != currency:
			return Answer{}, dial.Refuse(dial.ReasonUnit, "the prices are in %.10q and %.10q, want one currency",
				currency, series.Currency)
		}
		currency = series.Currency
		for _, period := range series.Periods {
			run, err := period.run(series.Curve == entsoeOmitting)
			if err != nil {
				return Answer{}, err
			}
			run.auction = series.Auction
			runs = append(runs, run)
			// A small response may represent many prices because positions can be omitted.
			if count += len(run.points); count > maxPoints {
				return Answer{}, dial.Refuse(dial.ReasonSize, "the response has more than %d prices", maxPoints)
			}
		}
	}
	if len(runs) == 0 {
		return Answer{}, dial.Refuse(dial.ReasonMissing, "the response has no day-ahead prices")
	}
	a := Answer{Currency: currency}
	a.Points, a.Step, err = mergeENTSOE(runs)
	return a, err
}

// readENTSOE parses a document. An acknowledgement is returned as an error with its reason.
func readENTSOE(body []byte) (entsoeDocument, error) {
	var doc entsoeDocument
	d := xml.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&doc); err != nil {
		return doc, dial.Refuse(dial.ReasonShape, "the response is not valid XML or is truncated: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) && len(bytes.TrimSpace(body[d.InputOffset():])) > 0 {
		return doc, dial.Refuse(dial.ReasonShape, "unexpected data after the end of the document")
	}
	switch doc.XMLName.Local {
	case "Publication_MarketDocument":
		return doc, nil
	case "Acknowledgement_MarketDocument":
		if doc.Reason.Code == "999" {
			return doc, dial.Refuse(dial.ReasonMissing, "no data: %.200s", strings.TrimSpace(doc.Reason.Text))
		}
		return doc, dial.Refuse(dial.ReasonShape, "the platform returned the reason %.10s: %.200s", doc.Reason.Code,
			strings.TrimSpace(doc.Reason.Text))
	}
	return doc, dial.Refuse(dial.ReasonShape, "the response is a %.40q, want a Publication_MarketDocument",
		doc.XMLName.Local)
}

// resolutions are the supported resolutions of prices.
var resolutions = map[string]time.Duration{
	"PT15M": 15 * time.Minute, "PT30M": 30 * time.Minute, "PT60M": time.Hour, "PT1H": time.Hour,
}

// times returns the start of a period, and the length and number of its steps.
func (p entsoePeriod) times() (start time.Time, step time.Duration, count int, err error) {
	if start, err = parseTime(p.Start); err != nil {
		return start, 0, 0, err
	}
	end, err := parseTime(p.End)
	if err != nil {
		return start, 0, 0, err
	}
	step, ok := resolutions[p.Resolution]
	if !ok {
		return start, 0, 0, dial.Refuse(dial.ReasonTime, "the resolution is %.10q, want PT15M, PT30M or PT60M",
			p.Resolution)
	}
	span := end.Sub(start)
	if span <= 0 || span > maxPeriod || span%step != 0 || !start.Equal(start.Truncate(step)) {
		return start, 0, 0, dial.Refuse(dial.ReasonTime, "invalid period with steps of %v from %s to %s", step,
			start.Format(time.RFC3339), end.Format(time.RFC3339))
	}
	return start, step, int(span / step), nil
}

// run returns the points of a period. If omitting is set, a price is in effect until the next position or, for the
// last one, until the end of the period.
func (p entsoePeriod) run(omitting bool) (entsoeRun, error) {
	start, step, count, err := p.times()
	if err != nil {
		return entsoeRun{}, err
	}
	if len(p.Points) == 0 || omitting && p.Points[0].Position != 1 {
		return entsoeRun{}, dial.Refuse(dial.ReasonShape, "the period from %s does not start with position 1",
			start.Format(time.RFC3339))
	}
	r := entsoeRun{step: step}
	last := 0
	for i, point := range p.Points {
		if point.Position <= last || point.Position > count {
			return entsoeRun{}, dial.Refuse(dial.ReasonTime, "the period from %s has position %d after %d of %d",
				start.Format(time.RFC3339), point.Position, last, count)
		}
		last = point.Position
		perMWh, err := parseNumber(strings.TrimSpace(point.Price))
		if err != nil {
			return entsoeRun{}, err
		}
		next := point.Position + 1
		if omitting {
			next = count + 1
			if i+1 < len(p.Points) {
				next = min(next, p.Points[i+1].Position) // validated in the next iteration
			}
		}
		for position := point.Position; position < next; position++ {
			r.points = append(r.points, Point{Time: start.Add(time.Duration(position-1) * step), Value: perMWh / 1000})
		}
	}
	return r, nil
}

// mergeENTSOE converts periods that may overlap to points with the finest step of all periods. If there are several
// prices for a time, the first auction takes precedence, followed by the finest step. Prices of other auctions than the
// coupled one are estimates. Conflicting prices of equal precedence result in two points with the same time, which the
// caller rejects.
func mergeENTSOE(runs []entsoeRun) ([]Point, time.Duration, error) {
	slices.SortStableFunc(runs, func(a, b entsoeRun) int {
		return cmp.Or(cmp.Compare(a.auction, b.auction), cmp.Compare(a.step, b.step))
	})
	step := runs[0].step
	for _, r := range runs {
		step = min(step, r.step)
	}
	type rank struct {
		auction int
		step    time.Duration
	}
	taken := map[time.Time]rank{}
	var points []Point
	for _, r := range runs {
		own := rank{r.auction, r.step}
		for _, p := range r.points {
			for t := p.Time; t.Before(p.Time.Add(r.step)); t = t.Add(step) {
				if by, ok := taken[t]; ok && by != own {
					continue
				}
				taken[t] = own
				points = append(points, Point{Time: t, Value: p.Value, Estimated: r.auction > entsoeCoupled})
			}
		}
		if len(points) > maxPoints {
			return nil, 0, dial.Refuse(dial.ReasonSize, "the response has more than %d prices", maxPoints)
		}
	}
	return points, step, nil
}
