package estimate

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

// bookers is how many batches are booked at a time: the ledger makes many durable at once.
const bookers = 16

// queue holds what is to be booked, two batches of a node at most: the oldest, which may have been booked although that
// failed and so is never changed, and all that came after it, folded into one.
type queue struct {
	book      func(context.Context, *batch.Batch) error
	permanent func(error) bool
	log       *slog.Logger
	metrics   *metrics
	nodes     map[string]*backlog
	failing   atomic.Bool // as was logged; false again when all is booked
}

type backlog struct {
	first, rest *batch.Batch
	tried       bool
}

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
		q.metrics.add(dropped, b)
		return
	}
	folded.Shares = batch.Condense(folded.Shares, batch.MaxShares)
	*at = folded
}

// drain books as much as it can until ctx ends.
func (q *queue) drain(ctx context.Context) {
	var all errgroup.Group
	all.SetLimit(bookers)
	for _, l := range q.nodes {
		all.Go(func() error {
			q.bookAll(ctx, l)
			return nil
		})
	}
	_ = all.Wait()
	maps.DeleteFunc(q.nodes, func(_ string, l *backlog) bool { return l.first == nil })
	q.metrics.queued.Set(float64(len(q.nodes)))
	if len(q.nodes) == 0 {
		q.failing.Store(false)
	}
}

var errPanicked = errors.New("booking it panicked")

// bookAll books what is queued of one stream, in order.
func (q *queue) bookAll(ctx context.Context, l *backlog) {
	for l.first != nil && ctx.Err() == nil {
		l.tried = true
		err := errPanicked
		panics.Survive(q.log, "estimate", "booking an estimate", func() { err = q.book(ctx, l.first) })
		switch {
		case err == nil:
			q.metrics.add(booked, l.first)
		case q.permanent != nil && q.permanent(err):
			q.metrics.add(dropped, l.first)
			q.log.Warn("an estimate is refused", "node", l.first.Stream.Node, "error", err)
		default:
			q.metrics.failures.Inc()
			if !q.failing.Swap(true) {
				q.log.Warn("booking estimates: trying again", "error", err)
			}
			return
		}
		l.first, l.rest, l.tried = l.rest, nil, false
	}
}
