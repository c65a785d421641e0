package kube

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/sched"
)

// What people write on a pod, on a Job or on its pod template.
const (
	AnnotationAllowedDelay     = "kubenergy.io/allowed-delay"     // how long the start may be put off: a Go duration
	AnnotationFinishBy         = "kubenergy.io/finish-by"         // deadline of the finish, RFC 3339
	AnnotationExpectedDuration = "kubenergy.io/expected-duration" // a Go duration
	AnnotationRunNow           = "kubenergy.io/run-now"           // "true": whatever else is said, do not hold it
	AnnotationStrategy         = "kubenergy.io/strategy"          // a strategy of package sched, as in "carbon"
)

// What the hold loop writes.
const (
	LabelHeld            = "kubenergy.io/held" // "true" on Jobs that we suspended: what is selected, checked and uninstalled by
	AnnotationHeldUntil  = "kubenergy.io/held-until"
	AnnotationHeldReason = "kubenergy.io/held-reason"
	AnnotationReleasedAt = "kubenergy.io/released-at" // its presence makes the release final
)

// What the owner of a cluster writes on nodes.
const (
	LabelPowerProfile = "kubenergy.io/power-profile"
	LabelSite         = "kubenergy.io/site"
)

// Namespace is where our own components run.
const Namespace = "kubenergy-system"

// Marks is what the annotations of one object say.
type Marks struct {
	AllowedDelay     time.Duration
	HasAllowedDelay  bool          // a delay of 0 says "not at all", no annotation says "as is usual here"
	FinishBy         time.Time     // zero: none
	ExpectedDuration time.Duration // 0: not said
	RunNow           bool
	ReleasedBefore   bool
	Strategy         string // "" or a name that sched.New accepts
}

// longest bounds every duration that a stranger may write. Nothing waits or runs for a year in a cluster, and sums of two
// such durations stay far from overflowing.
const longest = 366 * 24 * time.Hour

// ReadMarks reads annotations. Where several maps have a key, the first one wins: those of a Job come before those of
// its pod template. On any value that makes no sense the error names the annotation, and the Marks are empty.
func ReadMarks(annotations ...map[string]string) (Marks, error) {
	var m Marks
	var errs []error
	read := func(key string, parse func(value string) error) {
		for _, a := range annotations {
			value, ok := a[key]
			if !ok {
				continue
			}
			if err := parse(value); err != nil {
				errs = append(errs, fmt.Errorf("annotation %s is %s: %w", key, excerpt(value), err))
			}
			return
		}
	}
	read(AnnotationAllowedDelay, func(value string) (err error) {
		m.AllowedDelay, err = readDuration(value)
		m.HasAllowedDelay = true
		return err
	})
	read(AnnotationFinishBy, func(value string) (err error) {
		m.FinishBy, err = readTime(value)
		return err
	})
	read(AnnotationExpectedDuration, func(value string) (err error) {
		m.ExpectedDuration, err = readDuration(value)
		if err == nil && m.ExpectedDuration == 0 {
			return errors.New("want more than 0")
		}
		return err
	})
	read(AnnotationRunNow, func(value string) (err error) {
		m.RunNow, err = readBool(value)
		return err
	})
	read(AnnotationStrategy, func(value string) error {
		m.Strategy = value
		if _, err := sched.New(value); err != nil {
			wheres, whens := sched.Names()
			return fmt.Errorf("want one of %s, optionally followed by + and one of %s",
				strings.Join(wheres, ", "), strings.Join(whens, ", "))
		}
		return nil
	})
	// Not parsed: that we wrote it is what counts, and whoever forges it asks for less than run-now.
	read(AnnotationReleasedAt, func(string) error { m.ReleasedBefore = true; return nil })

	if len(errs) > 0 {
		return Marks{}, errors.Join(errs...)
	}
	return m, nil
}

// readDuration reads a Go duration between 0 and longest. The error of time.ParseDuration repeats the whole value, which
// may be 256 KiB long, so it is replaced.
func readDuration(value string) (time.Duration, error) {
	if len(value) > maxValue {
		return 0, errors.New("want a duration such as 90m or 6h")
	}
	d, err := time.ParseDuration(value)
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

// readTime reads RFC 3339. Far dates are refused because instants are compared in nanoseconds since 1970, and the zero
// time because it reads as "none".
func readTime(value string) (time.Time, error) {
	if len(value) > maxValue {
		return time.Time{}, errors.New("want a time such as 2026-06-01T18:00:00Z")
	}
	t, err := time.Parse(time.RFC3339, value)
	switch {
	case err != nil:
		return time.Time{}, errors.New("want a time such as 2026-06-01T18:00:00Z")
	case t.Year() < 2000 || t.Year() > 2200:
		return time.Time{}, errors.New("want a year from 2000 to 2200")
	}
	return t, nil
}

func readBool(value string) (bool, error) {
	b, err := strconv.ParseBool(value)
	if err != nil {
		return false, errors.New(`want "true" or "false"`)
	}
	return b, nil
}

const maxValue = 64 // bytes of a value that may make sense

// excerpt quotes a value for logs and events without letting it fill them.
func excerpt(value string) string {
	if len(value) > maxValue {
		return strconv.Quote(value[:maxValue]) + "…"
	}
	return strconv.Quote(value)
}
