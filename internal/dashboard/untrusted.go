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

// Limits of a results file, which may come from an untrusted source. The results of simulate with 100,000 jobs are
// far below them.
const (
	maxFile     = 256 << 20
	maxElements = 4_000_000 // in all arrays
	minElement  = 32        // minimum mean bytes per element; decoding requires about twenty times this memory
	fewElements = 1000      // number of elements that may be smaller
	maxYears    = 20
	maxSpan     = maxYears * 366 * 24 * time.Hour
	maxValue    = 1e18 // in any unit
)

// decode decodes a file and enforces the limits on its size, number of elements, values and times.
func decode(data []byte, into any) error {
	if len(data) > maxFile {
		return fmt.Errorf("the file is larger than %d MiB", maxFile>>20)
	}
	if n := elements(data); n > min(maxElements, fewElements+len(data)/minElement) {
		return fmt.Errorf("the file has too many elements: %d in %d bytes", n, len(data))
	}
	if err := json.Unmarshal(data, into); err != nil {
		return err
	}
	if !plausible(reflect.ValueOf(into)) {
		return fmt.Errorf("the file contains a number beyond %g, or a time before 1900 or after 2200", maxValue)
	}
	return nil
}

// elements returns the total number of elements of all arrays in a valid JSON text, plus the number of empty arrays
// and objects. An array has one comma less than elements. An object has one comma less than colons, and is an
// element of an array or the value after a colon.
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

// plausible reports whether all numbers and times are within the limits.
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

// validate returns an error if the models cannot be shown.
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
			return fmt.Errorf("run %d lists %d of %d runs", m.Run, len(m.Runs), len(models))
		}
	}
	return nil
}
