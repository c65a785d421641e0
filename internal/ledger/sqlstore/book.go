package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Book implements [ledger.Store].
func (d *DB) Book(ctx context.Context, all []*ledger.Booking) ([]ledger.Receipt, []error, error) {
	d.booking.Lock()
	defer d.booking.Unlock()
	var b *booker
	err := d.update(ctx, func(s *session) {
		b = &booker{
			interning: d.interning(s), receipts: make([]ledger.Receipt, len(all)), errs: make([]error, len(all)),
		}
		b.book(all)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("recording bookings: %w", err)
	}
	return b.receipts, b.errs, nil
}

// A booker records bookings in one transaction.
type booker struct {
	*interning
	receipts []ledger.Receipt
	errs     []error
	postings []posting // postings of the last entry, reused to avoid allocations
}

func (b *booker) book(all []*ledger.Booking) {
	if len(all) == 0 {
		b.s.setMeta("written", strconv.FormatInt(b.now, 10))
		return
	}
	b.lock(all)
	var rows, outgoing [][]any
	for i, booking := range all {
		b.receipts[i], b.errs[i] = b.admit(booking)
		if b.s.err != nil {
			return
		}
		if b.receipts[i].Booked {
			e := b.entry(booking)
			k := e.key()
			rows = append(rows, []any{k[0], k[1], k[2], e.encode()})
			if booking.Forward != nil {
				outgoing = append(outgoing, b.outgoing(booking))
			}
		}
	}
	b.s.insert("outbox", outboxColumns, outgoing, "")
	b.s.insert("journal", []string{"node", "start", "finish", "payload"}, rows, "")
}

// lock creates the rows of all nodes and locks them if several processes can write concurrently, because streams
// and spans are read before they are written. All processes lock nodes in the same order to avoid deadlocks.
func (b *booker) lock(all []*ledger.Booking) {
	nodes := sliceutil.Map(all, func(b *ledger.Booking) string { return b.Batch.Stream.Node })
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	for range 2 {
		if b.lockNodes(nodes) || b.s.err != nil {
			return
		}
		b.d.log.WarnContext(b.s.ctx, "The database of the ledger has changed unexpectedly, possibly because of a "+
			"failover, clearing the cache of row IDs")
		b.d.forgetNames()
		b.interning = b.d.interning(b.s)
	}
	b.s.check(fmt.Errorf("%w: the rows of nodes changed while they were read", ledger.ErrDamaged))
}

// lockNodes locks the rows of nodes. It returns false if cached row IDs are stale.
func (b *booker) lockNodes(names []string) (same bool) {
	rows := make(map[int64]string, len(names))
	for _, name := range names {
		rows[b.node(name)] = name
	}
	if b.d.dialect.ForUpdate == "" {
		return true
	}
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		var name string
		found := b.s.one("SELECT name FROM nodes WHERE id = $1"+b.d.dialect.ForUpdate, []any{id}, &name)
		if !found || name != rows[id] {
			return false
		}
	}
	return len(rows) == len(names)
}

// admit decides whether a booking is recorded, as described in docs/reference/protocol.md under Numbers, and stores
// its sequence numbers and its interval. It returns an error if the booking is rejected.
func (b *booker) admit(booking *ledger.Booking) (ledger.Receipt, error) {
	bt := booking.Batch
	var st stream
	b.s.within(readingStream, func() {
		b.s.each(st.scan(&bt.Stream), findStream, bt.Stream.Node, bt.Stream.Boot, bt.Stream.Epoch)
	})
	switch {
	case st.known && bt.Last <= st.acked:
		return ledger.Receipt{Acked: st.acked}, nil
	case st.known && bt.First <= st.acked:
		return ledger.Receipt{}, fmt.Errorf("%w: batch with sequence numbers %d to %d, last recorded is %d",
			ledger.ErrPartly, bt.First, bt.Last, st.acked)
	}
	if err := booking.Validate(); err != nil {
		return ledger.Receipt{}, err
	}
	apart := false
	if !booking.Agentless && bt.EndSinceBoot > bt.StartSinceBoot {
		var err error
		if apart, err = b.occupy(booking); err != nil {
			return ledger.Receipt{}, err
		}
	}
	gap := bt.First != st.acked+1 // acked is 0 for an unknown stream
	if gap {
		st.gaps++
	}
	b.s.upsert("streams", []string{"node", "boot", "epoch", "acked", "gaps", "seen", "crc"}, 3,
		sealed([]any{bt.Stream.Node, bt.Stream.Boot, bt.Stream.Epoch, int64(bt.Last), st.gaps, b.now}))
	return ledger.Receipt{Acked: bt.Last, Booked: true, Gap: gap, New: apart || !st.known}, nil
}

