package sim

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// waitingQueue contains the jobs that wait for capacity, in order of arrival. Jobs with the same request either all
// fit or none does, so each kind of request has its own line and only the heads of the lines are examined. In a
// long queue, most jobs are not touched.
type waitingQueue struct {
	lines  []line
	byKey  map[lineKey]int32 // position in lines
	length int
	last   int64 // number of the last job added
	unused [][]waiter

	alive []int32 // lines in the current pass
}

// line is the queue of jobs with the same request, selector and sites. Its jobs are sorted by number.
type line struct {
	key   lineKey
	jobs  []waiter
	from  int // index of the first remaining job
	tried int // number of remaining jobs that were tried in the current pass and not removed
}

type lineKey struct {
	request  sched.Resources
	selector string
	sites    string
}

type waiter struct {
	number int64
	job    int32
}

func newWaitingQueue() waitingQueue { return waitingQueue{byKey: map[lineKey]int32{}} }

func keyOf(j *sched.Job) lineKey {
	key := lineKey{request: j.Request}
	if len(j.Sites) > 0 {
		key.sites = fmt.Sprint(j.Sites)
	}
	if len(j.Selector) > 0 {
		key.selector = fmt.Sprint(j.Selector) // fmt sorts maps by key
	}
	return key
}

// add appends a job to the queue.
func (q *waitingQueue) add(job int, j *sched.Job) {
	key := keyOf(j)
	k, ok := q.byKey[key]
	if !ok {
		k = int32(len(q.lines))
		q.byKey[key] = k
		q.lines = append(q.lines, line{key: key})
		if n := len(q.unused); n > 0 {
			q.lines[k].jobs, q.unused = q.unused[n-1][:0], q.unused[:n-1]
		}
	}
	q.last++
	q.length++
	q.lines[k].jobs = append(q.lines[k].jobs, waiter{number: q.last, job: int32(job)})
}

// each calls f for at most the given number of waiting jobs.
func (q *waitingQueue) each(most int, f func(job int)) {
	for k := range q.lines {
		for _, w := range q.lines[k].jobs[q.lines[k].from:] {
			if most--; most < 0 {
				return
			}
			f(int(w.job))
		}
	}
}

// begin starts a pass over the jobs with requests within room, in order of arrival.
func (q *waitingQueue) begin(room sched.Resources) {
	q.alive = q.alive[:0]
	for k := range q.lines {
		if q.lines[k].key.request.Within(room) {
			q.lines[k].tried = 0
			q.alive = append(q.alive, int32(k))
		}
	}
}

// next returns the line of the next job of the pass, or -1 if there is none. Because room only decreases during a
// pass, lines that no longer fit are dropped from it.
func (q *waitingQueue) next(room sched.Resources) (k int32) {
	k = -1
	left := q.alive[:0]
	for _, i := range q.alive {
		l := &q.lines[i]
		if l.from+l.tried >= len(l.jobs) || !l.key.request.Within(room) {
			continue
		}
		left = append(left, i)
		if k < 0 || l.head().number < q.lines[k].head().number {
			k = i
		}
	}
	q.alive = left
	return k
}

// head returns the next job of a line that was not tried in this pass.
func (l *line) head() waiter { return l.jobs[l.from+l.tried] }

// skip leaves the head of line k in place.
func (q *waitingQueue) skip(k int32) { q.lines[k].tried++ }

// drop skips all jobs of line k in this pass.
func (q *waitingQueue) drop(k int32) { q.lines[k].tried = len(q.lines[k].jobs) - q.lines[k].from }

// pop removes the head of line k.
func (q *waitingQueue) pop(k int32) {
	l := &q.lines[k]
	copy(l.jobs[l.from+1:l.from+l.tried+1], l.jobs[l.from:l.from+l.tried])
	l.from++
	q.length--
}

// end ends a pass and removes empty lines.
func (q *waitingQueue) end() {
	for k := 0; k < len(q.lines); {
		l := &q.lines[k]
		switch {
		case l.from < len(l.jobs):
			if l.from > 64 && 2*l.from > len(l.jobs) {
				l.jobs, l.from = append(l.jobs[:0], l.jobs[l.from:]...), 0
			}
			k++
		default:
			delete(q.byKey, l.key)
			q.unused = append(q.unused, l.jobs)
			last := len(q.lines) - 1
			if k != last {
				q.lines[k] = q.lines[last]
				q.byKey[q.lines[k].key] = int32(k)
			}
			q.lines[last] = line{}
			q.lines = q.lines[:last]
		}
	}
}

// retry offers the nodes with new free capacity to the waiting jobs. Jobs that did not fit on other nodes before
// still do not fit there, so only these nodes are considered.
func (e *engine) retry(now time.Time) error {
	if len(e.freed) == 0 || e.waiting.length == 0 {
		return nil
	}
	room := e.room()
	q := &e.waiting
	q.begin(room)
	for k := q.next(room); k >= 0; k = q.next(room) {
		job := int(q.lines[k].head().job)
		j := &e.scenario.Jobs[job]
		e.feasible = e.feasible[:0]
		for _, i := range e.freed {
			if j.Fits(&e.nodes[i]) {
				e.consider(now, i)
			}
		}
		if len(e.feasible) == 0 {
			q.drop(k)
			continue
		}
		final := e.tasks == nil || !j.Interruptible || e.slack(now, job) <= 0
		e.snapshot.Ahead = e.ahead.look(now, j, e.nodes)
		d := e.plan(now, job, final)
		switch {
		case d.Held(now):
			q.pop(k)
			if err := e.hold(now, job, d, final); err != nil {
				return err
			}
		case d.Node == "":
			q.skip(k)
		default:
			q.pop(k)
			if err := e.place(now, job, d); err != nil {
				return err
			}
			room = e.room()
		}
	}
	q.end()
	return nil
}

// room returns the maximum free amount of each resource over the freed nodes. It is a cheap upper bound that
// excludes most of the queue.
func (e *engine) room() (most sched.Resources) {
	for _, i := range e.freed {
		most = most.Max(e.nodes[i].Free)
	}
	return most
}
