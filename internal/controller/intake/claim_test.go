package intake_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/intake"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// faulty is a ledger with another Book, which counts the calls of Reported.
type faulty struct {
	*world
	book     func(context.Context, *ledger.Booking) (ledger.Receipt, error)
	reported int
}

func (f *faulty) Book(ctx context.Context, b *ledger.Booking) (ledger.Receipt, error) {
	return f.book(ctx, b)
}

func (f *faulty) Reported(ctx context.Context, node string) (ledger.Reported, error) {
	f.reported++
	return f.world.Reported(ctx, node)
}

// from changes the start of a batch without changing its length.
func from(start time.Duration) func(*batch.Batch) {
	return func(b *batch.Batch) {
		b.StartSinceBoot, b.EndSinceBoot = start, start+b.EndSinceBoot-b.StartSinceBoot
	}
}

// A panic in any step releases the energy, the time and the stream of a batch, even if the total of reported time is
// read again afterwards.
func TestPanicsReleaseTheClaim(t *testing.T) {
	const retries = 60 // exceeds the daily limit of streams
	for _, step := range []string{"consumers", "teams", "rates", "power", "ledger"} {
		for _, later := range []time.Duration{0, 90 * time.Minute} {
			broken := true
			fail := func(where string) {
				if broken && where == step {
					panic("planted")
				}
			}
			w := newWorld(t)
			w.directory = intake.NewPodIndex(intake.PodIndexOptions{
				Strategy: unplaced, Now: w.clock,
				TeamOf: func(string, string) string { fail("teams"); return "" },
				Group: func(string, string) (name string, a ledger.Account, ok bool) {
					fail("consumers")
					return "", a, false
				},
			})
			w.directory.Saw(pod("shop", "web", uidNumber(1), "a"))
			w.restart(func(c *intake.Config) {
				rates := c.Rates
				c.Rates = func(node string, from, to time.Time) ledger.Rates { fail("rates"); return rates(node, from, to) }
				c.Power = func(string) string { fail("power"); return "" }
				c.Ledger = &faulty{world: w, book: func(ctx context.Context, b *ledger.Booking) (ledger.Receipt, error) {
					fail("ledger")
					return w.Book(ctx, b)
				}}
			})
			w.limits["a"] = intake.Limits{MaxPower: 200, Cores: 4, Since: noon.Add(-time.Hour)}
			long := 50 * time.Minute
			b := of("a", 1, lasting(long), joules(energy.Microjoules(1.2*200*long.Seconds()+200*60-1)))
			b.Shares = []energy.Share{{ID: "cgroup//x", CPU: 4 * time.Minute}, {ID: "pod/" + uidNumber(1)}}
			for range retries {
				func() {
					defer func() {
						if recover() == nil {
							t.Fatalf("%s: no panic", step)
						}
					}()
					w.send("token-a", b)
				}()
			}
			broken = false
			w.add(later)
			w.booked("token-a", b)
		}
	}
}

// A panic while a forwarded booking is recorded releases its time and its stream.
func TestPanicsReleaseTheClaimOfMembers(t *testing.T) {
	t.Cleanup(panics.Reset)
	for _, agentless := range []bool{false, true} {
		w := newFederation(t, 1000)
		broken := true
		w.restart(func(c *intake.Config) {
			c.Members = newMembers(1000)
			rates := c.Rates
			c.Rates = func(node string, from, to time.Time) ledger.Rates {
				if broken {
					panic("planted")
				}
				return rates(node, from, to)
			}
		})
		b := &ledger.Booking{Batch: of("a", 1, lasting(5*24*time.Hour)), Agentless: agentless}
		for range 60 {
			if body := w.forward("alpha", packed(t, b)).Body.String(); !strings.Contains(body, "panicked") {
				t.Fatal(body)
			}
		}
		broken = false
		if body := w.forward("alpha", packed(t, b)).Body.String(); !strings.Contains(body, `"booked":1`) {
			t.Errorf("agentless = %v, after the panics: %s", agentless, body)
		}
	}
}

// A connection that is lost during a commit leaves the result unknown. The batch counts towards the time of its node
// if it was recorded, and it is acknowledged when it is sent again.
func TestUnknownResults(t *testing.T) {
	for _, lost := range []error{errBroken, fmt.Errorf("%w: committing: connection reset", ledger.ErrReadOnly)} {
		w := newWorld(t)
		var fail error
		w.restart(func(c *intake.Config) {
			c.Ledger = &faulty{world: w, book: func(ctx context.Context, b *ledger.Booking) (ledger.Receipt, error) {
				receipt, err := w.Book(ctx, b)
				if fail != nil {
					return ledger.Receipt{}, fail
				}
				return receipt, err
			}}
		})
		w.limits["a"] = intake.Limits{MaxPower: 200, Since: noon.Add(-time.Hour)}
		w.booked("token-a", of("a", 1))
		fail = lost
		long := of("a", 2, joules(1), lasting(50*time.Minute))
		if code := w.send("token-a", long).Code; code < http.StatusInternalServerError {
			t.Fatalf("%v: status = %d, want 5xx", lost, code)
		}
		fail = nil
		if answer := w.send("token-a", long); answer.Code != http.StatusOK {
			t.Errorf("%v: sent again: %d %s", lost, answer.Code, answer.Body)
		}
		if n := len(w.store.Booked()); n != 2 {
			t.Fatalf("%v: recorded %d batches, want 2", lost, n)
		}
		w.refused("token-a", of("a", 3, joules(1), lasting(25*time.Minute), from(time.Hour)),
			http.StatusUnprocessableEntity)
		w.booked("token-a", of("a", 3, joules(1), lasting(15*time.Minute), from(time.Hour)))
	}
}

// The total of a node is read again only if a batch may have been recorded despite an error.
func TestKnownResults(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		known bool
	}{
		"overlap":  {fmt.Errorf("booking: %w", ledger.ErrOverlap), true},
		"partly":   {fmt.Errorf("booking: %w", ledger.ErrPartly), true},
		"invalid":  {fmt.Errorf("booking: %w", ledger.ErrInvalid), true},
		"paused":   {fmt.Errorf("%w: %w", ledger.ErrPaused, ledger.ErrReadOnly), true},
		"readonly": {fmt.Errorf("booking: %w", ledger.ErrReadOnly), false},
		"timeout":  {fmt.Errorf("booking: %w", context.DeadlineExceeded), false},
		"other":    {errBroken, false},
	} {
		w := newWorld(t)
		f := &faulty{world: w, book: w.Book}
		w.restart(func(c *intake.Config) { c.Ledger = f })
		w.booked("token-a", of("a", 1))
		w.fail = c.err
		before := f.reported
		for range 3 {
			w.do(post("token-a", bytes.NewReader(w.encoded(of("a", 2))), ""))
		}
		w.fail = nil
		w.booked("token-a", of("a", 2))
		if queries := f.reported - before; (queries == 0) != c.known {
			t.Errorf("%s: %d queries of the total, known = %v", name, queries, c.known)
		}
	}
}
