package sqlite_test

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
	"github.com/kubenergy/kubenergy/test/kit"
)

// A patient retries batches until they are acknowledged, like an agent.
type patient struct {
	l     *ledger.Ledger
	world ledgertest.World
	acked []uint64
}

// send records the next batch of each node and returns the last error.
func (p *patient) send(ctx context.Context) (err error) {
	for node := range p.acked {
		r, e := p.l.Book(ctx, p.world.Booking(node, p.acked[node]+1))
		if e != nil {
			err = e
			continue
		}
		p.acked[node] = r.Acked
	}
	return err
}

// faulty lets the disk fail while bookings are recorded, and repairs it.
func faulty(t *testing.T, dir string, breakIt, mend func()) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(dir, "ledger.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(s, ledger.Options{FoldEvery: 50 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = l.Run(ctx) })
	p := &patient{l: l, world: ledgertest.World{Nodes: 4, Pods: 30, Epoch: "1"}, acked: make([]uint64, 4)}
	for round := range 3 {
		for range 10 {
			if err := p.send(ctx); err != nil {
				t.Fatal(err)
			}
		}
		breakIt()
		for deadline := time.Now().Add(20 * time.Second); ; { // the remaining space may suffice for some bookings
			err := p.send(ctx)
			if errors.Is(err, ledger.ErrReadOnly) {
				break
			}
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("round %d: expected an unwritable ledger, got error %v", round, err)
			}
		}
		if ok, err := l.Writable(); ok || err == nil {
			t.Error("Writable() = true, want false for a failing disk")
		}
		for range 3 {
			if _, err := l.Query(ctx, &ledger.Query{
				From: ledgertest.Noon, To: ledgertest.Noon.Add(time.Hour), GroupBy: []ledger.Dimension{ledger.ByUID},
			}); err != nil {
				t.Errorf("unexpected error of a query on a failing disk: %v", err)
			}
			_ = p.send(ctx)
		}
		mend()
		kit.Await(t, 20*time.Second, "the ledger is writable after the disk was repaired",
			func(context.Context) (bool, error) { return l.Writable() })
	}
	for range 5 {
		if err := p.send(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	run.Wait()
	var truth ledgertest.Truth
	for node, last := range p.acked {
		for number := range last {
			truth.Book(p.world.Booking(node, number+1))
		}
	}
	ledgertest.FoldAll(t, s)
	truth.Check(t, s)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	mend()
	again, err := sqlite.Open(t.Context(), filepath.Join(dir, "ledger.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	truth.Check(t, again)
	_ = again.Close()
}

// The disk becomes full and is freed again.
//
//test:norace
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("kubenergy-test", dir, "tmpfs", 0, "size=32m,mode=0700"); err != nil {
		t.Skip("mounting a small file system requires root:", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	filler := filepath.Join(dir, "filler")
	faulty(t, dir, func() {
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for block := make([]byte, 4096); ; {
			if _, err := f.Write(block); err != nil {
				if !errors.Is(err, syscall.ENOSPC) {
					t.Fatal(err)
				}
				return
			}
		}
	}, func() {
		if err := os.Remove(filler); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	})
}

// Files cannot grow, so writes fail partially.
//
//test:norace
func TestFailingWrites(t *testing.T) {
	dir := t.TempDir()
	var previous unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &previous); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	restore := func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &previous); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { restore(); signal.Reset(syscall.SIGXFSZ) })
	faulty(t, dir, func() {
		info, err := os.Stat(filepath.Join(dir, "ledger.db-wal"))
		if err != nil {
			t.Fatal(err)
		}
		const some = 3000 // part of a page
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE,
			&unix.Rlimit{Cur: uint64(info.Size()) + some, Max: previous.Max}); err != nil {
			t.Fatal(err)
		}
	}, restore)
}

// Only one process can use a file.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); err == nil {
		t.Fatal("expected an error on the second Open")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}
