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
	p, err := fetched(ctx, s.fetch, request{
		url: s.spec.URL, path: "/api/v1/query", query: url.Values{"query": {s.spec.Query}}, key: s.spec.Key,
		scheme: "Bearer ",
	}, decodePrometheus)
	p.Value *= s.scale
	p.Estimated = !s.spec.Measured
	return Answer{Points: []Point{p}, IssuedAt: p.Time}, err
}

// decodePrometheus parses the response of an instant query, which must be a scalar or a vector with one sample.
func decodePrometheus(body []byte) (Point, error) {
	var text struct {
		Status string `json:"status"`
		Data   struct {
			ResultType string          `json:"resultType"`
			Result     json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := decode(body, &text); err != nil {
		return Point{}, err
	}
	if text.Status != "success" {
		return Point{}, dial.Refuse(dial.ReasonHTTP, "the status of the query is %.20q, want success", text.Status)
	}
	switch text.Data.ResultType {
	case "scalar":
		var sample [2]any
		if err := decode(text.Data.Result, &sample); err != nil {
			return Point{}, err
		}
		return prometheusSample(sample)
	case "vector":
		var series []struct {
			Value [2]any `json:"value"`
		}
		if err := decode(text.Data.Result, &series); err != nil {
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
	return Point{}, dial.Refuse(dial.ReasonShape, "the query returned a %.20q, want a scalar or a single value",
		text.Data.ResultType)
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
