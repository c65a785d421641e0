package delivery

import (
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// bound folds adjacent batches until the limits are met. It never drops a batch: if no pair can be folded, the
// limits are exceeded.
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

// manyTimes is the factor by which the limits must be exceeded before batches of previous processes are folded too.
// Such a batch may have been partially recorded, in which case the controller rejects the folded batch. The factor
// is exceeded only after many restarts without a connection to the controller.
const manyTimes = 4

// over reports whether batches must be folded, and whether batches of previous processes may be folded too.
func (q *Queue) over() (over, all bool) {
	count, size := 0, 0
	for _, s := range q.pending {
		if !s.frozen {
			count++
			size += s.size
		}
	}
	// Divide instead of multiplying the limits, which could overflow.
	all = (len(q.pending)-1)/manyTimes >= q.opts.MaxBatches || (q.size-1)/manyTimes >= q.opts.MaxBytes
	return all || count > q.opts.MaxBatches || size > q.opts.MaxBytes, all
}

// pair returns the index of the first batch of the adjacent pair to fold: the pair that covers the fewest batch
// numbers, and the oldest one of these. It returns -1 if there is no pair.
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

// fold merges two adjacent batches into one.
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
		_ = q.write(s) // on failure, the files of both parts are kept
	}
	return true
}
