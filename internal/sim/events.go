package sim

// event is a moment at which the state of the cluster changes or a strategy is asked. What happens at one instant
// happens in this order, and within each kind in the order of the jobs, so that runs are reproducible:
//
//	completions                      what ends makes room for what begins
//	boots                            machines that come up, or fail to
//	checks                           running jobs go on or are suspended, which makes room too
//	(jobs that lack room are tried on the nodes that became free, in the order of the queue)
//	releases                         final holds end
//	jobs that are held or suspended and are asked again
//	arrivals
//	ticks                            the queue is planned as a whole
//	                                 machines go to sleep and are woken
//
// What is learnt from completions and arrivals is learnt before the strategy is asked. What an instant causes at the
// very same instant, as the completion of a job of next to no length, comes after all of it.
type event struct {
	at   int64 // nanoseconds since the start of the scenario
	kind eventKind
	job  int32
}

type eventKind uint8

const (
	completion eventKind = iota
	booted               // its job is the index of a node
	check
	release
	again
	arrival
	tick
	power // a machine may sleep by now, or is to wake
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

// eventHeap is a 4-ary min-heap of values: shallower than a binary heap and without a pointer per event.
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

// until calls each with the events up to an instant, in no order.
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