// Acked implements [ledger.Store].
func (d *DB) Acked(ctx context.Context, of batch.Stream) (uint64, bool, error) {
	var st stream
	rows, err := d.reads.QueryContext(ctx, findStream, of.Node, of.Boot, of.Epoch)
	if err := ForEach(rows, err, st.scan(&of)); err != nil {
		return 0, false, fmt.Errorf("%s: %w", readingStream, err)
	}
	return st.acked, st.known, nil
}

const (
	findStream    = "SELECT acked, gaps, seen, crc FROM streams WHERE node = $1 AND boot = $2 AND epoch = $3"
	readingStream = "reading the acknowledged sequence number of a stream"
)

type stream struct {
	known bool
	acked uint64
	gaps  int64
}

// scan returns a function that reads the row of a stream.
func (st *stream) scan(of *batch.Stream) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var acked, seen, sum int64
		err := rows.Scan(&acked, &st.gaps, &seen, &sum)
		st.known, st.acked = true, uint64(acked)
		if err == nil && sum != rowCRC(of.Node, of.Boot, of.Epoch, acked, st.gaps, seen) {
			err = fmt.Errorf("%w: acknowledged sequence number of a stream of node %s", ledger.ErrDamaged, of.Node)
		}
		return err
	}
}

type span struct{ first, last int64 }

// occupy records the interval of a batch, or returns an error if it overlaps a recorded interval of the same boot.
// It reports whether the interval is separate from all recorded ones.
func (b *booker) occupy(booking *ledger.Booking) (apart bool, _ error) {
	bt := booking.Batch
	of, want := &bt.Stream, span{int64(bt.StartSinceBoot), int64(bt.EndSinceBoot)}
	beside := b.spans(of, want)
	if len(beside) == 0 { // a new boot or a gap; other batches follow a recorded one
		b.hears(booking)
	}
	if booking.NodeSeen != nil {
		b.sees(of.Node, booking.NodeSeen)
	}
	joined := want
	for _, s := range beside {
		if s.first < want.last && s.last > want.first {
			return false, fmt.Errorf("%w: %v to %v since boot", ledger.ErrOverlap,
				time.Duration(max(s.first, want.first)), time.Duration(min(s.last, want.last)))
		}
		joined = span{min(joined.first, s.first), max(joined.last, s.last)}
	}
	for _, s := range beside {
		if s.first != joined.first {
			b.s.exec("DELETE FROM spans WHERE node = $1 AND boot = $2 AND first = $3", of.Node, of.Boot, s.first)
		}
	}
	b.s.upsert("spans", []string{"node", "boot", "first", "last", "seen", "crc"}, 3,
		sealed([]any{of.Node, of.Boot, joined.first, joined.last, b.now}))
	return len(beside) == 0, nil
}

// spans returns the spans that overlap or touch the given one. Spans are disjoint and read in descending order, so
// reading stops at the first span that ends before it.
func (b *booker) spans(of *batch.Stream, want span) (beside []span) {
	b.s.each(func(rows *sql.Rows) error {
		var s span
		var seen, sum int64
		if err := rows.Scan(&s.first, &s.last, &seen, &sum); err != nil {
			return err
		}
		if sum != rowCRC(of.Node, of.Boot, s.first, s.last, seen) {
			return fmt.Errorf("%w: span of node %s", ledger.ErrDamaged, of.Node)
		}
		if s.last < want.first {
			return errEnough
		}
		beside = append(beside, s)
		return nil
	}, "SELECT first, last, seen, crc FROM spans WHERE node = $1 AND boot = $2 AND first <= $3 ORDER BY first DESC",
		of.Node, of.Boot, want.last)
	return beside
}

// entry returns the journal entry of a booking. It is valid until the next call.
func (b *booker) entry(booking *ledger.Booking) *entry {
	bt, own := booking.Batch, booking.Account(ledger.Unknown)
	e := &entry{
		Node: b.node(bt.Stream.Node), Start: bt.Start, End: bt.End, Agentless: booking.Agentless,
		Estimated: booking.Estimated(), Unmeasured: bt.Unmeasured, Measured: bt.Measured, Rates: booking.Rates,
		Base: b.account(&own),
	}
	if c, guest := booking.Transfer(); guest {
		e.Guest = b.posting(e.Node, &ledger.Posting{Consumer: c})
	}
	e.Postings = b.postings[:0]
	for p := range booking.Postings() {
		e.Postings = append(e.Postings, b.posting(e.Node, p))
	}
	b.postings = e.Postings
	sortPostings(e.Postings)
	if booking.Temperature != nil {
		b.warms(e.Node, booking)
	}
	return e
}

func (b *booker) posting(node int64, p *ledger.Posting) posting {
	account := b.account(&p.Consumer.Account)
	return posting{b.consumer(node, &p.Consumer), account, p.Amount}
}
