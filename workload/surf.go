package workload

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/sched"
)

// The columns of task tables of OpenDC, as of the SURF Lisa cluster: real times, in milliseconds since 1970.
const (
	surfSubmit   = "submit_unix_ms"
	surfDuration = "duration_ms"
	surfCPUs     = "cpu_count"
	surfSpeed    = "cpu_capacity_mhz_total"
	surfMemory   = "mem_capacity" // megabytes
)

func (t *Trace) readSURF(file string, text []byte, start time.Time) error {
	return t.readTable(file, text, []string{columnID, surfSubmit, surfDuration, surfCPUs},
		[]string{surfSpeed, surfMemory},
		func(in *rows) (string, error) { return t.surfJob(in, start) })
}

// surfJob parses the present row. With an error it names the field that is wrong.
func (t *Trace) surfJob(in *rows, start time.Time) (field string, err error) {
	job := sched.Job{ID: strings.Clone(in.text(columnID)), AllowedDelay: NoDelayGiven}
	unix, err := milliseconds(in.text(surfSubmit))
	if err != nil {
		return surfSubmit, err
	}
	job.Submitted = time.UnixMilli(unix).UTC()
	if job.Submitted.Before(start) {
		return surfSubmit, fmt.Errorf("%s is before the start, %s", job.Submitted.Format(time.RFC3339),
			start.Format(time.RFC3339))
	}
	length, err := milliseconds(in.text(surfDuration))
	if err != nil {
		return surfDuration, err
	}
	job.Duration = time.Duration(length) * time.Millisecond
	if job.Request.MilliCPU, err = cores(in.text(surfCPUs)); err != nil {
		return surfCPUs, err
	}
	if text := in.text(surfMemory); text != "" {
		if job.Request.Memory, err = size(text + "M"); err != nil {
			return surfMemory, fmt.Errorf("%q: want megabytes", text)
		}
	}
	if length == 0 {
		t.skip(noRunTime)
		return "", nil
	}
	t.Jobs = append(t.Jobs, job)
	return columnID, nil
}

// noRunTime is why a row is left out that says that its job ran for no time.
const noRunTime = "ran for no time"

// milliseconds parses a whole number of them, of up to about a hundred years.
func milliseconds(text string) (int64, error) {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 || float64(v) > maxSeconds*1000 {
		return 0, fmt.Errorf("%q: want a whole number of milliseconds", text)
	}
	return v, nil
}
