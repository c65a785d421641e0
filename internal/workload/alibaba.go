package workload

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// The columns of the batch tasks of Alibaba's cluster-trace-v2018, in the format of CloudSimPy.
const (
	alibabaMemory    = "memory" // fraction of the memory of a machine
	alibabaJob       = "job_id"
	alibabaTask      = "task_id"
	alibabaInstances = "instances_num"
	alibabaDisk      = "disk"
)

// alibabaMachineMemory is the memory of a machine with 96 cores. It was not published; 4 GiB per core is assumed,
// as in Alibaba's other traces.
const alibabaMachineMemory = 96 * 4 << 30

// alibabaCores is the maximum number of cores of a job. A task has up to tens of thousands of independent instances
// of about equal length. One job per instance would result in millions of identical jobs, and one job for all
// instances would not fit on any machine. Therefore the instances are packed into jobs of up to this number of
// cores and up to the memory of a machine. The core-hours of the trace are preserved.
const alibabaCores = 16

var manyInstances = wholeNumber("whole number", 1, 1<<20)

var alibaba = format{
	name: "alibaba", id: alibabaTask, optional: []string{alibabaDisk}, add: (*Trace).alibabaTask,
	required: []string{
		columnSubmit, columnDuration, columnCPU, alibabaMemory, alibabaJob, alibabaTask, alibabaInstances,
	},
}

// alibabaTask adds the jobs of one row.
func (t *Trace) alibabaTask(row *rows, start time.Time) {
	for _, column := range [...]string{alibabaJob, alibabaTask} {
		parsed(row, column, whole)
	}
	name := row.text(alibabaJob) + "-" + row.text(alibabaTask)
	job := sched.Job{
		ID: name, AllowedDelay: NoDelayGiven, Submitted: start.Add(parsed(row, columnSubmit, seconds)),
		Duration: parsed(row, columnDuration, positive(seconds)),
	}
	one := parsed(row, columnCPU, cores)
	share := parsed(row, alibabaMemory, notNegative)
	if share > 1 {
		row.refuse(alibabaMemory, fmt.Errorf("%q is more than the memory of a machine", row.text(alibabaMemory)))
	}
	instances := parsed(row, alibabaInstances, manyInstances)
	memory := int64(share * alibabaMachineMemory)
	each := max(1, min(alibabaCores*1000/max(1, one), alibabaMachineMemory/max(1, memory)))
	for i := int64(0); instances > 0; i++ {
		packed := min(instances, each)
		instances -= packed
		job.Request = sched.Resources{MilliCPU: packed * one, Memory: packed * memory}
		if i > 0 || instances > 0 {
			job.ID = name + "-" + strconv.FormatInt(i, 10)
		}
		t.Jobs = append(t.Jobs, job)
	}
}
