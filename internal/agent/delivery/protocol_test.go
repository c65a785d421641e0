package delivery

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/delivery/sinktest"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// TestProtocolIsDocumented verifies that docs/reference/protocol.md contains the actual messages, and mentions
// every field and failure reason.
func TestProtocolIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../docs/reference/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	ofAgents, _, _ := strings.Cut(page, "## From cluster to federation")
	examples := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(ofAgents, -1)
	if len(examples) != 2 {
		t.Fatalf("got %d examples", len(examples))
	}
	b, err := batch.Decode([]byte(examples[0][1]))
	if err != nil {
		t.Fatal(err)
	}
	sent, err := batch.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := indent(t, sent); got != examples[0][1] {
		t.Errorf("batch is encoded as\n%s", got)
	}

	want, err := batch.DecodeAck([]byte(examples[1][1]))
	if err != nil {
		t.Fatal(err)
	}
	sink := sinktest.Sink{Names: want.Names}
	ack, err := sink.Book(b)
	if err != nil {
		t.Fatal(err)
	}
	answered, err := sinktest.EncodeAck(ack)
	if err != nil {
		t.Fatal(err)
	}
	if got := indent(t, answered); got != examples[1][1] {
		t.Errorf("acknowledgement is encoded as\n%s", got)
	}

	for _, v := range []any{
		batch.Batch{}, batch.Stream{}, batch.Parent{}, energy.Share{}, batch.Ack{}, batch.Names{}, batch.Hardware{},
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("%T: field %q is not documented", v, name)
			}
		}
	}
	for _, reason := range Reasons {
		if !strings.Contains(page, "`"+reason+"`") {
			t.Errorf("failure reason %q is not documented", reason)
		}
	}
}

// TestIntervals verifies that adjacent intervals do not overlap, and that empty intervals never overlap.
func TestIntervals(t *testing.T) {
	var sink sinktest.Sink
	number := uint64(0)
	for _, c := range []struct {
		start, end time.Duration
		want       bool
	}{
		{10, 20, true},
		{15, 15, true},
		{10, 10, true},
		{20, 20, true},
		{20, 30, true},
		{5, 10, true},
		{4, 6, false},
		{19, 21, false},
	} {
		number++
		b := &batch.Batch{
			Version: batch.Version, Stream: batch.Stream{Node: "n", Boot: "b", Epoch: "e"}, First: number, Last: number,
			StartSinceBoot: c.start, EndSinceBoot: c.end, Source: "s", IdlePolicy: "apart",
		}
		b.SetWall(time.Unix(1e9, 0))
		if _, err := sink.Book(b); (err == nil) != c.want {
			t.Errorf("%v to %v: %v", c.start, c.end, err)
		}
	}
}

func indent(t *testing.T, data []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(data), "", "  "); err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}
