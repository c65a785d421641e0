package signal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/controller/dial"
)

// maxDepth is deeper than any provider nests its answers.
const maxDepth = 16

// decode reads a whole answer. Text in which a name stands twice is refused: either may be meant.
func decode(body []byte, into any) error {
	if err := scan(body); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	err := dec.Decode(into)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*dial.Error](err); ok {
		return err
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := e.Field
		if field == "" {
			field = "the answer"
		}
		return dial.Refuse(dial.ReasonShape, "%s is not as documented: JSON %s", field, e.Value)
	}
	return dial.Refuse(dial.ReasonShape, "the answer is no such JSON as is documented: %w", err)
}

// scan checks what encoding/json lets pass: depth, names that come twice, text after the end.
func scan(body []byte) error {
	s := scanner{dec: json.NewDecoder(bytes.NewReader(body))}
	s.dec.UseNumber()
	if len(bytes.TrimSpace(body)) == 0 {
		return dial.Refuse(dial.ReasonShape, "the answer is empty")
	}
	if err := s.value(0); err != nil {
		return err
	}
	if _, err := s.dec.Token(); err != io.EOF {
		return dial.Refuse(dial.ReasonShape, "there is more than one value in the answer")
	}
	return nil
}

type scanner struct {
	dec *json.Decoder
}

// value reads one value and all in it.
func (s scanner) value(depth int) error {
	token, err := s.dec.Token()
	if err != nil {
		return dial.Refuse(dial.ReasonShape, "the answer is no JSON, or cut off: %w", err)
	}
	open, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	if depth >= maxDepth {
		return dial.Refuse(dial.ReasonShape, "the answer is nested more than %d deep", maxDepth)
	}
	var names map[string]bool
	if open == '{' {
		names = make(map[string]bool)
	}
	for s.dec.More() {
		if names != nil {
			if err := s.name(names); err != nil {
				return err
			}
		}
		if err := s.value(depth + 1); err != nil {
			return err
		}
	}
	if _, err := s.dec.Token(); err != nil {
		return dial.Refuse(dial.ReasonShape, "the answer is no JSON, or cut off: %w", err)
	}
	return nil
}

// name reads the name of a field. Those that differ by case alone are the same to encoding/json.
func (s scanner) name(names map[string]bool) error {
	token, err := s.dec.Token()
	if err != nil {
		return dial.Refuse(dial.ReasonShape, "the answer is no JSON, or cut off: %w", err)
	}
	text, _ := token.(string)
	folded := strings.ToLower(text)
	if names[folded] {
		return dial.Refuse(dial.ReasonShape, "the name %.40q stands twice in the answer", text)
	}
	names[folded] = true
	return nil
}

// number is a JSON number that may be null or absent.
type number struct {
	value float64
	set   bool
}

// UnmarshalJSON reads a number and nothing like one: a string is a mistake of the provider.
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

// parseNumber reads the text of a number, NaN and infinities included, which are then out of range.
func parseNumber(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && (math.IsNaN(v) || math.IsInf(v, 0)):
		return 0, dial.Refuse(dial.ReasonRange, "%.20s is no finite number", text)
	case err != nil:
		return 0, dial.Refuse(dial.ReasonShape, "%.20q is no number", text)
	}
	return v, nil
}

// instant is a JSON string with a time that may be null or absent.
type instant struct{ time.Time }

// UnmarshalJSON reads the forms in which providers write time.
func (i *instant) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return dial.Refuse(dial.ReasonTime, "%.40s is no time", text)
	}
	t, err := parseTime(s)
	if err != nil {
		return err
	}
	i.Time = t
	return nil
}

// parseTime reads RFC 3339, also without seconds.
func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05-0700", "2006-01-02 15:04:05-07:00",
	} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, dial.Refuse(dial.ReasonTime, "%.40q is no time: want 2026-01-31T13:00:00Z", text)
}

// unixTime reads seconds or milliseconds since 1970.
func unixTime(v float64) (time.Time, error) {
	const millisecondsFrom = 1e11 // seconds would be in the year 5138, milliseconds are in 1973
	if v >= millisecondsFrom {
		v /= 1000
	}
	if !(v > 0 && v < millisecondsFrom) {
		return time.Time{}, dial.Refuse(dial.ReasonTime, "%v is no Unix time in seconds or milliseconds", v)
	}
	whole, part := math.Modf(v)
	return time.Unix(int64(whole), int64(part*1e9)).UTC(), nil
}
