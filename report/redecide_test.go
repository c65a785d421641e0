package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/ledger"
)

func TestReplayUnderAnotherStrategy(t *testing.T) {
	damaged := record(t, actionPlace, "k", morning.Add(time.Minute), "thrifty", cluster(t, morning, "here"))
	damaged.Digest = strings.Repeat("0", 64)
	bare := record(t, actionPlace, "l", morning.Add(2*time.Minute), "thrifty", nil)
	r, err := NewReplay([]ledger.Record{
		bare, record(t, actionPlace, "j", morning, "thrifty", cluster(t, morning, "here")), damaged,
	}, []string{"energy", "least-allocated"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Records != 1 || len(r.Refused) != 2 || r.Refused[0].ID != damaged.ID || r.Refused[1].ID != bare.ID || r.Refused[1].Why != leftNoSnapshot {
		t.Fatalf("%d records, refused %+v", r.Records, r.Refused)
	}
	if s := r.Strategies[0]; s.Same != 1 || len(s.Decisions) != 0 || s.Recorded != s.Instead {
		t.Errorf("under the recorded strategy: %+v", s)
	}
	s := r.Strategies[1]
	if s.OtherNode != 1 || len(s.Decisions) != 1 || s.Decisions[0].Instead.Node != "wasteful" {
		t.Fatalf("under another strategy: %+v", s)
	}
	// Five of ten cores for an hour: 1 kWh here, 1.5 kWh there, at 400 g and 0.30.
	if diff := cmp.Diff([2]Sums{{1, 400, 0.3}, {1.5, 600, 0.45}}, [2]Sums{s.Recorded, s.Instead}, cmp.Comparer(equal)); diff != "" {
		t.Error(diff)
	}
	for _, format := range []string{"table", "csv", "json"} {
		var b bytes.Buffer
		if err := WriteReplay(&b, r, format, false); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "wasteful") || format != "csv" && !strings.Contains(b.String(), bare.ID) {
			t.Errorf("as %s:\n%s", format, b.String())
		}
	}
}

func TestReplayOfHolds(t *testing.T) {
	s := cluster(t, morning, "here")
	s.Nodes = nil
	s.Queue[0].AllowedDelay = 4 * time.Hour
	hold := record(t, actionHold, "j", morning, "", s)
	hold.Start = morning.Add(2 * time.Hour)
	r, err := NewReplay([]ledger.Record{hold}, []string{"energy+window"})
	if err != nil {
		t.Fatal(err)
	}
	// On a flat forecast nothing is gained by a hold.
	if d := r.Strategies[0]; d.Started != 1 || d.Compared != 1 || !equal(d.Recorded.Grams, d.Instead.Grams) || d.Recorded.Grams <= 0 {
		t.Errorf("%+v", d)
	}
	if _, err := NewReplay(nil, []string{"greenest"}); err == nil {
		t.Error("an unknown strategy decides")
	}
}
