package postgres_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/postgres/pgtest"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
)

// TestRowsPerSecond measures the rows per second that both stores record and fold on this machine. A row is the
// usage of one container in 15 s. Bookings are written in about one transaction per second and folded once a
// minute, as in the controller.
//
//test:norace
func TestRowsPerSecond(t *testing.T) {
	const perMinute = 4
	nodes, containers, rounds := 50, 20, 12
	if os.Getenv("KUBENERGY_LONG") != "" {
		nodes, containers, rounds = 400, 100, 60
	}
	file, err := sqlite.Open(t.Context(), t.TempDir()+"/ledger.db", sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, to := range []struct {
		name  string
		store ledger.Store
	}{{"SQLite", file}, {"PostgreSQL", open(t, pgtest.Start(t))}} {
		world := ledgertest.World{Nodes: nodes, Pods: containers, Epoch: "speed"}
		var booking, folding time.Duration
		used := cpu(t)
		for round := range rounds {
			all := make([]*ledger.Booking, nodes)
			for node := range all {
				all[node] = world.Booking(node, uint64(round+1))
			}
			began := time.Now()
			for part := 0; part < nodes; part += 50 {
				if _, _, err := to.store.Book(t.Context(), all[part:min(part+50, nodes)]); err != nil {
					t.Fatal(err)
				}
			}
			booking += time.Since(began)
			if round%perMinute == perMinute-1 || round == rounds-1 {
				began = time.Now()
				foldAll(t, to.store)
				folding += time.Since(began)
			}
		}
		stats, err := to.store.Statistics(t.Context())
		if err != nil || stats.Journal != 0 {
			t.Fatal(stats, err)
		}
		rows := float64(nodes * containers * rounds)
		t.Logf("%s: %.0f rows/s recorded and folded (%.0f recorded, %.0f folded), %.1f µs of CPU time of this process per "+
			"row, %d bytes on disk",
			to.name, rows/(booking+folding).Seconds(), rows/booking.Seconds(), rows/folding.Seconds(),
			float64((cpu(t)-used).Microseconds())/rows, stats.Bytes)
		audited(t, to.store)
	}
}

// cpu returns the CPU time used by the process.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
