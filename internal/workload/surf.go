package workload

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// The columns of OpenDC task tables, e.g. of the SURF Lisa cluster. Times are absolute, in Unix milliseconds.
const (
	surfSubmit   = "submit_unix_ms"
	surfDuration = "duration_ms"
	surfCPUs     = "cpu_count"
	surfSpeed    = "cpu_capacity_mhz_total"
	surfMemory   = "mem_capacity" // megabytes
)

var surf = format{
	name: "surf", id: columnID, dated: true, required: []string{columnID, surfSubmit, surfDuration, surfCPUs},
	optional: []string{surfSpeed, surfMemory}, add: (*Trace).surfJob,
}

func (t *Trace) surfJob(row *rows, start time.Time) {
	job := sched.Job{ID: strings.Clone(row.text(columnID)), AllowedDelay: NoDelayGiven}
	job.Submitted = time.UnixMilli(0).UTC().Add(parsed(row, surfSubmit, milliseconds))
	row.refuse(surfSubmit, notBefore(start, job.Submitted))
	job.Duration = parsed(row, surfDuration, milliseconds)
	job.Request.MilliCPU = parsed(row, surfCPUs, cores)
	job.Request.Memory = given(row, surfMemory, 0, inUnit("M", size))
	if job.Duration == 0 {
		t.skip(row, noRunTime)
		return
	}
	t.Jobs = append(t.Jobs, job)
}

// noRunTime is the reason for skipping a row of a job with a run time of 0.
const noRunTime = "has a run time of 0"

// milliseconds parses an integer number of milliseconds, up to about a hundred years.
func milliseconds(text string) (time.Duration, error) {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 || float64(v) > maxSeconds*1000 {
		return 0, fmt.Errorf("%q: want a whole number of milliseconds", text)
	}
	return time.Duration(v) * time.Millisecond, nil
}
