package workload

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/sched"
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

const maxInstances = 1 << 20

func (t *Trace) readAlibaba(file string, text []byte, start time.Time) error {
	return t.readTable(file, text, []string{
		columnSubmit, columnDuration, columnCPU, alibabaMemory, alibabaJob, alibabaTask, alibabaInstances,
	},
		[]string{alibabaDisk}, func(in *rows) (string, error) { return t.alibabaTask(in, start) })
}

// alibabaTask adds the jobs of the present row. With an error it names the field that is wrong.
func (t *Trace) alibabaTask(in *rows, start time.Time) (field string, err error) {
	job := sched.Job{ID: in.text(alibabaJob) + "-" + in.text(alibabaTask), AllowedDelay: NoDelayGiven}
	for _, column := range [...]string{alibabaJob, alibabaTask} {
		if _, err := whole(in.text(column)); err != nil {
			return column, err
		}
	}
	submit, err := seconds(in.text(columnSubmit))
	if err != nil {
		return columnSubmit, err
	}
	job.Submitted = start.Add(submit)
	if job.Duration, err = positive(in.text(columnDuration), seconds); err != nil {
		return columnDuration, err
	}
	one, err := cores(in.text(columnCPU))
	if err != nil {
		return columnCPU, err
	}
	share, err := notNegative(in.text(alibabaMemory))
	if err == nil && share > 1 {
		err = fmt.Errorf("%q is more than a machine has", in.text(alibabaMemory))
	}
	if err != nil {
		return alibabaMemory, err
	}
	instances, err := strconv.ParseInt(in.text(alibabaInstances), 10, 64)
	if err != nil || instances < 1 || instances > maxInstances {
		return alibabaInstances, fmt.Errorf("%q: want a whole number, 1 to %d", in.text(alibabaInstances), maxInstances)
	}
	memory := int64(share * alibabaMachineMemory)
	name, each := job.ID, max(1, min(alibabaCores*1000/max(1, one), alibabaMachineMemory/max(1, memory)))
	for i := int64(0); instances > 0; i++ {
		packed := min(instances, each)
		instances -= packed
		job.Request = sched.Resources{MilliCPU: packed * one, Memory: packed * memory}
		if i > 0 || instances > 0 {
			job.ID = name + "-" + strconv.FormatInt(i, 10)
		}
		t.Jobs = append(t.Jobs, job)
	}
	return alibabaTask, nil
}

// readTable reads a table row by row. What add appends to the jobs gets IDs of its own: the field that add returns is
// the one that they are taken from, if the row makes any.
func (t *Trace) readTable(file string, text []byte, required, optional []string,
	add func(*rows) (field string, err error),
) error {
	in, err := newRows(file, text, required, optional)
	if err != nil {
		return err
	}
	seen := ids{}
	return in.each(func() (string, error) {
		before := len(t.Jobs)
		field, err := add(in)
		for i := before; i < len(t.Jobs) && err == nil; i++ {
			err = seen.add(t.Jobs[i].ID)
		}
		return field, err
	})
}
