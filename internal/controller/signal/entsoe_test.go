package signal

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

const dutch = "10YNL----------L"

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestENTSOE(t *testing.T) {
	var asked string
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path + "?" + r.URL.RawQuery
		_, _ = w.Write(fixture(t, "entsoe_day_ahead.xml"))
	})
	s := &entsoe{
		&v1alpha1.ENTSOESource{Domain: dutch, Key: "entsoe", URL: p.URL},
		testFetcher(t, p.Server, map[string]string{"entsoe": "sesame\n"}),
	}
	a, err := s.Fetch(t.Context(), noon)
	if err != nil {
		t.Fatal(err)
	}
	want := "/api?documentType=A44&in_Domain=" + dutch + "&out_Domain=" + dutch +
		"&periodEnd=202603120000&periodStart=202603100000&securityToken=sesame"
	if asked != want {
		t.Errorf("requested %s\nwant      %s", asked, want)
	}
	if a.Currency != "EUR" || a.Step != 15*time.Minute ||
		!a.IssuedAt.Equal(time.Date(2026, 3, 10, 12, 15, 0, 0, time.UTC)) || a.Ageless {
		t.Errorf("answer with currency %s, step %v, issued at %v", a.Currency, a.Step, a.IssuedAt)
	}
	if _, err = (terms{quantity: price, currency: "EUR", maxAge: 36 * time.Hour}).check(&a, noon); err != nil {
		t.Fatal(err)
	}
	if len(a.Points) != 2*96 {
		t.Errorf("got %d prices, want two days of quarter hours", len(a.Points))
	}
	for at, want := range map[string]float64{
		"2026-03-09T23:00Z": 0.08110,
		"2026-03-09T23:15Z": 0.07990, // takes precedence over the hourly 80.00
		"2026-03-10T09:00Z": 0.07990, // omitted, so the previous price applies instead of the hourly 60.00
		"2026-03-10T11:59Z": 0.07990,
		"2026-03-10T12:00Z": 0.02000, // position 53
		"2026-03-10T12:29Z": 0.02000,
		"2026-03-10T12:30Z": -0.00500,
		"2026-03-10T12:45Z": 0.04000,
		"2026-03-10T22:59Z": 0.04000, // to the end of the period
		"2026-03-10T23:00Z": 0.07050, // the hours of the next day
		"2026-03-11T10:45Z": 0.07050,
		"2026-03-11T11:00Z": -0.01225,
		"2026-03-11T13:59Z": -0.01225,
		"2026-03-11T14:00Z": 0.09000,
		"2026-03-11T22:45Z": 0.09000,
	} {
		moment, err := parseTime(at)
		if err != nil {
			t.Fatal(err)
		}
		p, ok := a.at(moment)
		if !ok || math.Abs(p.Value-want) > 1e-12 {
			t.Errorf("price at %s = %v, want %v", at, p.Value, want)
		}
	}
	if _, ok := a.at(time.Date(2026, 3, 11, 23, 0, 0, 0, time.UTC)); ok {
		t.Error("unexpected price after the end of the last period")
	}
}

func TestENTSOEWithoutData(t *testing.T) {
	p := newProvider(t, description("%s", fixture(t, "entsoe_no_data.xml")))
	s := &entsoe{
		&v1alpha1.ENTSOESource{Domain: dutch, Key: "entsoe", URL: p.URL},
		testFetcher(t, p.Server, map[string]string{"entsoe": "sesame"}),
	}
	_, err := s.Fetch(t.Context(), noon)
	if dial.ReasonOf(err) != dial.ReasonMissing || !strings.Contains(err.Error(), "No matching data found") {
		t.Errorf("without data: %v", err)
	}
	bare := &entsoe{&v1alpha1.ENTSOESource{Domain: dutch, Key: "other", URL: p.URL}, testFetcher(t, p.Server, nil)}
	before := p.requests.Load()
	if _, err := bare.Fetch(t.Context(), noon); dial.ReasonOf(err) != dial.ReasonAuth || p.requests.Load() != before {
		t.Errorf("without a key: %v, after %d requests", err, p.requests.Load()-before)
	}
}

// entsoeText returns a document with one series and one period that starts on March 9 at 23:00.
func entsoeText(series, period, end, resolution, points string) string {
	return `<Publication_MarketDocument xmlns="urn:iec62325.351:tc57wg16:451-3:publicationdocument:7:0">` +
		entsoeSeriesText(series, period, end, resolution, points) + `</Publication_MarketDocument>`
}

