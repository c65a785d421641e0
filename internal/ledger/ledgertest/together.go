package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// twoAtOnce lets two processes record the same batches concurrently.
func twoAtOnce(t *testing.T, open func() (ledger.Store, error)) {
	a := opened(t, open)
	b, err := open()
	if err != nil {
		t.Skip("the store only supports one process:", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	w := World{Nodes: 6, Pods: 5, Epoch: "1"}
	var truth Truth
	const batches = 25
	var booked sync.Map
	var all sync.WaitGroup
	for i, s := range []ledger.Store{a, b} {
		all.Go(func() {
			for number := range uint64(batches) {
				var bookings []*ledger.Booking
				for node := range w.Nodes {
					bookings = append(bookings, w.Booking((node*(1+4*i))%w.Nodes, number+1)) // in a different order
				}
				receipts, errs, err := s.Book(context.Background(), bookings)
				if err := errors.Join(append(errs, err)...); err != nil {
					t.Error(err)
					return
				}
				for j, r := range receipts {
					key := fmt.Sprintf("%s %d", bookings[j].Batch.Stream.Node, number)
					if _, twice := booked.LoadOrStore(key, true); r.Booked && twice {
						booked.Store("twice "+key, true)
					} else if !r.Booked && !twice {
						booked.Delete(key)
					}
				}
				if _, err := s.Fold(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for number := range uint64(batches) {
		for node := range w.Nodes {
			truth.Book(w.Booking(node, number+1))
		}
	}
	FoldAll(t, a)
	truth.Check(t, b)
}

func severalFolders(t *testing.T, open func() (ledger.Store, error)) {
	OfContent(t)
	s := opened(t, open)
	w := World{Nodes: 4, Pods: 5, Epoch: "1"}
	var truth Truth
	var folders sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		folders.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := s.Fold(context.Background()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for number := range uint64(40) {
		for node := range w.Nodes {
			b := w.Booking(node, number+1)
			truth.Book(b)
			MustBook(t, s, b)
		}
	}
	close(done)
	folders.Wait()
	FoldAll(t, s)
	truth.Check(t, s)
}
