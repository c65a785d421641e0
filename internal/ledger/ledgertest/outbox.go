package ledgertest

import (
	"slices"
	"testing"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Outbox tests the outbox of a store. Bookings that are to be forwarded must be returned exactly once and in order
// until they are marked as sent.
func Outbox(t *testing.T, s interface {
	ledger.Store
	ledger.Outbox
},
) {
	world := World{Nodes: 2, Pods: 1, Epoch: "1"}
	book := func(node int, number uint64, forward bool) {
		b := world.Booking(node, number)
		if forward {
			b.Forward = []byte{byte(node), byte(number)}
		}
		MustBook(t, s, b)
	}
	sent := func(numbers ...int64) {
		if err := s.Sent(t.Context(), numbers); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(after int64, most int) (numbers []int64, packed []string) {
		all, err := s.Outgoing(t.Context(), after, most, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			numbers, packed = append(numbers, o.Number), append(packed, string(o.Packed))
		}
		return numbers, packed
	}
	backlog := func(most, want, dropped int64) {
		t.Helper()
		b, err := s.Backlog(t.Context(), most)
		if err != nil || b.Kept != want || b.Dropped != dropped || (b.Oldest == 0) != (want == 0) {
			t.Errorf("Backlog() = %+v, %v, want %d entries", b, err, want)
		}
	}
	backlog(10, 0, 0)
	for number := range uint64(4) {
		book(0, number+1, true)
		book(1, number+1, number == 2)
	}
	book(0, 2, true) // duplicate
	want := []string{"\x00\x01", "\x00\x02", "\x00\x03", "\x01\x03", "\x00\x04"}
	numbers, packed := kept(0, 100)
	if !slices.Equal(packed, want) {
		t.Fatalf("got entries %q, want %q", packed, want)
	}
	if _, some := kept(numbers[1], 2); !slices.Equal(some, want[2:4]) {
		t.Errorf("unexpected entries after the second one: %q", some)
	}
	rests(t, s, &world.Booking(1, 3).Batch.Stream, want)
	unsent(t, s, true)
	backlog(100, 5, 0)
	sent(numbers[0], numbers[2])
	backlog(2, 2, 1)
	if _, left := kept(0, 100); !slices.Equal(left, want[3:]) {
		t.Errorf("unexpected remaining entries %q", left)
	}
	sent(numbers...)
	unsent(t, s, false)
	book(0, 5, true)
	if again, _ := kept(0, 100); len(again) != 1 || again[0] <= numbers[4] {
		t.Errorf("number %d was reused, last was %d", again, numbers[4])
	}
}

// rests checks that Outgoing returns all rows, but omits Packed of the given stream while the stream rests.
func rests(t *testing.T, s ledger.Outbox, of *batch.Stream, want []string) {
	t.Helper()
	rest := map[string]bool{"another": true, of.Node + " " + of.Boot + " " + of.Epoch: true}
	all, err := s.Outgoing(t.Context(), 0, 100, rest)
	if err != nil || len(all) != len(want) {
		t.Fatalf("unexpected entries %+v or error %v", all, err)
	}
	for i, o := range all {
		if rest[o.Stream] == (string(o.Packed) == want[i]) {
			t.Errorf("got %q for stream %s, want %q, or no payload if the stream rests", o.Packed, o.Stream, want[i])
		}
	}
}

// unsent checks whether the statistics of a store report unsent bookings.
func unsent(t *testing.T, s ledger.Store, want bool) {
	t.Helper()
	if st, err := s.Statistics(t.Context()); err != nil || st.Unsent.IsZero() == want {
		t.Errorf("Statistics() = %+v, %v; want unsent %t", st, err, want)
	}
}
