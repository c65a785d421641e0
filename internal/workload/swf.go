package workload

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// swfColumns lists the columns of the Standard Workload Format 2.2 of the Parallel Workloads Archive, separated by
// spaces. In all columns, −1 means unknown. Some logs have additional columns, e.g. the nodes that a job ran on.
var swfColumns = [...]string{
	"job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time", "used memory",
	"requested processors",
	"requested time", "requested memory", "status", "user", "group", "executable", "queue", "partition",
	"preceding job", "think time",
}

// The relevant columns for running a job again. The waiting time and the CPU usage in the original system are not
// relevant.
const (
	swfID           = 0
	swfSubmit       = 1
	swfRunTime      = 3
	swfAllocated    = 4
	swfUsedMemory   = 6 // kilobytes per processor, like the requested memory
	swfRequested    = 7
	swfTimeLimit    = 8
	swfWantedMemory = 9
	swfStatus       = 10
	swfUser         = 11
	swfQueue        = 14
)

// swfUsed lists the columns that are read.
var swfUsed = [...]int{
	swfID, swfSubmit, swfRunTime, swfAllocated, swfUsedMemory, swfRequested, swfTimeLimit, swfWantedMemory, swfStatus,
	swfUser, swfQueue,
}

// A checkpointed job is listed in the log as a whole, and additionally once for each of its parts with one of these
// statuses.
const (
	swfFirstPart = 2
	swfLastPart  = 4
)

// Reasons for skipping rows of a log.
const (
	swfNoSubmit = "has no submission time"
	swfNoRun    = "did not run or has no run time"
	swfNoCPU    = "has no number of processors"
	swfPart     = "is part of a job that is listed as a whole"
)

var swf = format{
	name: "swf", id: swfColumns[swfID], required: swfColumns[:], comment: ';', more: true, add: (*Trace).swfJob,
}

func (t *Trace) swfJob(row *rows, start time.Time) {
	var v [len(swfColumns)]float64
	for _, i := range swfUsed {
		v[i] = parsed(row, swfColumns[i], swfNumber)
	}
	if v[swfID] < 0 {
		row.refuse(swfColumns[swfID], errors.New("is missing"))
	}
	processors := v[swfRequested]
	if processors <= 0 {
		processors = v[swfAllocated]
	}
	if why := swfSkips(&v, processors); why != "" {
		t.skip(row, why)
		return
	}
	job := sched.Job{
		ID: row.record[swfID], AllowedDelay: NoDelayGiven, Owner: swfName(row.record[swfUser], v[swfUser]),
		Queue:     swfName(row.record[swfQueue], v[swfQueue]),
		Submitted: start.Add(parsed(row, swfColumns[swfSubmit], seconds)),
		Duration:  parsed(row, swfColumns[swfRunTime], positive(seconds)),
	}
	if v[swfTimeLimit] > 0 {
		job.TimeLimit = parsed(row, swfColumns[swfTimeLimit], seconds)
	}
	if processors > maxCores {
		row.refuse(swfColumns[swfRequested], fmt.Errorf("%v exceeds the maximum of %.0f processors", processors,
			maxCores))
	}
	job.Request.MilliCPU = int64(math.Ceil(processors)) * 1000
	memory, column := v[swfWantedMemory], swfWantedMemory
	if memory <= 0 {
		memory, column = v[swfUsedMemory], swfUsedMemory
	}
	if memory *= 1024 * processors; memory > maxMemory {
		row.refuse(swfColumns[column], fmt.Errorf("%v bytes exceed the memory of any machine", memory))
	}
	job.Request.Memory = int64(math.Ceil(max(0, memory)))
	t.Jobs = append(t.Jobs, job)
}

// swfSkips returns the reason for skipping a row, or "" if the row is a job.
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

// swfNumber parses a field. The only negative value allowed is −1 for unknown.
func swfNumber(text string) (float64, error) {
	v, err := number(text)
	if err == nil && v < 0 && v != -1 {
		err = fmt.Errorf("%q is negative: want -1 if the value is unknown", text)
	}
	return v, err
}

// swfName returns the number of a user or queue as its name, or "" if it is unknown.
func swfName(text string, v float64) string {
	if v < 0 {
		return ""
	}
	if v == math.Trunc(v) && v < 1<<53 {
		return strconv.FormatInt(int64(v), 10) // 7 and 7.0 are the same user
	}
	return text
}
