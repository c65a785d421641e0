package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// room is how many CPUs of each partition are free over time: those of its nodes that take work, without what runs
// until it must end, and without what is to begin at a time that we gave it. What waits in Slurm's own queue is not
// counted: Slurm does not tell when it runs.
type room struct {
	cpus  map[string]int64 // by partition
	loads map[string][]load
}

// load is what is taken from one instant to another.
type load struct {
	job      number
	from, to time.Time
	cpus     int64
}

func newRoom(nodes []Node, jobs []Job, now time.Time) *room {
	r := &room{cpus: map[string]int64{}, loads: map[string][]load{}}
	for i := range nodes {
		if n := &nodes[i]; n.usable() {
			for _, p := range n.Partitions {
				r.cpus[p] += int64(n.CPUs)
			}
		}
	}
	for i := range jobs {
		if j := &jobs[i]; j.State.has("RUNNING", "COMPLETING", "SUSPENDED") {
			end := j.End.time()
			if !end.After(now) {
				end = now.Add(time.Minute)
			}
			r.take(j, now, end)
		}
	}
	return r
}

// partition returns the first of those that a job asks for.
func (j *Job) partition() string {
	first, _, _ := strings.Cut(j.Partition, ",")
	return first
}

// take counts a job as running in some time, and in no other.
func (r *room) take(j *Job, from, to time.Time) {
	p := j.partition()
	r.loads[p] = slices.DeleteFunc(r.loads[p], func(l load) bool { return l.job == j.ID })
	r.loads[p] = append(r.loads[p], load{j.ID, from, to, j.atOnce()})
}

// atOnce is how many CPUs a job takes: of an array, all tasks that may run at once.
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

// openings returns when a job finds room that begins later than now and by its latest start; none: at any time, or at
// none. One that is larger than its partition, or of which that is not known, is not ours to judge.
func (r *room) openings(j *Job, now, latest time.Time, length time.Duration) (open []sched.Window) {
	p := j.partition()
	has, needs := r.cpus[p], j.atOnce()
	if has < needs {
		return nil
	}
	type step struct {
		at   time.Time
		more int64
	}
	var steps []step
	for _, l := range r.loads[p] {
		if l.job != j.ID {
			steps = append(steps, step{l.from, l.cpus}, step{l.to, -l.cpus})
		}
	}
	// At one instant, what ends makes room for what begins.
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.more, b.more)) })
	taken, from := int64(0), now
	for i, s := range steps {
		if taken += s.more; taken+needs <= has {
			continue // until the next step there is room
		}
		to := latest
		if i+1 < len(steps) {
			to = steps[i+1].at
		}
		if end := grid.Earlier(s.at.Add(-length), latest); !end.Before(from) {
			open = append(open, sched.Window{Start: from, End: end})
		}
		from = grid.Later(from, to)
	}
	if !latest.Before(from) {
		open = append(open, sched.Window{Start: from, End: latest})
	}
	if len(open) == 1 && open[0].Start.Equal(now) && open[0].End.Equal(latest) {
		return nil
	}
	return open
}
