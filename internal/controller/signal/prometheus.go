package signal

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// prometheus queries a Prometheus server. The result of the query must be a single value.
type prometheus struct {
	spec  *v1alpha1.PrometheusSource
	fetch *fetcher
	scale float64
}

func newPrometheus(spec *v1alpha1.PrometheusSource, q quantity, f *fetcher) (Source, error) {
	scale, err := factor(q, spec.Unit)
	if err != nil {
		return nil, err
	}
	return &prometheus{spec: spec, fetch: f, scale: scale}, nil
}

// Fetch evaluates the query at the current time of the server.
func (s *prometheus) Fetch(ctx context.Context, _ time.Time) (Answer, error) {
	p, err := fetched(ctx, s.fetch, s.request("/api/v1/query", url.Values{}), decodePrometheus)
	p.Value *= s.scale
	p.Estimated = !s.spec.Measured
	return Answer{Points: []Point{p}, IssuedAt: p.Time}, err
}

// Past implements [pastSource] with the values of the query at full hours. Servers limit the number of values to
// 11,000.
func (s *prometheus) Past(ctx context.Context, now time.Time) ([]Point, error) {
	const span = 450 * 24 * time.Hour
	end := now.Truncate(time.Hour)
	points, err := fetched(ctx, s.fetch, s.request("/api/v1/query_range", url.Values{
		"start": {end.Add(-span).Format(time.RFC3339)}, "end": {end.Format(time.RFC3339)}, "step": {"3600"},
	}), decodePrometheusRange)
	for i := range points {
		points[i].Value *= s.scale
	}
	return points, err
}

func (s *prometheus) request(path string, query url.Values) request {
	query.Set("query", s.spec.Query)
	return request{url: s.spec.URL, path: path, query: query, key: s.spec.Key, scheme: "Bearer "}
}

// promSeries is a series in a response, with a value or several values.
type promSeries struct {
	Value  [2]any   `json:"value"`
	Values [][2]any `json:"values"`
}

// decodeQuery parses the response of a query and returns the type of its result.
func decodeQuery(body []byte) (kind string, result json.RawMessage, err error) {
	var text struct {
		Status string `json:"status"`
		Data   struct {
			ResultType string          `json:"resultType"`
			Result     json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := decode(body, &text); err != nil {
		return "", nil, err
	}
	if text.Status != "success" {
		return "", nil, dial.Refuse(dial.ReasonHTTP, "the status of the query is %.20q, want success", text.Status)
	}
	return text.Data.ResultType, text.Data.Result, nil
}

// decodePrometheus parses the response of an instant query, which must be a scalar or a vector with one sample.
func decodePrometheus(body []byte) (Point, error) {
	kind, result, err := decodeQuery(body)
	if err != nil {
		return Point{}, err
	}
	switch kind {
	case "scalar":
		var sample [2]any
		if err := decode(result, &sample); err != nil {
			return Point{}, err
		}
		return prometheusSample(sample)
	case "vector":
		var series []promSeries
		if err := decode(result, &series); err != nil {
			return Point{}, err
		}
		switch len(series) {
		case 0:
			return Point{}, dial.Refuse(dial.ReasonMissing, "the query returned no value")
		case 1:
			return prometheusSample(series[0].Value)
		}
		return Point{}, dial.Refuse(dial.ReasonShape, "the query returned %d values, want one", len(series))
	}
	return Point{}, dial.Refuse(dial.ReasonShape, "the query returned a %.20q, want a scalar or a single value", kind)
}

// decodePrometheusRange parses the response of a range query, which must be a matrix with one value
// at any time.
func decodePrometheusRange(body []byte) ([]Point, error) {
	kind, result, err := decodeQuery(body)
	switch {
	case err != nil:
		return nil, err
	case kind != "matrix":
		return nil, dial.Refuse(dial.ReasonShape, "the query returned a %.20q, want a matrix", kind)
	}
	var all []promSeries
	if err := decode(result, &all); err != nil {
		return nil, err
	}
	var points []Point
	known := map[time.Time]bool{}
	for _, series := range all { // labels such as the pod of an exporter change with time
		for _, sample := range series.Values {
			p, err := prometheusSample(sample)
			if known[p.Time] {
				return nil, dial.Refuse(dial.ReasonShape, "the query returned several values at %s, want one",
					p.Time.Format(time.RFC3339))
			}
			if err == nil { // other values are still useful
				points, known[p.Time] = append(points, p), true
			}
		}
	}
	return points, nil
}

// prometheusSample converts a sample with a time in seconds and a value in a string.
func prometheusSample(sample [2]any) (Point, error) {
	seconds, ok := numeral(sample[0])
	if !ok {
		return Point{}, dial.Refuse(dial.ReasonTime, "the value has no timestamp")
	}
	at, err := unixTime(seconds)
	if err != nil {
		return Point{}, err
	}
	text, ok := sample[1].(string)
	if !ok {
		return Point{}, dial.Refuse(dial.ReasonShape, "the value is not a string, as used by Prometheus")
	}
	value, err := parseNumber(text)
	return Point{Time: at, Value: value}, err
}
