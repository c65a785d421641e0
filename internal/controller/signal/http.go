package signal

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// httpJSON is a source for any service with JSON responses.
type httpJSON struct {
	spec  *v1alpha1.HTTPSource
	fetch *fetcher
	zone  grid.Zone
	scale float64
}

func newHTTP(zone grid.Zone, spec *v1alpha1.HTTPSource, q quantity, f *fetcher) (Source, error) {
	scale, err := factor(q, spec.Unit)
	if err != nil {
		return nil, err
	}
	if (spec.Value == "") == (spec.List == "") {
		return nil, dial.Refuse(dial.ReasonShape, "want either the path of a value or the path of a list")
	}
	if spec.List != "" && (spec.ListTime == "" || spec.ListValue == "") {
		return nil, dial.Refuse(dial.ReasonShape, "want listTime and listValue in addition to list")
	}
	return &httpJSON{spec: spec, fetch: f, zone: zone, scale: scale}, nil
}

func (s *httpJSON) Fetch(ctx context.Context, now time.Time) (Answer, error) {
	escaped := strings.ReplaceAll(url.QueryEscape(string(s.zone)), "+", "%20") // valid in both path and query
	body, header, err := s.fetch.get(ctx, request{
		url: strings.ReplaceAll(s.spec.URL, "{zone}", escaped), key: s.spec.Key, keyHeader: s.spec.Header,
	})
	if err != nil {
		return Answer{}, err
	}
	answered := now
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		answered = date.UTC()
	}
	return s.decode(body, answered, now)
}

// decode parses a response. answered is the time of the response.
func (s *httpJSON) decode(body []byte, answered, now time.Time) (Answer, error) {
	var text any
	if err := decode(body, &text); err != nil {
		return Answer{}, err
	}
	var a Answer
	if s.spec.Zone != "" {
		zone, ok := standing(text, s.spec.Zone).(string)
		if !ok || zone == "" {
			return Answer{}, dial.Refuse(dial.ReasonZone, "the response has no zone at %q", s.spec.Zone)
		}
		a.Zone = grid.Zone(zone)
	}
	var err error
	if s.spec.List != "" {
		if a.Points, err = s.list(text); err != nil {
			return Answer{}, err
		}
		a.Step = minGap(a.Points)
		a.IssuedAt = newest(a.Points, now)
	} else {
		value, err := s.number(standing(text, s.spec.Value), s.spec.Value)
		if err != nil {
			return Answer{}, err
		}
		parent := s.spec.Value[:max(0, strings.LastIndexByte(s.spec.Value, '.'))]
		estimated, err := s.estimated(text, standing(text, parent))
		if err != nil {
			return Answer{}, err
		}
		a.Points, a.IssuedAt = []Point{{Time: answered, Value: value, Estimated: estimated}}, answered
	}
	if s.spec.Time != "" {
		if a.IssuedAt, err = moment(standing(text, s.spec.Time), s.spec.Time); err != nil {
			return Answer{}, err
		}
		if s.spec.List == "" {
			a.Points[0].Time = a.IssuedAt
		}
	}
	return a, nil
}

// list returns the points of a list. Entries with a null value are skipped.
func (s *httpJSON) list(text any) ([]Point, error) {
	entries, ok := standing(text, s.spec.List).([]any)
	if !ok {
		return nil, dial.Refuse(dial.ReasonShape, "the response has no list at %q", s.spec.List)
	}
	if len(entries) > maxPoints {
		return nil, dial.Refuse(dial.ReasonSize, "the list has %d entries, want at most %d", len(entries), maxPoints)
	}
	var points []Point
	for _, entry := range entries {
		t, err := moment(standing(entry, s.spec.ListTime), s.spec.ListTime)
		if err != nil {
			return nil, err
		}
		found := standing(entry, s.spec.ListValue)
		if found == nil {
			continue
		}
		value, err := s.number(found, s.spec.ListValue)
		if err != nil {
			return nil, err
		}
		estimated, err := s.estimated(text, entry)
		if err != nil {
			return nil, err
		}
		points = append(points, Point{Time: t, Value: value, Estimated: estimated})
	}
	return points, nil
}

// estimated reports whether values are estimated. The marks of Electricity Maps in any of the objects, which contain
// the values, take precedence over the spec.
func (s *httpJSON) estimated(objects ...any) (bool, error) {
	estimated := !s.spec.Measured
	for _, object := range objects {
		fields, _ := object.(map[string]any)
		if err := sandbox(fields["estimationMethod"], fields["_disclaimer"]); err != nil {
			return false, err
		}
		estimated = estimated || fields["isEstimated"] == true
	}
	return estimated, nil
}

func (s *httpJSON) number(v any, path string) (float64, error) {
	n, ok := numeral(v)
	switch {
	case v == nil:
		return 0, dial.Refuse(dial.ReasonMissing, "the response has no value at %q", path)
	case !ok:
		return 0, dial.Refuse(dial.ReasonShape, "the value at %q is not a number", path)
	}
	return n * s.scale, nil
}

// moment parses a time in RFC 3339 format, or in seconds or milliseconds since 1970.
func moment(v any, path string) (time.Time, error) {
	if text, ok := v.(string); ok {
		return parseTime(text)
	}
	if n, ok := numeral(v); ok {
		return unixTime(n)
	}
	return time.Time{}, dial.Refuse(dial.ReasonTime, "the response has no time at %q", path)
}

// standing returns the value at a path of field names and indices separated by dots, or nil if it does not exist.
func standing(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}
