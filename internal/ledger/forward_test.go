package ledger_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// FuzzUnpack decodes lines forwarded by another cluster. Accepted bookings are valid and belong to nodes of that
// cluster.
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
		f.Add([]byte(strings.Replace(line, `"consumers":[`, `"consumers":[`+strings.Repeat("{},", 20_000), 1)))
		f.Add([]byte(strings.Replace(line, `"shares":[`, `"shares":[`+strings.Repeat("{},", 20_000), 1)))
		f.Add([]byte(strings.Replace(line, `"version":1`, `"new":[`+strings.Repeat("[", 20_000)+`],"version":1`, 1)))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		done := memtest.Limit(t, 50*len(line))
		of, b, err := ledger.Unpack(line, "alpha")
		done()
		if err != nil {
			return
		}
		var plain struct{ Consumers []*ledger.Consumer }
		if json.Unmarshal(line, &plain) == nil { // skipped fields need not be valid JSON
			for _, c := range plain.Consumers { // these fields are derived from the node's site in the federation
				c.Account.Host, c.Account.Site, c.Account.Signal, c.Account.Currency = "", "", "", ""
			}
			if diff := cmp.Diff(plain.Consumers, b.Consumers, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("unexpected consumers (-encoding/json +Unpack):\n%s", diff)
			}
		}
		if of.Node != strings.TrimPrefix(b.Batch.Stream.Node, "alpha/") || strings.Contains(of.Node, "/") {
			t.Errorf("unexpected node %q for stream node %q", b.Batch.Stream.Node, of.Node)
		}
		var sum ledger.Amount
		for _, w := range ledgertest.Windows(b) {
			for _, p := range w.Postings {
				if ledger.ClusterOf(p.Consumer.Account.Host) != "alpha" {
					t.Errorf("account %+v belongs to another cluster", p.Consumer.Account)
				}
				if p.Consumer.Account.Kind != ledger.Transfer {
					sum.Add(&p.Amount)
				}
			}
		}
		if sum.Energy() != b.Batch.Measured {
			t.Errorf("postings add up to %d µJ, want %d", sum.Energy(), b.Batch.Measured)
		}
	})
}
