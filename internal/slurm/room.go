package slurm

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// see updates the capacity of each partition from the CPUs of its usable nodes. Running jobs that were delayable
// occupy capacity until their end. Other jobs that are running or waiting for resources occupy it indefinitely.
func (r room) see(nodes []Node, jobs []Job, now time.Time, asks func(*Job) bool) {
	queued := map[*sched.Room]int64{}
	for _, p := range r {
		p.MilliCPU, queued[p] = 0, 0
		p.Forget()
	}
	for i := range nodes {
		if n := &nodes[i]; n.Usable() {
			for _, p := range n.Partitions {
				r.of(p).MilliCPU += milli * int64(n.CPUs)
			}
		}
	}
	for i := range jobs {
		j := &jobs[i]
		if j.Does() != Started && !j.LacksRoom() {
			continue
		}
		p, asks, milliCPU := r.of(j.partition()), asks(j), milli*j.atOnce()
		switch {
		case !asks:
			p.Stay(int64(j.ID), milliCPU, now)
			if j.LacksRoom() {
				queued[p] += milliCPU
			}
		case j.Does() == Started:
			r.occupy(j, now, timeutil.Later(j.End.time(), now.Add(time.Minute)))
		}
	}
	for p, milliCPU := range queued {
		p.Waits(milliCPU, now)
	}
}

// room contains the capacity of each partition by name.
type room map[string]*sched.Room

const milli = 1000

func (r room) of(partition string) *sched.Room {
	r[partition] = cmp.Or(r[partition], &sched.Room{})
	return r[partition]
}

// occupy replaces the time in which a job occupies capacity.
func (r room) occupy(j *Job, from, to time.Time) {
	r.of(j.partition()).Take(int64(j.ID), milli*j.atOnce(), sched.Window{Start: from, End: to})
}

// partition returns the first partition that a job requests.
func (j *Job) partition() string {
	first, _, _ := strings.Cut(j.Partition, ",")
	return first
}

// atOnce returns the number of CPUs that a job uses at the same time, including all tasks of an array that may run
// simultaneously.
func (j *Job) atOnce() int64 {
	list, limit, limited := strings.Cut(j.ArrayTasks, "%")
	tasks := int64(0)
	for part := range strings.SplitSeq(list, ",") {
		var first, last, step int64 = 0, 0, 1
		if n, _ := fmt.Sscanf(part, "%d-%d:%d", &first, &last, &step); n > 1 && step > 0 && last >= first {
			tasks += (last-first)/step + 1
		} else {
			tasks++
		}
	}
	if most, err := strconv.ParseInt(limit, 10, 64); limited && err == nil && most > 0 {
		tasks = min(tasks, most)
	}
	return tasks * max(int64(j.CPUs), 1)
}