func entsoeSeriesText(series, start, end, resolution, points string) string {
	return fmt.Sprintf(
		`<TimeSeries><price_Measure_Unit.name>MWH</price_Measure_Unit.name>%s<Period><timeInterval><start>%s</start><end>%s</end></timeInterval><resolution>%s</resolution>%s</Period></TimeSeries>`,
		series, start, end, resolution, points)
}

func entsoePoints(prices ...any) string {
	var b strings.Builder
	for i := 0; i < len(prices); i += 2 {
		fmt.Fprintf(&b, "<Point><position>%v</position><price.amount>%v</price.amount></Point>", prices[i], prices[i+1])
	}
	return b.String()
}

const (
	inEUR    = `<currency_Unit.name>EUR</currency_Unit.name>`
	omitting = inEUR + `<curveType>A03</curveType>`
	ninth    = "2026-03-09T23:00Z"
	tenth    = "2026-03-10T23:00Z"
)

func TestENTSOEOnDaysOf23And25Hours(t *testing.T) {
	s := &entsoe{spec: &v1alpha1.ENTSOESource{Domain: dutch}}
	for _, c := range []struct {
		start, end string
		hours      int
	}{{"2026-03-28T23:00Z", "2026-03-29T22:00Z", 23}, {"2026-10-24T22:00Z", "2026-10-25T23:00Z", 25}} {
		a, err := s.decode([]byte(entsoeText(omitting, c.start, c.end, "PT60M", entsoePoints(1, 50, 3, 60))))
		if err != nil {
			t.Fatal(err)
		}
		last := a.Points[len(a.Points)-1]
		end, err := parseTime(c.end)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Points) != c.hours || last.Value != 0.06 || !last.Time.Add(time.Hour).Equal(end) ||
			a.Points[1].Value != 0.05 {
			t.Errorf("period from %s: %d hours, the last one at %v", c.start, len(a.Points), last)
		}
	}
}

