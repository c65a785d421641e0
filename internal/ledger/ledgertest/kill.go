package ledgertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Environment variables of child processes.
const (
	childVariable = "KUBENERGY_LEDGERTEST_CHILD"
	killLong      = "KUBENERGY_LONG"
)

type life struct {
	Place string   `json:"place"` // location of the store
	From  []uint64 `json:"from"`  // first sequence number to send, by node
	Die   string   `json:"die"`   // point at which the process kills itself, see deaths; if empty, the parent kills it
	After int      `json:"after"` // number of times that point is passed before
	To    uint64   `json:"to"`
}

var killWorld = World{Nodes: 3, Pods: 6, Epoch: "kill"}

var deaths = []string{"", "before booking", "after booking", "before ack", "before folding", "after folding"}

// Child must be called by TestMain of packages that call [Kill]. In a process started by Kill it records bookings
// until the process is killed, and does not return.
func Child(open func(place string) (ledger.Store, error)) {
	text := os.Getenv(childVariable)
	if text == "" {
		return
	}
	var l life
	err := json.Unmarshal([]byte(text), &l)
	if err == nil {
		err = l.live(open)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// mortal is a store that kills the process in one of its methods.
type mortal struct {
	ledger.Store
	l  *life
	mu sync.Mutex
}

func (m *mortal) die(where string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.l.Die != where {
		return
	}
	if m.l.After--; m.l.After < 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// Book implements [ledger.Store].
func (m *mortal) Book(ctx context.Context, all []*ledger.Booking) ([]ledger.Receipt, []error, error) {
	m.die("before booking")
	receipts, errs, err := m.Store.Book(ctx, all)
	m.die("after booking")
	return receipts, errs, err
}

// Fold implements [ledger.Store].
func (m *mortal) Fold(ctx context.Context) (int, error) {
	m.die("before folding")
	left, err := m.Store.Fold(ctx)
	m.die("after folding")
	return left, err
}

func (l *life) live(open func(place string) (ledger.Store, error)) error {
	s, err := open(l.Place)
	if err != nil {
		return err
	}
	m := &mortal{Store: s, l: l}
	book := ledger.New(m, ledger.Options{FoldEvery: 2 * time.Millisecond}) //nolint:mnd // so that it dies while folding
	fmt.Println("ready")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var folding, nodes sync.WaitGroup
	folding.Go(func() { _ = book.Run(ctx) })
	errs := make([]error, len(l.From))
	for node, from := range l.From {
		nodes.Go(func() {
			for number := from; number <= l.To; number++ {
				receipt, err := book.Book(ctx, killWorld.Booking(node, number))
				if err != nil || receipt.Gap {
					errs[node] = fmt.Errorf("node %d, number %d: %+v, %w", node, number, receipt, err)
					return
				}
				m.die("before ack")
				fmt.Println("ack", node, number)
			}
		})
	}
	nodes.Wait()
	cancel()
	folding.Wait()
	return errors.Join(append(errs, book.Close())...)
}

// Kill starts processes that record bookings until each is killed, sometimes in the middle of an operation, and
// checks that acknowledged bookings are recorded and that no booking is recorded twice. It starts 20 processes, or
// 200 with KUBENERGY_LONG=1.
func Kill(t *testing.T, place string, open func(place string) (ledger.Store, error)) {
	lives := 20
	if os.Getenv(killLong) != "" {
		lives = 200
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	acked := make([]uint64, killWorld.Nodes)
	for range lives {
		l := life{
			Place: place, From: make([]uint64, killWorld.Nodes), To: 1 << 40, Die: deaths[r.IntN(len(deaths))],
			After: r.IntN(12),
		}
		for node := range acked { // agents resend batches without an acknowledgement
			l.From[node] = max(acked[node]-min(acked[node], uint64(r.IntN(3))), 0) + 1
		}
		runLife(t, &l, acked, r)
	}
	s, err := open(place)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	checkKilled(t, s, acked)
}

// checkKilled records the missing bookings of all nodes and compares the content of the store.
func checkKilled(t *testing.T, s ledger.Store, acked []uint64) {
	t.Helper()
	var truth Truth
	total := uint64(0)
	for node, last := range acked {
		booked, _, err := s.Acked(t.Context(), killWorld.Stream(node))
		if err != nil {
			t.Fatal(err)
		}
		if booked < last || booked > last+uint64(1) {
			t.Fatalf("node %d: acknowledged number is %d, recorded is %d", node, last, booked)
		}
		for number := range booked {
			truth.Book(killWorld.Booking(node, number+1))
		}
		total += booked
	}
	FoldAll(t, s)
	truth.Check(t, s)
	t.Logf("%d bookings, %v", total, truth.Total.Energy())
}

func runLife(t *testing.T, l *life, acked []uint64, r *rand.Rand) {
	t.Helper()
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const longest = 60 * time.Millisecond
	lines := bufio.NewScanner(out)
	var timer *time.Timer
	for lines.Scan() {
		line := lines.Text()
		if line == "ready" {
			limit := 20 * longest // time for the process to kill itself
			if l.Die == "" {
				limit = time.Duration(r.Int64N(int64(longest)))
			}
			timer = time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "ack" {
			continue // incomplete line
		}
		node, _ := strconv.Atoi(fields[1])
		number, _ := strconv.ParseUint(fields[2], 10, 64)
		acked[node] = max(acked[node], number)
	}
	err = cmd.Wait()
	exit := new(exec.ExitError)
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("a process exited unexpectedly: %v\n%s", err, stderr.String())
	}
}
