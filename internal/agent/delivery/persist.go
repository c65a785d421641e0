package delivery

import (
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// At any time, the files on disk must describe a state from which the agent can continue without counting energy
// twice:
//
//   - A slot contains the open batch and the agent's state. It is written only while all sealed batches are on disk,
//     because a slot implies that the energy of earlier batches has been handled.
//   - A batch file written after a slot contains the slot's open batch. It supersedes the slot, including its state.
//   - The newest of these files is kept until a newer one exists, even if its batch was acknowledged.
//   - If a batch cannot be written, a slot is overwritten with a mark before the batch is sent from memory. The files
//     are then older than the delivered batches, and the stream ends with the process. The mark is short and overwrites
//     existing data, so that it can also be written to a full disk.

// persist writes all sealed batches that are not on disk yet, and then a slot.
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
		q.log.Info("State directory is writable again", "dir", q.opts.Dir)
	}
	q.slotNumber, q.brokenSeq, q.savedSeq = q.open.First, 0, q.seq
	for _, s := range q.pending {
		s.state = nil // superseded by the state in the slot
	}
	q.cleanUp()
	return nil
}

func (q *Queue) allSafe() bool {
	return !slices.ContainsFunc(q.pending, func(s *sealed) bool { return !s.safe })
}

// write writes a sealed batch to disk. It reports errors before it returns them.
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

// breakOff marks the stream on disk as broken, so that the next process does not continue it.
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

// discard schedules files for removal. If a file may be needed to resume the stream, last is the number of its
// batch; otherwise it is 0.
func (q *Queue) discard(files []string, last uint64) {
	for _, file := range files {
		q.trash = append(q.trash, leftover{file, last})
	}
}

// cleanUp removes discarded files that are no longer needed to resume the stream.
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

// report counts err and returns it. It logs only the first error since the last successful Save. It is a no-op if
// err is nil.
func (q *Queue) report(err error) error {
	if err == nil {
		return nil
	}
	q.stats.DiskErrors++
	if !q.stats.DiskFailing {
		q.log.Error("Failed to write the state directory, continuing in memory", "dir", q.opts.Dir, "err", err)
	}
	q.stats.DiskFailing = true
	return err
}