func TestENTSOEAnswersThatArePartlyUsed(t *testing.T) {
	s := &entsoe{spec: &v1alpha1.ENTSOESource{Domain: dutch}}
	const two, four = "2026-03-10T01:00Z", "2026-03-10T03:00Z"
	auction := func(position int) string {
		return fmt.Sprintf("<classificationSequence_AttributeInstanceComponent.position>%d"+
			"</classificationSequence_AttributeInstanceComponent.position>", position)
	}
	other := func(extra, resolution, points string) string {
		return entsoeSeriesText(extra, ninth, two, resolution, points)
	}
	whole := func(series ...string) string {
		return "<x:Publication_MarketDocument xmlns:x=\"urn:any\">" + strings.Join(series, "") +
			"</x:Publication_MarketDocument>"
	}
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"a gap if positions cannot be omitted": {
			whole(other(inEUR, "PT30M", entsoePoints(1, 10, 4, 40))),
			"0.01@0 0.04@90",
		},
		"every position": {
			whole(other(inEUR, "PT1H", entsoePoints(1, 10, 2, 20))),
			"0.01@0 0.02@60",
		},
		"intraday prices are ignored": {whole(other(omitting, "PT60M", entsoePoints(1, 10)),
			other(omitting+"<contract_MarketAgreement.type>A07</contract_MarketAgreement.type>", "PT15M",
				entsoePoints(1, 99))), "0.01@0 0.01@60"},
		"the first auction takes precedence over a finer one": {whole(
			other(omitting+auction(2), "PT30M", entsoePoints(1, 99)),
			other(omitting+auction(1), "PT60M", entsoePoints(1, 10))), "0.01@0 0.01@30 0.01@60 0.01@90"},
		"only the second auction of tomorrow": {whole(other(omitting+auction(1), "PT60M", entsoePoints(1, 10)),
			other(omitting+auction(2), "PT60M", entsoePoints(1, 99)),
			entsoeSeriesText(omitting+auction(2), two, four, "PT60M", entsoePoints(1, 60))),
			"0.01@0 0.01@60 ~0.06@120 ~0.06@180"},
		"only the second auction": {whole(other(omitting+auction(2), "PT60M", entsoePoints(1, 60))), "~0.06@0 ~0.06@60"},
		"a single auction without a number, and another": {whole(other(omitting, "PT60M", entsoePoints(1, 10)),
			other(omitting+auction(3), "PT60M", entsoePoints(1, 60))), "0.01@0 0.01@60"},
		"coarse prices fill the gaps of fine prices": {whole(other(omitting, "PT60M", entsoePoints(1, 10, 2, 20)),
			other(inEUR, "PT30M", entsoePoints(3, 33))), "0.01@0 0.01@30 0.033@60 0.02@90"},
		"whitespace and an additional field": {whole(other(omitting+"<auction.type>A01</auction.type>", "PT60M",
			entsoePoints(1, " 10.0\n"))), "0.01@0 0.01@60"},
	} {
		a, err := s.decode([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checked, err := terms{quantity: price, currency: "EUR", maxAge: 48 * time.Hour}.sorted(a.Points, noon)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		start, err := parseTime(ninth)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range checked {
			mark := ""
			if p.Estimated {
				mark = "~"
			}
			got = append(got, fmt.Sprintf("%s%v@%v", mark, p.Value, p.Time.Sub(start).Minutes()))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

// TestENTSOESecondAuction verifies that a status is estimated if only the second auction has published the current
// price. The document is constructed.
func TestENTSOESecondAuction(t *testing.T) {
	now := time.Date(2025, 10, 21, 9, 30, 0, 0, time.UTC)
	for today, quality := range map[int]string{1: "derived", 2: "estimated"} {
		series := func(position int, start, end string, price int) string {
			return entsoeSeriesText(fmt.Sprintf("%s<classificationSequence_AttributeInstanceComponent.position>%d"+
				"</classificationSequence_AttributeInstanceComponent.position>", omitting, position), start, end, "PT15M",
				entsoePoints(1, price))
		}
		p := newProvider(t, description("<Publication_MarketDocument>%s</Publication_MarketDocument>",
			series(2, "2025-10-21T22:00Z", "2025-10-22T22:00Z", 600)+
				series(today, "2025-10-20T22:00Z", "2025-10-21T22:00Z", 100)))
		k, err := NewPriceKeeper("DE", &v1alpha1.PriceSpec{
			Currency: "EUR", Sources: []v1alpha1.PriceSource{fromENTSOE(p.URL)},
		}, testDeps(&now))
		if err != nil {
			t.Fatal(err)
		}
		k.poll(t.Context())
		if s, err := k.Look(now); err != nil || s.Now != 0.1 || s.Quality != quality {
			t.Errorf("today's prices are those of auction %d: %+v, %v; want quality %s", today, s, err, quality)
		}
	}
}

func TestENTSOERefuses(t *testing.T) {
	s := &entsoe{spec: &v1alpha1.ENTSOESource{Domain: dutch}}
	good := entsoePoints(1, 10)
	text := func(series string) string { return entsoeText(series, ninth, tenth, "PT60M", good) }
	for name, c := range map[string]struct {
		text   string
		reason dial.Reason
	}{
		"nothing":          {"", dial.ReasonShape},
		"JSON":             {`{"data":[]}`, dial.ReasonShape},
		"cut off":          {strings.TrimSuffix(text(omitting), "</Publication_MarketDocument>"), dial.ReasonShape},
		"two documents":    {text(omitting) + text(omitting), dial.ReasonShape},
		"another document": {"<GL_MarketDocument/>", dial.ReasonShape},
		"an entity": {`<!DOCTYPE x [<!ENTITY e "1">]>` + strings.Replace(text(omitting),
			"<price.amount>10", "<price.amount>&e;", 1), dial.ReasonShape},
		"a refusal":   {"<Acknowledgement_MarketDocument><Reason><code>401</code><text>no</text></Reason></Acknowledgement_MarketDocument>", dial.ReasonShape},
		"no series":   {"<Publication_MarketDocument/>", dial.ReasonMissing},
		"no currency": {text("<curveType>A03</curveType>"), dial.ReasonUnit},
		"per kWh":     {strings.Replace(text(omitting), ">MWH<", ">KWH<", 1), dial.ReasonUnit},
		"of another zone": {
			text(omitting + "<in_Domain.mRID>10YBE----------2</in_Domain.mRID>"),
			dial.ReasonZone,
		},
		"of a day":                {strings.Replace(text(omitting), "PT60M", "P1D", 1), dial.ReasonTime},
		"an end before the start": {entsoeText(omitting, tenth, ninth, "PT60M", good), dial.ReasonTime},
		"half an hour too long":   {entsoeText(omitting, ninth, "2026-03-10T22:30Z", "PT60M", good), dial.ReasonTime},
		"a year":                  {entsoeText(omitting, ninth, "2027-03-09T23:00Z", "PT60M", good), dial.ReasonTime},
		"no time":                 {entsoeText(omitting, "yesterday", tenth, "PT60M", good), dial.ReasonTime},
		"no points":               {entsoeText(omitting, ninth, tenth, "PT60M", ""), dial.ReasonShape},
		"the first is missing":    {entsoeText(omitting, ninth, tenth, "PT60M", entsoePoints(2, 10)), dial.ReasonShape},
		"position 0":              {entsoeText(inEUR, ninth, tenth, "PT60M", entsoePoints(0, 10)), dial.ReasonTime},
		"position 25 of 24": {
			entsoeText(omitting, ninth, tenth, "PT60M", entsoePoints(1, 10, 25, 10)),
			dial.ReasonTime,
		},
		"a position twice": {
			entsoeText(omitting, ninth, tenth, "PT60M", entsoePoints(1, 10, 5, 10, 5, 11)),
			dial.ReasonTime,
		},
		"out of order": {
			entsoeText(inEUR, ninth, tenth, "PT60M", entsoePoints(1, 10, 5, 10, 4, 11)),
			dial.ReasonTime,
		},
		"no position": {entsoeText(omitting, ninth, tenth, "PT60M",
			"<Point><price.amount>1</price.amount></Point>"), dial.ReasonShape},
		"a position in words": {entsoeText(omitting, ninth, tenth, "PT60M", entsoePoints("one", 10)), dial.ReasonShape},
		"no price":            {entsoeText(omitting, ninth, tenth, "PT60M", entsoePoints(1, "")), dial.ReasonShape},
		"NaN":                 {entsoeText(omitting, ninth, tenth, "PT60M", entsoePoints(1, "NaN")), dial.ReasonRange},
		"1e999": {
			entsoeText(omitting, ninth, tenth, "PT60M", entsoePoints(1, "1e999")),
			dial.ReasonRange,
		},
		"many prices in a small document": {"<Publication_MarketDocument>" +
			strings.Repeat(entsoeSeriesText(omitting, ninth, "2026-04-09T23:00Z", "PT15M", good), 5) +
			"</Publication_MarketDocument>", dial.ReasonSize},
		"two currencies": {"<Publication_MarketDocument>" + entsoeSeriesText(omitting, ninth, tenth, "PT60M", good) +
			entsoeSeriesText(strings.Replace(omitting, "EUR", "PLN", 1), ninth, tenth, "PT60M", good) +
			"</Publication_MarketDocument>", dial.ReasonUnit},
	} {
		a, err := s.decode([]byte(c.text))
		if err == nil || dial.ReasonOf(err) != c.reason {
			t.Errorf("%s: %d points, %v; want reason %s", name, len(a.Points), err, c.reason)
		}
	}
	// Conflicting prices are rejected by the common validation.
	twice := "<Publication_MarketDocument>" + entsoeSeriesText(omitting, ninth, tenth, "PT60M", good) +
		entsoeSeriesText(omitting, ninth, tenth, "PT60M", entsoePoints(1, 99)) + "</Publication_MarketDocument>"
	a, err := s.decode([]byte(twice))
	if err != nil {
		t.Fatal(err)
	}
	a.IssuedAt = newest(a.Points, noon)
	if _, err := (terms{quantity: price, currency: "EUR", maxAge: 36 * time.Hour}).check(&a,
		noon); dial.ReasonOf(err) != dial.ReasonTime {
		t.Errorf("conflicting prices for each hour: %v", err)
	}
	if _, err := (terms{quantity: price, currency: "GBP", maxAge: 36 * time.Hour}).check(&a,
		noon); dial.ReasonOf(err) != dial.ReasonUnit {
		t.Errorf("prices in EUR instead of GBP: %v", err)
	}
}

func FuzzENTSOE(f *testing.F) {
	f.Add(fixture(f, "entsoe_day_ahead.xml"))
	f.Add(fixture(f, "entsoe_no_data.xml"))
	f.Add([]byte(entsoeText(omitting, ninth, tenth, "PT15M", entsoePoints(1, -5, 96, 1e3))))
	s := &entsoe{spec: &v1alpha1.ENTSOESource{Domain: dutch}}
	f.Fuzz(func(t *testing.T, body []byte) {
		defer memtest.Limit(t, 100*len(body))()
		a, err := s.decode(body)
		if err != nil {
			return
		}
		if len(a.Points) == 0 || len(a.Points) > 2*maxPoints || a.Step == 0 {
			t.Errorf("%d points with step %v", len(a.Points), a.Step)
		}
		for _, p := range a.Points {
			if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
				t.Errorf("invalid price %v", p.Value)
			}
		}
	})
}
