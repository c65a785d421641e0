package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// placedRecord returns a decision to start a job immediately although it may wait and the grid is cleaner in three
// hours.
func placedRecord(t *testing.T) ledger.Record {
	t.Helper()
	now := time.Date(2026, 6, 1, 8, 0, 0, 0, time.UTC)
	values := make([]float64, 48)
	for i := range values {
		if values[i] = 500; i >= 3 {
			values[i] = 100
		}
	}
	series, err := grid.NewSeries(now, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "here", Carbon: grid.Signal{Series: series}}
	ten := sched.Resources{MilliCPU: 10_000, Memory: 1 << 34}
	data, err := codec.Encode(&sched.Snapshot{
		Now: now, Sites: []*sched.Site{site},
		Nodes: []*sched.Node{{
			Name: "n", Site: site, Capacity: ten, Free: ten, Profile: &energy.Profile{Idle: 100, Max: 1100},
		}},
		Queue: []sched.Job{{
			ID: "a/j", Submitted: now, Duration: time.Hour, AllowedDelay: 6 * time.Hour,
			Request: sched.Resources{MilliCPU: 5000, Memory: 1 << 30},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ledger.Record{
		ID: "r1", At: now, Action: "place", Namespace: "a", OwnerKind: "Job", Owner: "j", Strategy: "energy", Node: "n",
		Digest: codec.Digest(data), Snapshot: kit.Gzip(data),
	}
}

func TestReplayFromFiles(t *testing.T) {
	good := placedRecord(t)
	bad := good
	bad.ID, bad.Snapshot = "r2", []byte("not gzip")
	records := []ledger.Record{good, bad}
	list, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	rows := [][]string{{"id", "at", "action", "node", "strategy", "digest", "snapshot"}}
	for _, r := range records {
		rows = append(rows, []string{
			r.ID, r.At.Format(time.RFC3339), r.Action, r.Node, r.Strategy, r.Digest,
			base64.StdEncoding.EncodeToString(r.Snapshot),
		})
	}
	if err := csv.NewWriter(&table).WriteAll(rows); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"list.json": string(list), "answer.json": `{"decisions":` + string(list) +
		`}`, "table.csv": table.String()} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, messages, code := compared(t, "replay", "--file", path, "--strategy", "energy,energy+window", "-o", "json")
		var r report.Replay
		if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil {
			t.Fatalf("%s: exit code %d: %s%v", name, code, messages, err)
		}
		if r.Records != 1 || len(r.Refused) != 1 || r.Refused[0].ID != "r2" || r.Strategies[0].Same != 1 ||
			r.Strategies[1].Held != 1 {
			t.Errorf("%s: %+v", name, r)
			continue
		}
		// If it is held for three hours, it emits a fifth, regardless of its power.
		if s := r.Strategies[1]; s.Compared != 1 || s.Instead.Grams > 0.2001*s.Recorded.Grams ||
			s.Instead.Grams < 0.1999*s.Recorded.Grams {
			t.Errorf("%s: unexpected result %+v instead of %+v", name, s.Instead, s.Recorded)
		}
		if out, _, code := compared(t, "replay", "--file", path, "--strategy", "energy+window"); code != 0 ||
			!strings.Contains(out, "Not replayed: record r2: ") ||
			!strings.Contains(out, "held until 2026-06-01 11:00") {
			t.Errorf("%s: exit code %d:\n%s", name, code, out)
		}
	}
}

// A file is replayed as a whole or limited by --from and --to.
func TestReplayPartOfAFile(t *testing.T) {
	records := []ledger.Record{placedRecord(t), placedRecord(t), placedRecord(t)}
	for i := range records {
		records[i].ID, records[i].At = []string{"r1", "r2", "r3"}[i], records[i].At.Add(time.Duration(i)*time.Hour)
	}
	list, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "records.json")
	if err := os.WriteFile(path, list, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want int
		args []string
	}{
		{3, nil},
		{2, []string{"--from", "2026-06-01T09:00:00Z"}},
		{1, []string{"--from", "2026-06-01T09:00:00Z", "--to", "2026-06-01T10:00:00Z"}},
		{0, []string{"--to", "2026-06-01"}},
	} {
		out, messages, code := compared(t, append([]string{
			"replay", "--file", path, "--strategy", "energy", "-o", "json",
		}, c.args...)...)
		var r report.Replay
		if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || r.Records != c.want {
			t.Errorf("%v: exit code %d, %d records, want %d: %s%v", c.args, code, r.Records, c.want, messages, err)
		}
	}
	if _, messages, code := compared(t, "replay", "--file", path, "--strategy", "energy", "--from",
		"soon"); code != 2 || !strings.Contains(messages, "--from") {
		t.Errorf("exit code %d: %s", code, messages)
	}
}

func TestReplayRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.json")
	for _, c := range []struct {
		text, want string
		code       int
		args       []string
	}{
		{`[]`, "missing strategy", 2, nil},
		{`[]`, `unknown strategy "greenest"`, 2, []string{"--strategy", "greenest"}},
		{`{}`, "want the response of GET", 2, []string{"--strategy", "energy"}},
		{"job,node\nj,n\n", `no column "id"`, 2, []string{"--strategy", "energy"}},
		{"JobID,AssignedNode\nj,n\n", "written by kubenergy simulate", 2, []string{"--strategy", "energy"}},
		{
			"id,at,action,digest,snapshot\nr7,yesterday,place,,\n", "record r7: at: ", 2,
			[]string{"--strategy", "energy"},
		},
		{
			`[{"id":"r8","at":"2026-06-01T08:00:00Z","action":"place"}]`,
			"none of 1 records can be replayed, e.g. r8: no snapshot", 1,
			[]string{"--strategy", "energy"},
		},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, messages, code := compared(t, append([]string{"replay", "--file", path}, c.args...)...)
		if code != c.code || !strings.Contains(messages, c.want) {
			t.Errorf("%s %v: exit code %d, got %s, want %q", c.text, c.args, code, messages, c.want)
		}
	}
}

