package sqlstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

var noon = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

func bookGuest(t *testing.T, d *DB, guest int) {
	t.Helper()
	b := &batch.Batch{
		Stream: batch.Stream{Node: fmt.Sprintf("guest%d", guest), Boot: "b", Epoch: "e"}, First: 1, Last: 1,
		Parent: &batch.Parent{Host: "host", VM: fmt.Sprintf("vm%d", guest)},
		Start:  noon, End: noon.Add(time.Minute), EndSinceBoot: time.Minute,
		Measured: 1000, Unknown: 1000, Quality: energy.Measured,
	}
	_, errs, err := d.Book(t.Context(), []*ledger.Booking{{Batch: b, Received: noon, Rates: ledger.Rates{PUE: 1}}})
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
}

// A query does not retry folding of entries that the last fold had to leave in the journal.
func TestWhatIsDamagedIsFoldedOnce(t *testing.T) {
	d := openPlain(t, nil)
	bookGuest(t, d, 1)
	if _, err := d.writes.ExecContext(t.Context(), "UPDATE journal SET payload = x'00'"); err != nil {
		t.Fatal(err)
	}
	if left, err := d.Fold(t.Context()); err != nil || d.stuck.Load() == nil {
		t.Fatal(left, err)
	}
	s := <-d.idle // blocks all writes
	began := time.Now()
	d.foldLittle(t.Context())
	if took := time.Since(began); took >= foldPatience {
		t.Errorf("foldLittle() blocked for %v", took)
	}
	d.idle <- s
	bookGuest(t, d, 2)
	d.foldLittle(t.Context())
	var entries, windows int
	err := d.reads.QueryRowContext(t.Context(),
		"SELECT (SELECT COUNT(*) FROM journal), (SELECT COUNT(*) FROM windows)").Scan(&entries, &windows)
	if err != nil || entries != 1 || windows != 1 {
		t.Errorf("got %d entries and %d windows after another booking, error %v", entries, windows, err)
	}
}

// The number of transfers of a day that a query reads is limited.
func TestTransfersAreBounded(t *testing.T) {
	d := openPlain(t, nil)
	for guest := range 3 {
		bookGuest(t, d, guest)
	}
	if _, err := d.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	for most, tooMany := range map[int]bool{2: true, 3: false, 0: false} {
		err := d.read(t.Context(), func(r *reading) {
			r.maxTransferred = most
			r.transfers(floorTo(noon.Unix(), aDay))
		})
		if errors.Is(err, ledger.ErrTooLarge) != tooMany || err != nil && !tooMany {
			t.Errorf("limit %d: unexpected error %v", most, err)
		}
		d.cache = blockCache{}
	}
}

// A query fails if the row of a node is damaged or missing, because cycles of hosts cannot be detected without it.
func TestHostsOfDamagedNodes(t *testing.T) {
	for _, damage := range []string{
		"UPDATE nodes SET name = 'guess1' WHERE name = 'guest1'", "DELETE FROM nodes WHERE name = 'guest1'",
	} {
		d := openPlain(t, nil)
		bookGuest(t, d, 1)
		if _, err := d.Fold(t.Context()); err != nil {
			t.Fatal(err)
		}
		day := floorTo(noon.Unix(), aDay)
		above := func() (above map[string][]string, err error) {
			err = d.read(t.Context(), func(r *reading) { above = r.above(day) })
			return above, err
		}
		if all, err := above(); err != nil || len(all) != 1 || len(all["guest1"]) != 1 {
			t.Fatal(all, err)
		}
		if _, err := d.writes.ExecContext(t.Context(), damage); err != nil {
			t.Fatal(err)
		}
		if all, err := above(); !errors.Is(err, ledger.ErrDamaged) {
			t.Errorf("%s: expected ErrDamaged, got %v, %v", damage, all, err)
		}
	}
}
