package ledger_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/ledger"
)

// FuzzUnpack reads what another cluster forwards. What is taken is of that cluster's nodes alone, and can be booked.
func FuzzUnpack(f *testing.F) {
	frozen, err := os.ReadFile(filepath.Join("..", "controller", "forward", "testdata", "bookings-v1.ndjson"))
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(frozen)) {
		f.Add([]byte(line))
		f.Add([]byte(strings.Replace(line, `"first"`, `"parent":{"host":"rack1","vm":"v"},"first"`, 1)))
		f.Add([]byte(strings.Replace(line, `"kind":"workload"`, `"kind":"transfer"`, 1)))
		f.Add([]byte(strings.Replace(line, `"node":"node0000"`, `"node":"beta/node0000"`, 1)))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		of, b, err := ledger.Unpack(line, "alpha")
		if err != nil {
			return
		}
		if of.Node != strings.TrimPrefix(b.Batch.Stream.Node, "alpha/") || strings.Contains(of.Node, "/") {
			t.Errorf("node %q of %q", b.Batch.Stream.Node, of.Node)
		}
		var sum ledger.Amount
		for _, w := range b.Windows() {
			for _, p := range w.Postings {
				if ledger.ClusterOf(p.Consumer.Account.Host) != "alpha" {
					t.Errorf("%+v is of another cluster", p.Consumer.Account)
				}
				if p.Consumer.Account.Kind != ledger.Transfer {
					sum.Add(&p.Amount)
				}
			}
		}
		if sum.Energy() != b.Batch.Measured {
			t.Errorf("%d µJ are posted of %d", sum.Energy(), b.Batch.Measured)
		}
	})
}