// FuzzRecords reads decisions from a file or a response of the controller. Records must not be invented.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"decisions":[{"id":"a","at":"2026-06-01T12:00:00Z","action":"place","namespace":"n",
		"snapshot":"AA=="}]}`))
	f.Add([]byte("id,at,action,digest,snapshot,start\na,2026-06-01T12:00:00Z,hold,d,AA==,\n"))
	f.Add([]byte("[null]"))
	path := filepath.Join(f.TempDir(), "records")
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		records, err := readRecords(path)
		most := 1 + bytes.Count(text, []byte{','}) + bytes.Count(text, []byte{'\n'})
		packed := bytes.HasPrefix(text, []byte{0x1f, 0x8b})
		if err != nil && records != nil || !packed && len(records) > most {
			t.Fatalf("got %d records, error %v", len(records), err)
		}
	})
}

// FuzzRefusal reads arbitrary error responses. The message for the user must be a single line.
func FuzzRefusal(f *testing.F) {
	f.Add(503, []byte(`{"kind":"Status","message":"no endpoints available\u001b[31m","reason":"ServiceUnavailable"}`))
	f.Add(404, []byte("{\"error\":\"\xff\\n\"}"))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		defer memtest.Limit(t, 100*len(body))()
		for _, c := range []*cmdutil.ControllerClient{{}, {Proxied: true}} {
			said := c.Refusal(status, "/api/v1/x", body).Error()
			if strings.ContainsFunc(said, unicode.IsControl) || !utf8.ValidString(said) || len(said) > 1000 {
				t.Fatalf("%q", said)
			}
		}
	})
}

// Recorded plans are recomputed, and a modified plan is detected.
func TestReplayOfPlans(t *testing.T) {
	record := placedRecord(t)
	s, err := report.ReadSnapshot(&record)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	plan, looks := policy.PlanTogether("plan", s, nil, func() bool { return false })
	policy.RecordPlans(&b, slog.New(slog.DiscardHandler))("plan", s, plan, looks)
	path := filepath.Join(t.TempDir(), "plans.jsonl")
	for text, want := range map[string]string{
		b.String(): "Recomputed 1 plans from their snapshots without differences",
		strings.Replace(b.String(), `"reason":"PlannedLater"`, `"reason":"Cheapest"`, 1): "differs",
		"": "contains no plans",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, out, errs := execute(t, "replay", "--plans", path)
		if got := out + errs; !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if code, out, errs := execute(t, "replay", "--plans", path, "--strategy", "energy"); code == 0 {
		t.Errorf("expected an error for strategies with --plans, got %q %q", out, errs)
	}
}
