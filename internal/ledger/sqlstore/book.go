package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Book implements [ledger.Store].
func (d *DB) Book(ctx context.Context, all []*ledger.Booking) ([]ledger.Receipt, []error, error) {
	d.booking.Lock()
	defer d.booking.Unlock()
	var b *booker
	err := d.update(ctx, func(ctx context.Context, s *session) error {
		b = &booker{
			interning: d.interning(s), receipts: make([]ledger.Receipt, len(all)), errs: make([]error, len(all)),
		}
		return b.book(ctx, all)
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

func (b *booker) book(ctx context.Context, all []*ledger.Booking) error {
	if len(all) == 0 {
		return b.s.setMeta(ctx, "written", strconv.FormatInt(b.now, 10))
	}
	if err := b.lock(ctx, all); err != nil {
		return err
	}
	var rows, outgoing [][]any
	for i, booking := range all {
		var err error
		b.receipts[i], err = b.admit(ctx, booking)
		switch {
		case errors.Is(err, ledger.ErrOverlap), errors.Is(err, ledger.ErrPartly), errors.Is(err, ledger.ErrInvalid):
			b.errs[i] = err
		case err != nil:
			return err
		case b.receipts[i].Booked:
			e, err := b.entry(ctx, booking)
			if err != nil {
				return err
			}
			k := e.key()
			rows = append(rows, []any{k[0], k[1], k[2], e.encode()})
			if booking.Forward != nil {
				outgoing = append(outgoing, b.outgoing(booking))
			}
		}
	}
	if err := b.s.insert(ctx, "outbox", outboxColumns, outgoing, ""); err != nil {
		return err
	}
	return b.s.insert(ctx, "journal", []string{"node", "start", "finish", "payload"}, rows, "")
}

// lock creates the rows of all nodes and locks them if several processes can write concurrently, because streams
// and spans are read before they are written. All processes lock nodes in the same order to avoid deadlocks.
func (b *booker) lock(ctx context.Context, all []*ledger.Booking) error {
	var nodes []string
	for _, booking := range all {
		nodes = append(nodes, booking.Batch.Stream.Node)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	for range 2 {
		same, err := b.lockNodes(ctx, nodes)
		if err != nil || same {
			return err
		}
		b.d.log.WarnContext(ctx, "The database of the ledger has changed unexpectedly, possibly because of a "+
			"failover, clearing the cache of row IDs")
		b.d.forgetNames()
		b.interning = b.d.interning(b.s)
	}
	return fmt.Errorf("%w: the rows of nodes changed while they were read", ledger.ErrDamaged)
}

// lockNodes locks the rows of nodes. It returns false if cached row IDs are stale.
func (b *booker) lockNodes(ctx context.Context, names []string) (same bool, err error) {
	rows := make(map[int64]string, len(names))
	for _, name := range names {
		id, err := b.node(ctx, name)
		if err != nil {
			return false, err
		}
		rows[id] = name
	}
	if b.d.dialect.ForUpdate == "" {
		return true, nil
	}
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		var name string
		found, err := b.s.one(ctx, "SELECT name FROM nodes WHERE id = $1"+b.d.dialect.ForUpdate, []any{id}, &name)
		if err != nil || !found || name != rows[id] {
			return false, err
		}
	}
	return len(rows) == len(names), nil
}

// admit decides whether a booking is recorded, as described in docs/reference/protocol.md under Numbers, and stores
// its sequence numbers and its interval.
func (b *booker) admit(ctx context.Context, booking *ledger.Booking) (ledger.Receipt, error) {
	bt := booking.Batch
	var st stream
	err := b.s.each(ctx, st.scan(&bt.Stream), findStream, bt.Stream.Node, bt.Stream.Boot, bt.Stream.Epoch)
	if err != nil {
		return ledger.Receipt{}, fmt.Errorf("reading the acknowledged sequence number of a stream: %w", err)
	}
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
		if apart, err = b.occupy(ctx, booking); err != nil {
			return ledger.Receipt{}, err
		}
	}
	gap := bt.First != st.acked+1 // acked is 0 for an unknown stream
	if gap {
		st.gaps++
	}
	return ledger.Receipt{Acked: bt.Last, Booked: true, Gap: gap, New: apart || !st.known}, b.ack(ctx, bt, &st)
}

// Acked implements [ledger.Store].
func (d *DB) Acked(ctx context.Context, of batch.Stream) (uint64, bool, error) {
	var st stream
	rows, err := d.reads.QueryContext(ctx, findStream, of.Node, of.Boot, of.Epoch)
	if err := ForEach(rows, err, st.scan(&of)); err != nil {
		return 0, false, fmt.Errorf("reading the acknowledged sequence number of a stream: %w", err)
	}
	return st.acked, st.known, nil
}

const findStream = "SELECT acked, gaps, seen, crc FROM streams WHERE node = $1 AND boot = $2 AND epoch = $3"

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

func (b *booker) ack(ctx context.Context, bt *batch.Batch, st *stream) error {
	return b.s.upsert(ctx, "streams", []string{"node", "boot", "epoch", "acked", "gaps", "seen", "crc"}, 3,
		sealed([]any{bt.Stream.Node, bt.Stream.Boot, bt.Stream.Epoch, int64(bt.Last), st.gaps, b.now}))
}

type span struct{ first, last int64 }

// occupy records the interval of a batch, or returns an error if it overlaps a recorded interval of the same boot.
// It reports whether the interval is separate from all recorded ones.
func (b *booker) occupy(ctx context.Context, booking *ledger.Booking) (apart bool, _ error) {
	bt := booking.Batch
	of, want := &bt.Stream, span{int64(bt.StartSinceBoot), int64(bt.EndSinceBoot)}
	beside, err := b.spans(ctx, of, want)
	if err != nil {
		return false, err
	}
	if len(beside) == 0 { // a new boot or a gap; other batches follow a recorded one
		if err := b.hears(ctx, booking); err != nil {
			return false, err
		}
	}
	if booking.NodeSeen != nil {
		if err := b.sees(ctx, of.Node, booking.NodeSeen); err != nil {
			return false, err
		}
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
			if _, err := b.s.exec(ctx, "DELETE FROM spans WHERE node = $1 AND boot = $2 AND first = $3", of.Node,
				of.Boot, s.first); err != nil {
				return false, err
			}
		}
	}
	return len(beside) == 0, b.s.upsert(ctx, "spans", []string{"node", "boot", "first", "last", "seen", "crc"}, 3,
		sealed([]any{of.Node, of.Boot, joined.first, joined.last, b.now}))
}

// spans returns the spans that overlap or touch the given one. Spans are disjoint and read in descending order, so
// reading stops at the first span that ends before it.
func (b *booker) spans(ctx context.Context, of *batch.Stream, want span) ([]span, error) {
	var beside []span
	err := b.s.each(ctx, func(rows *sql.Rows) error {
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
	return beside, err
}

// entry returns the journal entry of a booking. It is valid until the next call.
func (b *booker) entry(ctx context.Context, booking *ledger.Booking) (*entry, error) {
	bt := booking.Batch
	node, err := b.node(ctx, bt.Stream.Node)
	if err != nil {
		return nil, err
	}
	e := &entry{
		Node: node, Start: bt.Start, End: bt.End, Agentless: booking.Agentless, Estimated: booking.Estimated(),
		Unmeasured: bt.Unmeasured, Measured: bt.Measured, Rates: booking.Rates,
	}
	own := booking.Account(ledger.Unknown)
	if e.Base, err = b.account(ctx, &own); err != nil {
		return nil, err
	}
	if c, guest := booking.Transfer(); guest {
		if e.Guest, err = b.posting(ctx, node, &ledger.Posting{Consumer: c}); err != nil {
			return nil, err
		}
	}
	e.Postings = b.postings[:0]
	for p := range booking.Postings() {
		to, err := b.posting(ctx, node, p)
		if err != nil {
			return nil, err
		}
		e.Postings = append(e.Postings, to)
	}
	b.postings = e.Postings
	sortPostings(e.Postings)
	if booking.Temperature != nil {
		err = b.warms(ctx, node, booking)
	}
	return e, err
}

func (b *booker) posting(ctx context.Context, node int64, p *ledger.Posting) (posting, error) {
	account, err := b.account(ctx, &p.Consumer.Account)
	if err != nil {
		return posting{}, err
	}
	consumer, err := b.consumer(ctx, node, &p.Consumer)
	return posting{consumer, account, p.Amount}, err
}
