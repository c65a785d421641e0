package delivery

import (
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// bound folds batches until they are few enough. Nothing is dropped: where nothing can be folded, more are kept.
func (q *Queue) bound() {
	for {
		over, all := q.over()
		if !over {
			return
		}
		i := q.pair(all)
		if i < 0 || !q.fold(i) {
			return
		}
	}
}

// manyTimes the limits is where even batches of former processes are folded, which may have been booked in part:
// by then the agent was started anew many times without reaching the controller. In the worst case the controller
// refuses a batch that was booked in part.
const manyTimes = 4

// over reports whether batches have to be folded, and whether all may be.
func (q *Queue) over() (over, all bool) {
	count, size := 0, 0
	for _, s := range q.pending {
		if !s.frozen {
			count++
			size += s.size
		}
	}
	// Divided, as the limits multiplied may be more than an int holds.
	all = (len(q.pending)-1)/manyTimes >= q.opts.MaxBatches || (q.size-1)/manyTimes >= q.opts.MaxBytes
	return all || count > q.opts.MaxBatches || size > q.opts.MaxBytes, all
}

// pair returns the index of the first of the two neighbours that are to become one: those that cover the fewest
// numbers, of these the oldest. It is -1 if there is no pair.
func (q *Queue) pair(all bool) int {
	best, span := -1, uint64(0)
	for i := range len(q.pending) - 1 {
		a, b := q.pending[i], q.pending[i+1]
		if a.sent || b.sent || !all && (a.frozen || b.frozen) || batch.Foldable(a.batch, b.batch) != nil {
			continue
		}
		if s := b.batch.Last - a.batch.First; best < 0 || s < span {
			best, span = i, s
		}
	}
	return best
}

// fold makes one batch of two neighbours.
func (q *Queue) fold(i int) bool {
	a, b := q.pending[i], q.pending[i+1]
	folded, err := batch.Fold(a.batch, b.batch)
	if err != nil {
		return false
	}
	folded.Shares = batch.Condense(folded.Shares, q.opts.MaxConsumers)
	s := &sealed{
		record: record{seq: b.seq, generation: b.generation, end: b.end, batch: folded, state: b.state},
		size:   sizeOf(folded),
		frozen: a.frozen || b.frozen,
		files:  slices.Concat(a.files, b.files),
		safe:   a.safe && b.safe,
	}
	q.pending = slices.Replace(q.pending, i, i+2, s)
	q.size += s.size - a.size - b.size
	q.stats.Folded++
	if q.disk != nil && s.safe {
		_ = q.write(s) // a failure leaves the parts, which hold the same
	}
	return true
}
