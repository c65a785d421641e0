package delivery

import (
	"cmp"
	"slices"
	"unique"
)

// takeUp goes on from what a former process left in the state directory: the sealed batches that were not acknowledged,
// and, on the same boot, the open batch, its number and the agent's state. The batches of former boots are delivered
// first, under their own streams.
func (q *Queue) takeUp() error {
	files, err := q.disk.batchRecords(q.log)
	if err != nil {
		return err
	}
	last, err := q.disk.slotRecord(q.log)
	if err != nil {
		return err
	}
	pending := q.sortSealed(files)
	q.countUp(last, pending)
	slotNumber := uint64(0)
	if last != nil {
		slotNumber = last.batch.First
		last = supersede(last, pending)
	}
	resumed := last != nil && !last.broken && last.batch.Stream.Boot == q.opts.Boot &&
		last.batch.Stream.Node == q.opts.Node
	if resumed {
		q.resume(last)
		q.slotNumber = slotNumber
	}
	for i, s := range pending {
		// A stream's oldest may have been sent, and any other too: files whose batches were booked may be back,
		// because the kernel had not yet written that they are removed when the power failed, or because they could
		// not be removed.
		s.frozen = true
		s.sent = i == 0 || s.batch.Stream != pending[i-1].batch.Stream
		if s.state != nil && s.batch.Stream == q.stream {
			q.fileNumber = s.batch.Last
		}
		q.push(s)
	}
	if !resumed {
		q.closeFormer(last)
	}
	if len(q.pending) > 0 {
		q.log.Info("batches of a former run are to be delivered", "batches", len(q.pending), "sameStream", resumed)
	}
	return nil
}

// countUp makes what is written from now on newer than all that was found.
func (q *Queue) countUp(last *record, pending []*sealed) {
	q.generation = 1
	for _, s := range pending {
		q.generation = max(q.generation, s.generation+1)
		q.seq = max(q.seq, s.seq)
	}
	if last != nil {
		q.generation = max(q.generation, last.generation+1)
		q.seq = max(q.seq, last.seq)
	}
}

// closeFormer seals what the former stream's slot holds, and begins the new stream on disk, so that the slot is not
// found again when its batch has been delivered. Where that fails, as on a full disk, the controller is sent
// something again that it has.
func (q *Queue) closeFormer(last *record) {
	if last != nil && !last.broken && !last.empty {
		q.log.Info("the open batch of a former boot is sealed", "stream", last.batch.Stream.Epoch, "number",
			last.batch.Last)
		old := &sealed{record: *last, frozen: true}
		old.state = nil
		q.push(old)
		_ = q.write(old)
	}
	q.seq++
	_ = q.persist() // reported; the next Save tries again
}

// sortSealed orders what was found on disk, and removes what a fold had no time to remove: a file whose numbers another
// file covers.
func (q *Queue) sortSealed(files map[string]*record) []*sealed {
	var all []*sealed
	for name, r := range files {
		for i := range r.batch.Shares {
			s := &r.batch.Shares[i]
			s.ID = unique.Make(s.ID).Value() // in memory once, however many batches name it
		}
		all = append(all, &sealed{record: *r, files: []string{name}, whole: true, safe: true})
	}
	slices.SortFunc(all, func(a, b *sealed) int {
		return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.batch.First, b.batch.First),
			cmp.Compare(b.batch.Last, a.batch.Last))
	})
	kept := all[:0]
	for _, s := range all {
		if len(kept) > 0 {
			if before := kept[len(kept)-1]; before.generation == s.generation && s.batch.First <= before.batch.Last {
				if s.batch.Last > before.batch.Last {
					q.log.Error("two sealed batches overlap; the later one is left out", "file", s.files[0], "other",
						before.files[0])
				}
				q.discard(s.files, 0)
				continue
			}
		}
		kept = append(kept, s)
	}
	return kept
}

// supersede returns what the stream goes on from, given its newest slot: the sealed batch that the slot's open batch
// has become since, if it has.
func supersede(slot *record, pending []*sealed) *record {
	for _, s := range pending {
		if s.generation != slot.generation || s.batch.Last < slot.batch.First ||
			slot.broken && (s.state == nil || s.seq <= slot.seq) {
			continue
		}
		after := *slot
		after.empty, after.broken = true, false
		after.end = s.end
		after.seq = max(slot.seq, s.seq)
		if s.state != nil {
			after.state = s.state
		}
		b := *s.batch
		b.First, b.Last, b.Shares = s.batch.Last+1, s.batch.Last+1, nil
		after.batch = &b
		slot = &after
	}
	return slot
}

// resume goes on with a stream.
func (q *Queue) resume(r *record) {
	q.generation = r.generation
	q.stream = r.batch.Stream
	q.end = r.end
	q.recovered = r.state
	q.state = append([]byte{}, r.state...)
	q.reset(r.batch.First)
	q.sent = r.batch.First - 1
	if !r.empty {
		q.open, q.empty = *r.batch, false
	}
	q.log.Info("going on with a stream", "epoch", q.stream.Epoch, "number", q.open.First)
}
