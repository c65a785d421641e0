package delivery

import (
	"cmp"
	"slices"
	"unique"
)

// takeUp recovers the files that a previous process left in the state directory: the unacknowledged sealed batches
// and, if it ran on the same boot, the open batch with its number and the agent's state. Batches of previous boots
// are delivered first, as part of their own streams.
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
	slotNumber, known := uint64(0), pending
	if last != nil {
		slotNumber, known = last.batch.First, append(slices.Clip(pending), &sealed{record: *last})
		last = supersede(last, pending)
	}
	q.generation = 1 // new records are newer than all existing ones
	for _, s := range known {
		q.generation, q.seq = max(q.generation, s.generation+1), max(q.seq, s.seq)
	}
	resumed := last != nil && !last.broken && last.batch.Stream.Boot == q.opts.Boot &&
		last.batch.Stream.Node == q.opts.Node
	if resumed {
		q.resume(last)
		q.slotNumber = slotNumber
	}
	for i, s := range pending {
		// The oldest batch of a stream may have been sent, and so may all others. Files of acknowledged batches may
		// still exist, because they could not be removed or because their removal was not yet on disk when the
		// power failed.
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
		q.log.Info("Recovered batches of a previous process", "batches", len(q.pending), "sameStream", resumed)
	}
	return nil
}

// closeFormer seals the open batch of the previous stream and writes the new stream to disk, so that the old slot
// is not recovered again after its batch has been delivered. If writing fails, for example because the disk is
// full, the controller may receive the batch again.
func (q *Queue) closeFormer(last *record) {
	if last != nil && !last.broken && !last.empty {
		q.log.Info("Sealed the open batch of a previous stream", "stream", last.batch.Stream.Epoch, "number",
			last.batch.Last)
		old := &sealed{record: *last, frozen: true}
		old.state = nil
		q.push(old)
		_ = q.write(old)
	}
	q.seq++
	_ = q.persist() // the error is reported, and the next Save tries again
}

// sortSealed sorts the recovered batches. It discards files with batch numbers that another file covers, which may
// exist after an interrupted fold.
func (q *Queue) sortSealed(files map[string]*record) []*sealed {
	var all []*sealed
	for name, r := range files {
		for i := range r.batch.Shares {
			s := &r.batch.Shares[i]
			s.ID = unique.Make(s.ID).Value() // share the memory of names among batches
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
					q.log.Error("Sealed batches overlap, discarding the later one", "file", s.files[0], "other",
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

// supersede returns the record from which the stream is resumed: the newest slot, or a record derived from the
// sealed batch that contains the slot's open batch, if there is one.
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

// resume continues the stream of r.
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
	q.log.Info("Resumed a stream", "epoch", q.stream.Epoch, "number", q.open.First)
}
