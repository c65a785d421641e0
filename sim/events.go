package sim

// event is a moment at which the state of the cluster changes. Events at the same time happen in the order of their
// kind and then of their job, so that runs are reproducible.
type event struct {
	at   int64 // nanoseconds since the start of the scenario
	kind eventKind
	job  int32
}

type eventKind uint8

const (
	completion eventKind = iota // first, so that what ends makes room for what begins
	release
	arrival
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
