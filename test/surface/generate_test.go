package surface

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/energy/batch"
	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/ledger/sqlite"
	"github.com/kubenergy/kubenergy/ledger/storetest"
)

// TestGenerate wrote testdata/ledger.db.gz, testdata/batch.json and testdata/ack.json.
func TestGenerate(t *testing.T) {
	to := os.Getenv("KUBENERGY_SURFACE")
	if to == "" {
		t.Skip("nothing is to be written")
	}
	s, err := sqlite.Open(t.Context(), filepath.Join(to, "ledger.db"), sqlite.Options{Now: func() time.Time { return storetest.Noon.Add(time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	metered := storetest.World{Nodes: 2, Pods: 3, Epoch: "metered"}
	estimated := storetest.World{Nodes: 1, Pods: 2, Epoch: "estimated", Agentless: true}
	book := func(from, to uint64) {
		for number := from; number <= to; number++ {
			for node := range metered.Nodes {
				storetest.MustBook(t, s, metered.Booking(node, number))
			}
			b := estimated.Booking(0, number)
			b.Batch.Stream.Node = "bare0000"
			storetest.MustBook(t, s, b)
		}
	}
	book(1, 60) // 15 minutes
	storetest.FoldAll(t, s)
	book(61, 70) // these stay in the journal
	var records []ledger.Record
	for i := range 40 {
		at := storetest.Noon.Add(time.Duration(i) * 20 * time.Second)
		r := ledger.Record{
			ID: fmt.Sprintf("record-%02d", i), At: at, Action: []string{"place", "hold", "release"}[i%3], Namespace: fmt.Sprintf("ns%d", i%3),
			OwnerKind: "Job", Owner: fmt.Sprintf("owner%d", i%4), UID: storetest.PodUID(0, i), Strategy: []string{"energy", "carbon+window"}[i%2],
			Node: metered.Node(i % 2), Start: at.Add(time.Minute), End: at.Add(time.Hour), Energy: energy.Joules(1000 + i), Carbon: energy.Grams(0.5 * float64(i)),
			Cost: 0.001 * float64(i), Intensity: 300, Reason: "the cheapest window", Digest: fmt.Sprintf("%064d", i), Quality: energy.Derived,
		}
		if i%10 == 0 {
			r.Snapshot = []byte("a snapshot")
		}
		records = append(records, r)
	}
	if err := s.Record(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	end := time.Date(2026, 11, 3, 10, 15, 30, 123456789, time.UTC)
	const pod = "6b0d7f8e-4c1f-4a57-9c55-1f0b6d2a7e11"
	b := &batch.Batch{
		Version: batch.Version, Stream: batch.Stream{Node: "node-1", Boot: "be12cc12-7349-4a1b-9b7a-34d97a6a5759", Epoch: "QFJP5X45X2IB5UEZJ6ZFZMGLPV"},
		First: 7, Last: 9, Parent: &batch.Parent{Host: "host-1", VM: "node <1>"},
		Start: end.Add(-45 * time.Second), End: end, StartSinceBoot: 100 * time.Second, EndSinceBoot: 145 * time.Second, Unmeasured: time.Second,
		Source: "package (rapl)", Quality: energy.Derived, IdlePolicy: "requests", Measured: 9_000_000_000_001_000, Idle: 100, Platform: 50, Unknown: 1,
		Shares: []energy.Share{
			{ID: "cgroup//slurm/job_7/step_0", Dynamic: 40, Idle: 1, CPU: time.Second},
			{ID: "others", Dynamic: 8},
			{ID: "pod/" + pod, Dynamic: 9, Ended: true},
			{ID: "pod/" + pod + "/0c7e", Dynamic: 500, Idle: 200, CPU: 12 * time.Second},
			{ID: energy.System, Dynamic: 9_000_000_000_000_000 - 10, Idle: 41, CPU: time.Second},
			{ID: "vm/web 1", Dynamic: 60, CPU: 1},
		},
	}
	data, err := batch.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(to, "batch.json"), data)
	data, err = batch.EncodeAck(&batch.Ack{Epoch: "QFJP5X45X2IB5UEZJ6ZFZMGLPV", Acked: 9, Names: map[string]batch.Names{
		pod: {Namespace: "shop", Pod: "web-0", Containers: map[string]string{"0c7e": "web"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(to, "ack.json"), data)
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}
