package estimate

import (
	"context"
	"log/slog"
	"sync"

	"github.com/kubenergy/kubenergy/energy/batch"
)

// bookers is how many batches are booked at a time: the ledger makes many durable at once.
const bookers = 16

// queue holds what is to be booked, two batches of a node at most: the oldest, which may have been booked although that
// failed and so is never changed, and all that came after it, folded into one.
type queue struct {
	nodes map[string]*backlog
	stats *stats
}

type backlog struct {
	first, rest *batch.Batch
	tried       bool
}

func newQueue(s *stats) *queue { return &queue{nodes: map[string]*backlog{}, stats: s} }

// add queues a batch.
func (q *queue) add(b *batch.Batch) {
	key := b.Stream.Node + " " + b.Stream.Epoch
	l := q.nodes[key]
	if l == nil {
		l = new(backlog)
		q.nodes[key] = l
	}
	at := &l.rest
	if l.first == nil || l.rest == nil && !l.tried {
		at = &l.first
	}
	if *at == nil {
		*at = b
		return
	}
	folded, err := batch.Fold(*at, b)
	if err != nil { // more than can be counted
		q.stats.dropped.add(b)
		return
	}
	folded.Shares = batch.Condense(folded.Shares, batch.MaxShares)
	*at = folded
}

// drain books as much as it can until ctx ends.
func (q *queue) drain(ctx context.Context, book func(context.Context, *batch.Batch) error, permanent func(error) bool,
	log *slog.Logger,
) {
	work := make(chan *backlog)
	var all sync.WaitGroup
	for range min(bookers, len(q.nodes)) {
		all.Go(func() {
			for l := range work {
				l.drain(ctx, book, permanent, log, q.stats)
			}
		})
	}
	for _, l := range q.nodes {
		work <- l
	}
	close(work)
	all.Wait()
	waiting := 0
	for key, l := range q.nodes {
		if l.first == nil {
			delete(q.nodes, key)
			continue
		}
		waiting++
	}
	q.stats.waiting(waiting)
}

// drain books what is queued of one stream, in order.
func (l *backlog) drain(
	ctx context.Context, book func(context.Context, *batch.Batch) error, permanent func(error) bool, log *slog.Logger,
	s *stats,
) {
	for l.first != nil && ctx.Err() == nil {
		l.tried = true
		err := book(ctx, l.first)
		switch {
		case err == nil:
			s.booked.add(l.first)
		case permanent(err):
			s.dropped.add(l.first)
			log.Warn("an estimate is refused", "node", l.first.Stream.Node, "error", err)
		default:
			s.failed(err, log)
			return
		}
		l.first, l.rest, l.tried = l.rest, nil, false
	}
}
