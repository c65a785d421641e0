package workload

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// The columns of batch tasks of Alibaba's cluster-trace-v2018, as CloudSimPy writes them.
const (
	alibabaMemory    = "memory" // share of that of a machine
	alibabaJob       = "job_id"
	alibabaTask      = "task_id"
	alibabaInstances = "instances_num"
	alibabaDisk      = "disk"
)

// Alibaba's machines have 96 cores. How much memory they have was not published: 4 GiB a core are taken for it, as
// their other traces have it.
const alibabaMachineMemory = 96 * 4 << 30

// alibabaCores is how many cores the instances of a task are packed into. A task has up to tens of thousands of
// instances that run independently for about as long. One job for each are millions that all look the same, one for
// all fits no machine: so they come in jobs of up to so many cores, and no more memory than a machine has; core-hours
// are those of the trace.
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
		row.refuse(alibabaMemory, fmt.Errorf("%q is more than a machine has", row.text(alibabaMemory)))
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
