package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
)

// book serves records like the controller, which returns a page of the requested interval, newest first.
type book struct {
	mu      sync.Mutex
	records []ledger.Record
}

func (b *book) add(records ...ledger.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = append(b.records, records...)
	slices.SortStableFunc(b.records, func(x, y ledger.Record) int { return y.At.Compare(x.At) })
}

func (b *book) answer(q *http.Request) any {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := q.URL.Query()
	at := func(name string) time.Time { t, _ := time.Parse(time.RFC3339, v.Get(name)); return t }
	asked := ledger.RecordQuery{From: at("from"), To: at("to"), UID: v.Get("uid"), Strategies: v["strategy"]}
	page := []ledger.Record{}
	for _, r := range b.records {
		if v.Get("snapshots") == "" {
			r.Snapshot = nil
		}
		if ledgertest.Selects(&asked, &r) && len(page) < 3 { // three per page
			page = append(page, r)
		}
	}
	return api.Decisions{Decisions: page}
}

// decided adds a hold, its release and placements to the controller.
func (c *fakeUnit) decided(t *testing.T) *book {
	t.Helper()
	at := testNow.Add(-3 * time.Hour).Truncate(time.Hour)
	hold := recorded(t, "hold", "b", at, "", "carbon+window")
	hold.Start, hold.End = at.Add(2*time.Hour), at.Add(3*time.Hour)
	hold.Reason, hold.Saving, hold.Saved = "CheaperLater", 0.34, 120
	hold.Message = "held until 2026-06-01T11:00:00Z: saves an estimated 34 % (120 g); starts by 2026-06-01T14:00:00Z"
	release := ledger.Record{
		ID: "let-go", Action: "release", At: hold.Start, Namespace: "home", OwnerKind: "Job", Owner: "b", UID: hold.UID,
		Strategy: "carbon+window", Start: hold.Start, Reason: "Released", Message: hold.Message,
	}
	place := recorded(t, "place", "b", at.Add(2*time.Hour+time.Second), "thrifty", "carbon")
	place.Start, place.End, place.Reason = place.At, place.At.Add(26*time.Hour), "Cheapest"
	evil := ledger.Record{
		ID: "evil", Action: "place", At: at.Add(time.Minute), Namespace: "home", OwnerKind: "Pod", Owner: "x\x1b[2J",
		UID: "u", Strategy: "energy", Node: "wasteful", Reason: "NoOpinion", Message: "=1+1",
	}
	b := &book{}
	b.add(hold, release, place, evil)
	for _, prefix := range []string{"/api/v1/", "/api/v1/namespaces/home/"} {
		c.answers[prefix+"decisions"] = b.answer
	}
	return b
}

func TestDecisions(t *testing.T) {
	c := newFakeController(t)
	c.decided(t)
	var all strings.Builder
	for _, args := range [][]string{
		{"decisions"},
		{"decisions", "-A", "-o", "wide"},
		{"decisions", "--action", "place", "--node", "thrifty,other"},
		{"decisions", "--strategy", "carbon+window", "--reason", "cheaperlater"},
		{"decisions", "--limit", "1"},
		{"decisions", "--since", "2h", "-o", "csv"},
		{"decisions", "--node", "nowhere"},
		{"decisions", "--node", "nowhere", "-o", "json"},
	} {
		code, stdout, stderr := c.run(t, withToken, args...)
		if code != 0 {
			t.Fatalf("%v: exit code %d, %s", args, code, stderr)
		}
		fmt.Fprintf(&all, "$ kubenergy %s\n%s%s\n", strings.Join(args, " "), stdout, stderr)
	}
	golden(t, "decisions.golden", all.String())
}

// The output of -o json equals the response of the API.
func TestDecisionsAreTheAPIs(t *testing.T) {
	c := newFakeController(t)
	b := c.decided(t)
	code, stdout, stderr := c.run(t, withToken, "decisions", "-o", "json")
	if code != 0 {
		t.Fatal(stderr)
	}
	want := api.Decisions{Decisions: slices.Clone(b.records)}
	for i := range want.Decisions {
		want.Decisions[i].Snapshot = nil
	}
	text, err := json.MarshalIndent(want, "", "  ")
	if err != nil || stdout != string(text)+"\n" {
		t.Errorf("error %v; got\n%s\nwant\n%s", err, stdout, text)
	}
}

