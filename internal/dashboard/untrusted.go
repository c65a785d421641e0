package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"
)

// Limits of a file of results, which may come from somebody else. What simulate writes of 100,000 jobs is far below.
const (
	maxFile     = 256 << 20
	maxElements = 4_000_000 // of all arrays together
	minElement  = 32        // bytes of text for each, on average: decoding it takes some twenty times as many
	fewElements = 1000      // which may be shorter
	maxYears    = 20
	maxSpan     = maxYears * 366 * 24 * time.Hour
	maxValue    = 1e18 // in any unit
)

// decode decodes a file whose size, number of elements, values and times are within the limits.
func decode(data []byte, into any) error {
	if len(data) > maxFile {
		return fmt.Errorf("it has more than %d MiB", maxFile>>20)
	}
	if n := elements(data); n > min(maxElements, fewElements+len(data)/minElement) {
		return fmt.Errorf("it has %d elements in %d bytes: too many", n, len(data))
	}
	if err := json.Unmarshal(data, into); err != nil {
		return err
	}
	if !plausible(reflect.ValueOf(into)) {
		return fmt.Errorf("it has a number beyond %g, or a time before 1900 or after 2200", maxValue)
	}
	return nil
}

// elements returns how many elements all arrays of a valid JSON text have together, plus the empty arrays and objects.
// An array has one comma less than elements. An object has one comma less than colons, and is an element of an array or
// the value after a colon.
func elements(data []byte) (n int) {
	quoted := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[', c == '{', c == ',':
			n++
		case c == ':':
			n--
		}
	}
	return n
}

// plausible reports whether pages can be computed from all numbers and instants.
func plausible(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Float64:
		return math.Abs(v.Float()) <= maxValue
	case reflect.Pointer:
		return v.IsNil() || plausible(v.Elem())
	case reflect.Slice, reflect.Map:
		for _, e := range v.Seq2() {
			if !plausible(e) {
				return false
			}
		}
	case reflect.Struct:
		if t, ok := v.Interface().(time.Time); ok {
			return t.IsZero() || t.Year() >= 1900 && t.Year() <= 2200
		}
		for f, e := range v.Fields() {
			if f.IsExported() && !plausible(e) {
				return false
			}
		}
	}
	return true
}

// validate returns an error if no pages can be made of models.
func validate(models []*Model) error {
	if slices.Contains(models, nil) {
		return errors.New("a model is null")
	}
	for _, m := range models {
		if span := m.To.Sub(m.From); span < 0 || span > maxSpan {
			return fmt.Errorf("run %d is from %s to %s: want at most %d years", m.Run, stamp(m.From), stamp(m.To),
				maxYears)
		}
		if m.Run < 0 || len(models) > 1 && len(m.Runs) < len(models) {
			return fmt.Errorf("run %d names %d of %d runs", m.Run, len(m.Runs), len(models))
		}
	}
	return nil
}
