package policy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
)

// longest is the max value of any duration from an untrusted source. No workload waits or runs for a year, and a
// sum of two such durations does not overflow.
const longest = 366 * 24 * time.Hour

// parse rejects values that are longer than maxValue, because values are read under the lock of the scheduling
// queue, and errors of the standard library contain the value.
func parse[T any](value string, by func(string) (T, error)) (v T, err error) {
	if len(value) > maxValue {
		return v, errors.New("too long")
	}
	return by(value)
}

// readDuration parses a Go duration between 0 and longest. It replaces the error of time.ParseDuration, which
// contains the whole value of up to 256 KiB.
func readDuration(value string) (time.Duration, error) {
	d, err := parse(value, time.ParseDuration)
	switch {
	case err != nil:
		return 0, errors.New("want a duration such as 90m or 6h")
	case d < 0:
		return 0, errors.New("want a duration that is not negative")
	case d > longest:
		return 0, fmt.Errorf("want at most %v", longest)
	}
	return d, nil
}

// readTime parses an RFC 3339 time. Distant times are rejected because times are compared in nanoseconds since
// 1970, and the zero time is rejected because it means that no time is set.
func readTime(value string) (time.Time, error) {
	t, err := parse(value, func(s string) (time.Time, error) { return time.Parse(time.RFC3339, s) })
	switch {
	case err != nil:
		return time.Time{}, errors.New("want a time such as 2026-06-01T18:00:00Z")
	case t.Year() < 2000 || t.Year() > 2200:
		return time.Time{}, errors.New("want a year from 2000 to 2200")
	}
	return t, nil
}

// readNumber parses a finite number between two limits.
func readNumber(value string, least, most float64) (float64, error) {
	v, err := parse(value, func(s string) (float64, error) { return strconv.ParseFloat(strings.TrimSpace(s), 64) })
	switch {
	case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
		return 0, errors.New("want a number")
	case v < least || v > most:
		return 0, fmt.Errorf("want %v to %v", least, most)
	}
	return v, nil
}

const maxCount = 1000 // e.g. of the pauses of a workload

// readCount parses a number of events of a workload.
func readCount(value string) (int, error) {
	n, err := parse(value, strconv.Atoi)
	if err != nil || n < 0 || n > maxCount {
		return 0, errors.New("want a whole number up to 1000")
	}
	return n, nil
}

func readBool(value string) (bool, error) {
	b, err := parse(value, strconv.ParseBool)
	if err != nil {
		return false, errors.New(`want "true" or "false"`)
	}
	return b, nil
}

// readNot parses a boolean and returns its negation.
func readNot(value string) (bool, error) {
	b, err := readBool(value)
	return !b, err
}

// keep returns a function that parses a value and stores it in a field of an object if it is valid.
func keep[O, T any](read func(string) (T, error), field func(*O) *T) func(*O, string) error {
	return func(o *O, value string) error {
		v, err := read(value)
		if err == nil {
			*field(o) = v
		}
		return err
	}
}

// between returns a function that parses a number between two limits.
func between[T ~float64](least, most float64) func(string) (T, error) {
	return func(value string) (T, error) {
		v, err := readNumber(value, least, most)
		return T(v), err
	}
}

// positive returns a function that parses a value with read and rejects 0.
func positive[T comparable](read func(string) (T, error)) func(string) (T, error) {
	return func(value string) (v T, err error) {
		var zero T
		if v, err = read(value); err == nil && v == zero {
			err = errors.New("want more than 0")
		}
		return v, err
	}
}

const maxValue = 64 // max length of a valid value, in bytes

// excerpt quotes a value for logs and events, and truncates it if it is too long.
func excerpt(value string) string { return strconv.Quote(humanize.Truncated(value, maxValue)) }

// hours converts a number of hours to a Go duration.
func hours(value string) (string, error) {
	h, err := positive(between[float64](0, longest.Hours()))(value)
	return time.Duration(h * float64(time.Hour)).String(), err
}