func TestSnapshotOfADecision(t *testing.T) {
	c := newFakeController(t)
	b := c.decided(t)
	for _, name := range []string{"job/b", b.records[0].ID} {
		code, stdout, stderr := c.run(t, withToken, "decisions", "--snapshot", name)
		if code != 0 {
			t.Fatalf("%s: exit code %d, %s", name, code, stderr)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, []byte(stdout)); err != nil {
			t.Fatal(err)
		}
		if codec.Digest(compact.Bytes()) != b.records[0].Digest {
			t.Errorf("%s: expected the snapshot of the newest decision, got:\n%s", name, stdout)
		}
	}
	for name, want := range map[string]string{
		"none":  "no decision none with a snapshot found since 2",
		"job/x": "no decision job/x with a snapshot",
		"evil":  "decision evil was recorded without a snapshot: no opinion: the default scheduler decides; =1+1",
	} {
		if code, _, stderr := c.run(t, withToken, "decisions", "--snapshot", name); code != 1 ||
			!strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", name, code, stderr)
		}
	}
}

// shared is output that tests can read while a command writes it.
type shared struct {
	mu    sync.Mutex
	b     bytes.Buffer
	wrote chan<- struct{} // receives a value after each write if it has capacity; may be nil
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.wrote <- struct{}{}:
	default:
	}
	return s.b.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// With --follow, each decision is printed once, including late ones. Expired tokens are renewed, outages and rate
// limits are retried, and the command ends on a permanent error or when the context is done.
func TestFollow(t *testing.T) {
	for _, forbidden := range []bool{false, true} {
		t.Run(fmt.Sprint("forbidden at last: ", forbidden), func(t *testing.T) { follow(t, forbidden) })
	}
}

func follow(t *testing.T, forbidden bool) {
	t.Helper()
	c := newFakeController(t)
	b := c.decided(t)
	fail := make(chan refusal, 1) // response to the next request
	changed := make(chan struct{}, 1)
	c.answers["/api/v1/decisions"] = func(q *http.Request) any {
		select {
		case r := <-fail:
			select {
			case changed <- struct{}{}:
			default:
			}
			return r
		default:
			return b.answer(q)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout, stderr := shared{wrote: changed}, shared{wrote: changed}
	ended, path := make(chan int, 1), c.kubeconfig(t, withToken)
	go func() {
		ended <- run(ctx, []string{"decisions", "-A", "--follow", "--kubeconfig", path}, cmdutil.Terminal{
			Name: "kubenergy", Out: &stdout, Err: &stderr, Now: func() time.Time { return testNow },
			After: func(time.Duration) <-chan time.Time { return time.After(20 * time.Millisecond) },
		})
	}()
	until := func(what string, done func() bool) {
		t.Helper()
		for late := time.After(20 * time.Second); !done(); {
			select {
			case <-changed:
			case <-late:
				t.Fatalf("timed out after 20 s: %s\n%s%s", what, stdout.String(), stderr.String())
			}
		}
	}
	await := func(text string) {
		t.Helper()
		until(text, func() bool { return strings.Contains(stdout.String()+stderr.String(), text) })
	}
	refuse := func(status int, text string) {
		t.Helper()
		fail <- refusal{status, text}
		until("the request was retried", func() bool { return len(fail) == 0 })
	}
	place := func(id string, ago time.Duration) ledger.Record {
		return ledger.Record{
			ID: id, At: testNow.Add(-ago), Action: "place", Namespace: "home", OwnerKind: "Job",
			Owner: "a-longer-name-" + id, UID: id, Strategy: "carbon", Node: "thrifty", Reason: "Cheapest",
		}
	}
	await("thrifty")
	b.add(place("third", 50*time.Second), place("fourth", 40*time.Second))
	await("-fourth")
	refuse(http.StatusUnauthorized, "the token has expired")
	b.add(place("late", 70*time.Second))
	await("-late")
	refuse(http.StatusServiceUnavailable, "starting")
	await("not ready: starting, retrying")
	refuse(http.StatusTooManyRequests, "later")
	b.add(place("last", time.Second))
	await("-last")
	if forbidden {
		refuse(http.StatusForbidden, "permission revoked")
	} else {
		cancel()
	}
	if code := <-ended; (code != 0) != forbidden || forbidden && !strings.Contains(stderr.String(), "permission revoked") {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	var order []string
	for _, line := range lines {
		order = append(order, strings.Fields(line)[3])
	}
	if want := []string{
		"OWNER", "Job/b", "Pod/x", "Job/b", "Job/b", "Job/a-longer-name-third", "Job/a-longer-name-fourth",
		"Job/a-longer-name-late", "Job/a-longer-name-last",
	}; !slices.Equal(order, want) {
		t.Errorf("unexpected order %v:\n%s", order, stdout.String())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made != 2 {
		t.Errorf("got %d tokens, want a new one after the first had expired", c.made)
	}
}
