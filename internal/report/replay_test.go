package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/ledger"
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
	if r.Records != 1 || len(r.Refused) != 2 || r.Refused[0].ID != damaged.ID || r.Refused[1].ID != bare.ID ||
		r.Refused[1].Why != leftNoSnapshot {
		t.Fatalf("got %d records, refused %+v", r.Records, r.Refused)
	}
	if s := r.Strategies[0]; s.Same != 1 || len(s.Decisions) != 0 || s.Recorded != s.Instead {
		t.Errorf("unexpected decisions of the recorded strategy: %+v", s)
	}
	s := r.Strategies[1]
	if s.OtherNode != 1 || len(s.Decisions) != 1 || s.Decisions[0].Instead.Node != "wasteful" {
		t.Fatalf("unexpected decisions of another strategy: %+v", s)
	}
	// Five of ten cores for an hour use 1 kWh on one node and 1.5 kWh on the other, at 400 g and 0.30 per kWh.
	if diff := cmp.Diff([2]Sums{{1, 400, 0.3}, {1.5, 600, 0.45}}, [2]Sums{s.Recorded, s.Instead},
		cmp.Comparer(equal)); diff != "" {
		t.Error(diff)
	}
	for _, format := range []string{"table", "csv", "json"} {
		var b bytes.Buffer
		if err := Write(&b, r, format, false); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "wasteful") || format != "csv" && !strings.Contains(b.String(), bare.ID) {
			t.Errorf("unexpected %s:\n%s", format, b.String())
		}
	}
}

// The emissions of a hold are those of its planned start. Each hour has a different intensity.
func TestReplayOfHolds(t *testing.T) {
	s := cluster(t, morning, "here")
	s.Nodes = nil
	s.Queue[0].AllowedDelay = 4 * time.Hour
	hours := []float64{400, 300, 200, 250, 500, 500, 500, 500}
	series, err := grid.NewSeries(morning, time.Hour, hours)
	if err != nil {
		t.Fatal(err)
	}
	s.Sites[0].Carbon = grid.Signal{Series: series}
	hold := record(t, actionHold, "j", morning, "", s)
	hold.Start = morning.Add(time.Hour)
	r, err := NewReplay([]ledger.Record{hold}, []string{"energy", "energy+window"})
	if err != nil {
		t.Fatal(err)
	}
	// The intensity is 400 g/kWh now, 300 g/kWh at the recorded end of the hold, and 200 g/kWh at best an hour
	// later.
	if d := r.Strategies[0]; d.Started != 1 || d.Compared != 1 || !equal(d.Instead.Grams/d.Recorded.Grams, 400./300) {
		t.Errorf("unexpected immediate start: %+v", d)
	}
	if d := r.Strategies[1]; d.OtherHold != 1 || d.Compared != 1 ||
		!equal(d.Instead.Grams/d.Recorded.Grams, 200./300) ||
		!d.Decisions[0].Instead.Until.Equal(morning.Add(2*time.Hour)) {
		t.Errorf("unexpected hold until another time: %+v", d)
	}
	hold.Start = morning.Add(2 * time.Hour)
	if r, err = NewReplay([]ledger.Record{hold}, []string{"energy+window"}); err != nil || r.Strategies[0].Same != 1 ||
		r.Strategies[0].Recorded != r.Strategies[0].Instead {
		t.Errorf("unexpected equal hold: %v, %+v", err, r)
	}
	if _, err := NewReplay(nil, []string{"greenest"}); err == nil {
		t.Error("NewReplay() with an unknown strategy returned no error")
	}
}
