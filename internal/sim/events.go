package sim

// event is a change of the state of the cluster, or a due decision. Events at the same time are processed in the
// following order, and events of the same kind in the order of the jobs, so that runs are reproducible:
//
//	completions    finished jobs free capacity
//	boots          machines finish booting, successfully or not
//	checks         running jobs continue or are suspended, which frees capacity too
//	(waiting jobs are tried on the nodes with new free capacity, in the order of the queue)
//	releases       final holds end
//	due decisions  on held or suspended jobs
//	arrivals
//	ticks          the queue is planned as a whole
//	(machines are put to sleep and woken)
//
// The learner is updated with completions and arrivals before the strategy makes decisions. Events caused at the
// same time, e.g. the completion of a job with a negligible run time, are processed afterwards.
type event struct {
	at   int64 // nanoseconds since the start of the scenario
	kind eventKind
	job  int32
}

type eventKind uint8

const (
	completion eventKind = iota
	booted               // job is the index of a node
	check
	release
	again
	arrival
	tick
	power // a machine may sleep now, or must wake up
)

func (e event) before(o event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	if e.kind != o.kind {
		return e.kind < o.kind
	}
	return e.job < o.job
}

// eventHeap is a 4-ary min-heap of values. It is shallower than a binary heap and avoids a pointer per event.
type eventHeap []event

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	s := *h
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(s[parent]) {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = e
}

func (h *eventHeap) pop() event {
	s := *h
	top, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	i := 0
	for first := 1; first < len(s); first = 4*i + 1 {
		least := first
		for child := first + 1; child < min(first+4, len(s)); child++ {
			if s[child].before(s[least]) {
				least = child
			}
		}
		if !s[least].before(last) {
			break
		}
		s[i] = s[least]
		i = least
	}
	if len(s) > 0 {
		s[i] = last
	}
	return top
}

// until calls each for the events up to the given time, in no particular order.
func (h eventHeap) until(at int64, each func(event)) { h.walk(0, at, each) }

func (h eventHeap) walk(i int, at int64, each func(event)) {
	if i >= len(h) || h[i].at > at {
		return
	}
	each(h[i])
	for child := 4*i + 1; child <= 4*i+4; child++ {
		h.walk(child, at, each)
	}
}
