package workload

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// The columns of the trace files of the ECSched experiments (Hu et al., "Concurrent container scheduling on
// heterogeneous clusters with multi-resource constraints"): no header, separated by space.
var ecschedColumns = [...]string{"id", "submit", "duration", "cpu", "memory"}

// A slot of that format is a share of a machine. We read a CPU slot as a core and a memory slot as a GiB.
const (
	milliPerSlot  = 1000
	memoryPerSlot = 1 << 30
	maxSlots      = 1 << 20
)

// longest keeps times within what time.Duration can hold: a hundred years.
const longest = 36_525 * 24 * time.Hour

// maxSeconds is the same for those that are given in seconds.
const maxSeconds = float64(longest / time.Second)

// readECSched reads one job a line.
func readECSched(file string, text []byte, start time.Time) ([]sched.Job, error) {
	var jobs []sched.Job
	seen := ids{}
	line := 0
	for row := range bytes.Lines(text) {
		line++
		fields := strings.Fields(string(row))
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		job, field, err := ecschedJob(fields, start)
		if err == nil {
			field, err = ecschedColumns[0], seen.add(job.ID)
		}
		if err != nil {
			return nil, &grid.RowError{File: file, Line: line, Field: field, Err: err}
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// ecschedJob parses the fields of a line. With an error it names the field that is wrong.
func ecschedJob(fields []string, start time.Time) (job sched.Job, field string, err error) {
	if len(fields) != len(ecschedColumns) {
		return job, "", fmt.Errorf("the row has %d fields: want %s", len(fields), strings.Join(ecschedColumns[:], " "))
	}
	job = sched.Job{ID: fields[0], AllowedDelay: NoDelayGiven}
	var submit time.Duration
	if submit, err = seconds(fields[1]); err != nil {
		return job, ecschedColumns[1], err
	}
	job.Submitted = start.Add(submit)
	if job.Duration, err = positive(fields[2], seconds); err != nil {
		return job, ecschedColumns[2], err
	}
	if job.Request.MilliCPU, err = slots(fields[3], milliPerSlot); err != nil {
		return job, ecschedColumns[3], err
	}
	if job.Request.Memory, err = slots(fields[4], memoryPerSlot); err != nil {
		return job, ecschedColumns[4], err
	}
	return job, "", nil
}

func slots(text string, size int64) (int64, error) {
	v, err := number(text)
	switch {
	case err != nil:
		return 0, err
	case v < 0 || v > maxSlots || v != math.Trunc(v):
		return 0, fmt.Errorf("%q: want a whole number of slots, 0 to %d", text, maxSlots)
	}
	return int64(v) * size, nil
}

// seconds parses a number of seconds that is not negative.
func seconds(text string) (time.Duration, error) {
	v, err := notNegative(text)
	switch {
	case err != nil:
		return 0, err
	case v > maxSeconds:
		return 0, fmt.Errorf("%q is more than a hundred years", text)
	}
	return time.Duration(math.Round(v * float64(time.Second))), nil
}

// positive refuses what parse reads as zero.
func positive(text string, parse func(string) (time.Duration, error)) (time.Duration, error) {
	d, err := parse(text)
	if err == nil && d == 0 {
		err = fmt.Errorf("%q must be more than 0", text)
	}
	return d, err
}
