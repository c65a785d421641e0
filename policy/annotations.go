package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// Marks is what the annotations of one object say, ours and those that stand for ours.
type Marks struct {
	AllowedDelay     time.Duration
	HasAllowedDelay  bool          // a delay of 0 says "not at all", no annotation says "as is usual here"
	FinishBy         time.Time     // zero: none
	ExpectedDuration time.Duration // 0: not said
	RunNow           bool
	Skip             bool
	ReleasedBefore   bool
	Strategy         string // "" or a name that sched.New accepts

	Limits         sched.Limits // those that are said
	HasCarbon      bool         // whether Limits.NoCarbon is said
	MaxPower       energy.Watts // 0: not said
	MinEfficiency  float64      // 0: not said
	GPUClass       string
	PUE            float64 // 0: not said
	Performance    float64
	HasPerformance bool

	BudgetKWh  float64             // that the workload has for itself; 0: none
	BudgetDeed v1alpha1.BudgetDeed // what happens when it is used up; "": not said

	Gardener bool // a mark of Compute Gardener asks for a hold: what that system does by default is expected
}

// longest bounds every duration that a stranger may write. Nothing waits or runs for a year in a cluster, and sums of
// two such durations stay far from overflowing.
const longest = 366 * 24 * time.Hour

// ReadMarks reads annotations. Where several maps have a key, the first one wins: those of a Job come before those of
// its pod template. Within a map, our own key comes before those of other systems. On any value that makes no sense the
// error names the annotation, and the Marks are empty.
func ReadMarks(annotations ...map[string]string) (Marks, error) {
	var r markReader
	for _, a := range annotations {
		if len(a) > 0 {
			r.maps = append(r.maps, a)
		}
	}
	if len(r.maps) == 0 {
		return Marks{}, nil
	}
	r.readTimes()
	r.readLimits()
	r.readPlacement()
	r.readBudget()
	if len(r.errs) > 0 {
		return Marks{}, errors.Join(r.errs...)
	}
	return r.Marks, nil
}

type markReader struct {
	Marks
	maps []map[string]string
	errs []error
}

// read finds the value of a key, ours or an alias, and parses it.
func (r *markReader) read(key string, parse func(value string) error) {
	for _, a := range r.maps {
		as, value, ok := lookUp(a, key)
		if !ok {
			continue
		}
		if as.translate != nil {
			translated, err := as.translate(value)
			if err != nil {
				r.errs = append(r.errs, fmt.Errorf("annotation %s is %s: %w", as.key, excerpt(value), err))
				return
			}
			value = translated
		}
		if err := parse(value); err != nil {
			r.errs = append(r.errs, fmt.Errorf("annotation %s is %s: %w", as.key, excerpt(value), err))
			return
		}
		r.Gardener = r.Gardener || as.holds
		return
	}
}

func (r *markReader) readTimes() {
	r.read(v1alpha1.AnnotationAllowedDelay, func(value string) (err error) {
		r.AllowedDelay, err = readDuration(value)
		r.HasAllowedDelay = true
		return err
	})
	r.read(v1alpha1.AnnotationFinishBy, func(value string) (err error) {
		r.FinishBy, err = readTime(value)
		return err
	})
	r.read(v1alpha1.AnnotationExpectedDuration, func(value string) (err error) {
		r.ExpectedDuration, err = readDuration(value)
		if err == nil && r.ExpectedDuration == 0 {
			return errors.New("want more than 0")
		}
		return err
	})
	r.read(v1alpha1.AnnotationRunNow, func(value string) (err error) {
		r.RunNow, err = readBool(value)
		return err
	})
	r.read(v1alpha1.AnnotationSkip, func(value string) (err error) {
		r.Skip, err = readBool(value)
		return err
	})
	// Not parsed: that we wrote it is what counts, and whoever forges it asks for less than run-now.
	r.read(v1alpha1.AnnotationReleasedAt, func(string) error { r.ReleasedBefore = true; return nil })
}

func (r *markReader) readLimits() {
	r.read(v1alpha1.AnnotationCarbonThreshold, func(value string) error {
		v, err := readNumber(value, 0, maxIntensity)
		if err == nil && v == 0 {
			return errors.New("want more than 0")
		}
		r.Limits.Carbon = grid.Intensity(v)
		return err
	})
	r.read(v1alpha1.AnnotationCarbonPercentile, func(value string) error {
		v, err := readNumber(value, 1, 99)
		r.Limits.Percentile = v / 100
		return err
	})
	r.read(v1alpha1.AnnotationPriceThreshold, func(value string) error {
		v, err := readNumber(value, -maxPrice, maxPrice)
		r.Limits.Price, r.Limits.HasPrice = grid.Price(v), true
		return err
	})
	r.read(v1alpha1.AnnotationCarbonCounts, func(value string) error {
		counts, err := readBool(value)
		r.Limits.NoCarbon, r.HasCarbon = !counts, true
		return err
	})
}

func (r *markReader) readPlacement() {
	r.read(v1alpha1.AnnotationStrategy, func(value string) error {
		if len(value) > maxValue {
			return errors.New("no strategy has so long a name")
		}
		r.Strategy = value
		_, err := sched.New(value)
		return err
	})
	r.read(v1alpha1.AnnotationMaxPower, func(value string) error {
		v, err := readNumber(value, 1, 1e6)
		r.MaxPower = energy.Watts(v)
		return err
	})
	r.read(v1alpha1.AnnotationMinEfficiency, func(value string) (err error) {
		r.MinEfficiency, err = readNumber(value, 0, 1e6)
		return err
	})
	r.read(v1alpha1.AnnotationGPUWorkloadType, func(value string) error {
		r.GPUClass = value
		if !slices.Contains(gpuClasses, value) {
			return fmt.Errorf("want one of %s", strings.Join(gpuClasses, ", "))
		}
		return nil
	})
	r.read(v1alpha1.AnnotationPUE, func(value string) (err error) {
		r.PUE, err = readNumber(value, 1, maxPUE)
		return err
	})
	r.read(v1alpha1.AnnotationPerformanceWeight, func(value string) (err error) {
		r.Performance, err = readNumber(value, 0, 1)
		r.HasPerformance = true
		return err
	})
}

var gpuClasses = []string{"inference", "training", "rendering", "generic"}

// readDuration reads a Go duration between 0 and longest. The error of time.ParseDuration repeats the whole value,
// which may be 256 KiB long, so it is replaced.
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

// readNumber reads a finite number between two limits.
func readNumber(value string, least, most float64) (float64, error) {
	if len(value) > maxValue {
		return 0, errors.New("want a number")
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	switch {
	case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
		return 0, errors.New("want a number")
	case v < least || v > most:
		return 0, fmt.Errorf("want %v to %v", least, most)
	}
	return v, nil
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
