package delivery

import (
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// What is on disk must at any moment describe a past from which the agent can go on without counting anything twice:
//
//   - A slot says how far the open batch and the agent's state were. It is written only while all sealed batches are on
//     disk; it must not claim that their energy was dealt with before.
//   - A batch file written after a slot holds the slot's open batch; then it counts, and its state.
//   - The newest of them stays until a newer one is there, even if its batch was acknowledged.
//   - A batch that could not be written is sent from memory, but a mark is left in the slot before that: what is on
//     disk is then older than what was delivered, and the stream ends with the process. The mark is short and
//     overwrites what is there, so it also succeeds where the disk is full.

// persist writes the sealed batches that are not on disk yet, then a slot.
func (q *Queue) persist() error {
	if q.disk == nil {
		return nil
	}
	for _, s := range q.pending {
		if !s.safe {
			if err := q.write(s); err != nil {
				return err
			}
		}
	}
	err := q.disk.writeSlot(&record{
		seq: q.seq, generation: q.generation, empty: q.empty, end: q.end, batch: &q.open, state: q.state,
	})
	if q.report(err) != nil {
		return err
	}
	if q.stats.DiskFailing {
		q.stats.DiskFailing = false
		q.log.Info("the state directory can be written again", "dir", q.opts.Dir)
	}
	q.slotNumber, q.brokenSeq, q.savedSeq = q.open.First, 0, q.seq
	for _, s := range q.pending {
		s.state = nil // the slot has a newer one
	}
	q.cleanUp()
	return nil
}

func (q *Queue) allSafe() bool {
	return !slices.ContainsFunc(q.pending, func(s *sealed) bool { return !s.safe })
}

// write puts a sealed batch on disk. Its error has been reported.
func (q *Queue) write(s *sealed) error {
	name := batchName(s.generation, s.batch.First, s.batch.Last)
	if err := q.report(q.disk.writeBatch(name, &s.record)); err != nil {
		return err
	}
	q.discard(s.files, 0)
	s.files, s.whole, s.safe = []string{name}, true, true
	if s.generation == q.generation && s.state != nil {
		q.fileNumber = max(q.fileNumber, s.batch.Last)
		if s.seq > q.brokenSeq {
			q.brokenSeq = 0
		}
	}
	q.cleanUp()
	return nil
}

// breakOff marks the stream on disk as one that cannot go on.
func (q *Queue) breakOff() {
	if q.brokenSeq != 0 {
		return
	}
	q.seq++
	mark := batch.Batch{Version: batch.Version, Stream: q.stream, First: q.open.First, Last: q.open.Last}
	err := q.disk.writeSlot(&record{
		seq: q.seq, generation: q.generation, empty: true, broken: true, end: q.end, batch: &mark,
	})
	if q.report(err) == nil {
		q.brokenSeq = q.seq
	}
}

// discard removes files, now or later. A file that the stream may have to go on from has a number.
func (q *Queue) discard(files []string, last uint64) {
	for _, file := range files {
		q.trash = append(q.trash, leftover{file, last})
	}
}

// cleanUp removes what is no longer needed.
func (q *Queue) cleanUp() {
	if q.disk == nil {
		return
	}
	q.trash = slices.DeleteFunc(q.trash, func(t leftover) bool {
		if t.last != 0 && t.last >= q.slotNumber && t.last >= q.fileNumber && q.brokenSeq == 0 {
			return false
		}
		return q.report(q.disk.remove(t.file)) == nil
	})
}

// report counts err and returns it. It logs the first error since the last successful Save; nil is ignored.
func (q *Queue) report(err error) error {
	if err == nil {
		return nil
	}
	q.stats.DiskErrors++
	if !q.stats.DiskFailing {
		q.log.Error("the state directory cannot be written; going on in memory", "dir", q.opts.Dir, "err", err)
	}
	q.stats.DiskFailing = true
	return err
}
