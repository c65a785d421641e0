package signal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"

	strictjson "sigs.k8s.io/json"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// decode parses a complete response. Field names are case-sensitive, and duplicate fields are an error because the
// intended value is ambiguous.
func decode(body []byte, into any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return dial.Refuse(dial.ReasonShape, "the response is empty")
	}
	twice, err := strictjson.UnmarshalStrict(body, into, strictjson.DisallowDuplicateFields)
	if err == nil && len(twice) > 0 {
		return dial.Refuse(dial.ReasonShape, "the response has a duplicate field: %.80v", twice[0])
	}
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*dial.Error](err); ok {
		return err
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return dial.Refuse(dial.ReasonShape, "%s has an unexpected type: JSON %s", cmp.Or(e.Field, "the response"),
			e.Value)
	}
	return dial.Refuse(dial.ReasonShape, "the response is not valid JSON or is truncated: %w", err)
}

// numeral returns v as a float64 if it is a number that decode has stored in an interface.
func numeral(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// number is a JSON number that may be null or absent.
type number struct {
	value float64
	set   bool
}

// UnmarshalJSON parses a number or null. Numbers in strings are errors of the provider and rejected.
func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	v, err := parseNumber(string(text))
	if err != nil {
		return err
	}
	*n = number{v, true}
	return nil
}

// parseNumber parses a number. NaN and infinities are rejected with [dial.ReasonRange].
func parseNumber(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && (math.IsNaN(v) || math.IsInf(v, 0)):
		return 0, dial.Refuse(dial.ReasonRange, "%.20s is not a finite number", text)
	case err != nil:
		return 0, dial.Refuse(dial.ReasonShape, "%.20q is not a number", text)
	}
	return v, nil
}

// instant is a JSON string with a time that may be null or absent.
type instant struct{ time.Time }

// UnmarshalJSON parses the time formats of all providers.
func (i *instant) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return dial.Refuse(dial.ReasonTime, "%.40s is not a time", text)
	}
	t, err := parseTime(s)
	if err != nil {
		return err
	}
	i.Time = t
	return nil
}

// parseTime parses a time in RFC 3339 format, with or without seconds, or in a similar format.
func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05-0700", "2006-01-02 15:04:05-07:00",
	} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, dial.Refuse(dial.ReasonTime, "%.40q is not a time: want 2026-01-31T13:00:00Z", text)
}

// unixTime converts seconds or milliseconds since 1970.
func unixTime(v float64) (time.Time, error) {
	const millisecondsFrom = 1e11 // the year 5138 in seconds, or 1973 in milliseconds
	if v >= millisecondsFrom {
		v /= 1000
	}
	if !(v > 0 && v < millisecondsFrom) {
		return time.Time{}, dial.Refuse(dial.ReasonTime, "%v is not a Unix time in seconds or milliseconds", v)
	}
	whole, part := math.Modf(v)
	return time.Unix(int64(whole), int64(part*1e9)).UTC(), nil
}
