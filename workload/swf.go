package workload

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// The columns of the Standard Workload Format 2.2 of the Parallel Workloads Archive, separated by space. In every one
// of them −1 means: not known.
var swfColumns = [...]string{
	"job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time", "used memory",
	"requested processors",
	"requested time", "requested memory", "status", "user", "group", "executable", "queue", "partition",
	"preceding job", "think time",
}

// The columns that say something of a job that is to be run again. How long it waited and how much CPU it used there
// says nothing of here.
const (
	swfID           = 0
	swfSubmit       = 1
	swfRunTime      = 3
	swfAllocated    = 4
	swfUsedMemory   = 6 // kilobytes per processor, as is the requested one
	swfRequested    = 7
	swfWantedMemory = 9
	swfStatus       = 10
	swfUser         = 11
	swfQueue        = 14
)

// A job that was checkpointed stands in the log as a whole, and once more for each of its parts, which have one of
// these statuses.
const (
	swfFirstPart = 2
	swfLastPart  = 4
)

// Why rows of a log are left out.
const (
	swfNoSubmit = "not known when it was submitted"
	swfNoRun    = "did not run, or not known for how long"
	swfNoCPU    = "not known on how many processors"
	swfPart     = "part of a job that stands there as a whole"
)

func (t *Trace) readSWF(file string, text []byte, start time.Time) error {
	seen := ids{}
	line := 0
	for row := range bytes.Lines(text) {
		line++
		row, _, _ = bytes.Cut(row, []byte{';'})
		fields := strings.Fields(string(row))
		if len(fields) == 0 {
			continue
		}
		job, skip, field, err := swfJob(fields, start)
		if err == nil && skip == "" {
			field, err = swfColumns[swfID], seen.add(job.ID)
		}
		switch {
		case err != nil:
			return &grid.RowError{File: file, Line: line, Field: field, Err: err}
		case skip != "":
			t.skip(skip)
		default:
			t.Jobs = append(t.Jobs, job)
		}
	}
	return nil
}

// swfJob parses the fields of a line. With an error it names the field that is wrong; skip says why the line is no job.
func swfJob(fields []string, start time.Time) (job sched.Job, skip, field string, err error) {
	if len(fields) != len(swfColumns) {
		return job, "", "", fmt.Errorf("the row has %d fields: want %d, as SWF 2.2", len(fields), len(swfColumns))
	}
	var v [len(swfColumns)]float64
	for i, text := range fields {
		if v[i], err = swfNumber(text); err != nil {
			return job, "", swfColumns[i], err
		}
	}
	if v[swfID] < 0 {
		return job, "", swfColumns[swfID], errors.New("is not given")
	}
	processors := v[swfRequested]
	if processors <= 0 {
		processors = v[swfAllocated]
	}
	if why := swfSkips(&v, processors); why != "" {
		return job, why, "", nil
	}
	job = sched.Job{
		ID: fields[swfID], AllowedDelay: NoDelayGiven, Owner: swfName(fields[swfUser], v[swfUser]),
		Queue: swfName(fields[swfQueue], v[swfQueue]),
	}
	submit, err := seconds(fields[swfSubmit])
	if err != nil {
		return job, "", swfColumns[swfSubmit], err
	}
	job.Submitted = start.Add(submit)
	if job.Duration, err = positive(fields[swfRunTime], seconds); err != nil {
		return job, "", swfColumns[swfRunTime], err
	}
	if processors > maxCores {
		return job, "", swfColumns[swfRequested], fmt.Errorf("%v are more than %.0f processors", processors, maxCores)
	}
	job.Request.MilliCPU = int64(math.Ceil(processors)) * 1000
	memory, column := v[swfWantedMemory], swfWantedMemory
	if memory <= 0 {
		memory, column = v[swfUsedMemory], swfUsedMemory
	}
	if memory *= 1024 * processors; memory > maxMemory {
		return job, "", swfColumns[column], fmt.Errorf("%v bytes are more than any machine has", memory)
	}
	job.Request.Memory = int64(math.Ceil(max(0, memory)))
	return job, "", "", nil
}

// swfSkips says why a line is no job; "" if it is one.
func swfSkips(v *[len(swfColumns)]float64, processors float64) string {
	switch {
	case v[swfStatus] >= swfFirstPart && v[swfStatus] <= swfLastPart:
		return swfPart
	case v[swfSubmit] < 0:
		return swfNoSubmit
	case v[swfRunTime] <= 0:
		return swfNoRun
	case processors <= 0:
		return swfNoCPU
	}
	return ""
}

// swfNumber parses a field. Less than 0 can only be the −1 of what is not known.
func swfNumber(text string) (float64, error) {
	v, err := number(text)
	if err == nil && v < 0 && v != -1 {
		err = fmt.Errorf("%q is negative: want -1 where it is not known", text)
	}
	return v, err
}

// swfName returns the number that stands for a user or queue in place of its name; "" where it is not known.
func swfName(text string, v float64) string {
	if v < 0 {
		return ""
	}
	if v == math.Trunc(v) && v < 1<<53 {
		return strconv.FormatInt(int64(v), 10) // 7 and 7.0 are the same user
	}
	return text
}
