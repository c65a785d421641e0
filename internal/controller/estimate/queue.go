package estimate

import (
	"context"
	"log/slog"
	"maps"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

// bookers is the number of batches that are recorded concurrently, because the ledger commits them in groups.
const bookers = 16

// queue contains at most two unrecorded batches per stream: the oldest one, which is never changed after the first
// attempt because a failed attempt may have been committed, and all later ones merged into a single batch.
type queue struct {
	book      func(context.Context, *batch.Batch) error
	permanent func(error) bool
	log       *slog.Logger
	metrics   *metrics
	nodes     map[string]*backlog
	failing   atomic.Bool // an error was logged; reset when the queue is empty
}

type backlog struct {
	first, rest *batch.Batch
	tried       bool
}

// add appends a batch to the queue.
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
	if err != nil { // the sum is out of range
		q.metrics.add(dropped, b)
		return
	}
	folded.Shares = batch.Condense(folded.Shares, batch.MaxShares)
	*at = folded
}

// drain records queued batches until the queue is empty, all streams have failed, or ctx is done.
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

// bookAll records the queued batches of a stream in order. It stops at the first temporary error.
func (q *queue) bookAll(ctx context.Context, l *backlog) {
	for l.first != nil && ctx.Err() == nil {
		l.tried = true
		err := panics.Try(q.log, "estimate", "recording an estimate", func() error { return q.book(ctx, l.first) })
		switch {
		case err == nil:
			q.metrics.add(booked, l.first)
		case q.permanent != nil && q.permanent(err):
			q.metrics.add(dropped, l.first)
			q.log.Warn("Estimate was rejected", "node", l.first.Stream.Node, "error", err)
		default:
			q.metrics.failures.Inc()
			if !q.failing.Swap(true) {
				q.log.Warn("Failed to record estimates, retrying", "error", err)
			}
			return
		}
		l.first, l.rest, l.tried = l.rest, nil, false
	}
}
