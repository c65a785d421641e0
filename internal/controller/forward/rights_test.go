package forward_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/controller/server"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// apiServer is a fake API server that accepts the tokens of members.
type apiServer struct{}

func (apiServer) Create(_ context.Context, r *authenticationv1.TokenReview, _ metav1.CreateOptions,
) (*authenticationv1.TokenReview, error) {
	answer := r.DeepCopy()
	if name, ok := strings.CutPrefix(r.Spec.Token, "token-of-"); ok {
		answer.Status = authenticationv1.TokenReviewStatus{
			Authenticated: true, Audiences: r.Spec.Audiences, User: authenticationv1.UserInfo{
				Username: "system:serviceaccount:kubenergy-system:kubenergy-member-" + name,
			},
		}
	}
	return answer, nil
}

type judge struct{}

func (judge) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	answer, a := r.DeepCopy(), r.Spec.ResourceAttributes
	_, name, _ := strings.Cut(r.Spec.User, "kubenergy-member-")
	answer.Status.Allowed = *a == authorizationv1.ResourceAttributes{
		Verb: "create", Group: "kubenergy.io", Resource: "clusters", Subresource: "bookings", Name: name,
	}
	return answer, nil
}

// guarded is a federation with its HTTP API.
type guarded struct {
	*federation
	http.Handler
}

func newGuarded(t *testing.T, limits access.Member) *guarded {
	t.Helper()
	f := newFederation(t, nil, ledgertest.Noon.Add(time.Hour), inFile(t))
	for name := range f.members {
		limits.Name = name
		f.members[name] = limits
	}
	g := &guarded{federation: f}
	g.begin()
	t.Cleanup(func() { g.end() })
	return g
}

func (g *guarded) begin() {
	g.federation.begin()
	g.Handler = server.New(server.Config{
		Ledger: g.ledger, Gate: g.gate, Batches: g.handler,
		Bookings: http.HandlerFunc(g.handler.ServeMember), Now: func() time.Time { return g.now }, Log: logs(g.t),
	})
}

// send forwards lines for a cluster with the token of a member.
func (g *guarded) send(member, cluster string, lines ...[]byte) (status int, answer api.Forwarded) {
	g.t.Helper()
	var body bytes.Buffer
	for _, line := range lines {
		body.Write(line)
	}
	r := httptest.NewRequest(http.MethodPost, "/api/v1/clusters/"+cluster+"/bookings", &body)
	r.Header.Set("Authorization", "Bearer token-of-"+member)
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			g.t.Fatal(err)
		}
	}
	if busy := w.Code == http.StatusTooManyRequests || w.Code == http.StatusServiceUnavailable; busy &&
		w.Header().Get("Retry-After") == "" {
		g.t.Errorf("status %d without a Retry-After header", w.Code)
	}
	return w.Code, answer
}

func pack(t *testing.T, b *ledger.Booking, change ...func(*ledger.Booking)) []byte {
	t.Helper()
	for _, f := range change {
		f(b)
	}
	packed, err := b.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// booked returns the recorded energy by node.
func (g *guarded) booked() map[string]energy.Microjoules {
	g.t.Helper()
	all := map[string]energy.Microjoules{}
	for _, row := range rowsOfNodes(g) {
		all[row.Key[0]] = row.Energy()
	}
	return all
}

func rowsOfNodes(g *guarded) []ledger.Row {
	answer, err := g.store.Query(g.t.Context(), &ledger.Query{
		From: ledgertest.Noon.AddDate(0, 0, -10), To: ledgertest.Noon.AddDate(0, 0, 2),
		GroupBy: []ledger.Dimension{ledger.ByNode},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return answer.Rows
}

var (
	usual = access.Member{Nodes: 3, MaxPower: 2000, Bookings: 1000}
	world = ledgertest.World{Nodes: 10, Pods: 2, Epoch: "1"}
)

// TestStolenMemberToken verifies that the token of a member cannot be used for anything but forwarding its records.
func TestStolenMemberToken(t *testing.T) {
	g := newGuarded(t, usual)
	if status, answer := g.send("alpha", "alpha", pack(t, world.Booking(0, 1))); status != http.StatusOK ||
		answer.Booked != 1 {
		t.Fatalf("status %d, %+v: a member cannot forward its own records", status, answer)
	}
	before := g.booked()
	for name, try := range map[string]func() bool{
		"records for another cluster": func() bool {
			status, _ := g.send("alpha", "beta", pack(t, world.Booking(0, 2)))
			return status == http.StatusForbidden
		},
		"records for an invalid cluster": func() bool {
			status, _ := g.send("alpha", "alpha%2Fbeta", pack(t, world.Booking(0, 2)))
			return status == http.StatusForbidden
		},
		"records for a node of another cluster": func() bool {
			_, answer := g.send("alpha", "alpha", pack(t, world.Booking(0, 2), func(b *ledger.Booking) {
				b.Batch.Stream.Node = "beta/node0000"
			}))
			return len(answer.Refused) == 1
		},
		"a parent in another cluster": func() bool {
			_, answer := g.send("alpha", "alpha", pack(t, world.Booking(1, 2), func(b *ledger.Booking) {
				b.Batch.Parent = &batch.Parent{Host: "beta/node0000", VM: "vm"}
			}))
			return len(answer.Refused) == 1
		},
		"an account kind that is not a consumer": func() bool {
			_, answer := g.send("alpha", "alpha", pack(t, world.Booking(0, 2), func(b *ledger.Booking) {
				b.Consumers[0].Account.Kind = ledger.Transfer
			}))
			return len(answer.Refused) == 1
		},
		"more power than a node can draw": func() bool {
			_, answer := g.send("alpha", "alpha", pack(t, world.Booking(0, 2), func(b *ledger.Booking) {
				b.Batch.Unknown, b.Batch.Measured = b.Batch.Unknown+200e9, b.Batch.Measured+200e9
			}))
			return len(answer.Refused) == 1
		},
		"a batch of an agent": func() bool {
			r := httptest.NewRequest(http.MethodPost, "/api/v1/batches", strings.NewReader("{}"))
			r.Header.Set("Authorization", "Bearer token-of-alpha")
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			return w.Code == http.StatusForbidden
		},
	} {
		if !try() {
			t.Errorf("a stolen token was accepted for %s", name)
		}
	}
	for _, path := range []string{"/api/v1/decisions", "/ingest", "/metrics-ingest?node=node0000"} {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer token-of-alpha")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("POST %s with a stolen token: got status %d %s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{
		"/api/v1/ledger", "/api/v1/namespaces/ns1/ledger", "/api/v1/nodes", "/api/v1/nodes/power", "/api/v1/pods",
		"/api/v1/workloads/power", "/api/v1/zones", "/api/v1/jobs", "/api/v1/decisions", "/api/v1/ledger/statistics",
		"/api/v1/ledger/audit", "/api/v1/namespaces/ns1/pods/pod-0-0/power",
	} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer token-of-alpha")
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("GET %s with a stolen token: got status %d", path, w.Code)
		}
	}
	if after := g.booked(); len(after) != 1 || after["alpha/node0000"] != before["alpha/node0000"] {
		t.Errorf("the recorded energy is %v, want %v", after, before)
	}
}

// TestMemberCannotExhaust verifies that a member cannot exceed its configured limits.
func TestMemberCannotExhaust(t *testing.T) {
	g := newGuarded(t, usual)
	var all [][]byte
	for node := range 5 {
		all = append(all, pack(t, world.Booking(node, 1)))
	}
	if _, answer := g.send("alpha", "alpha", all...); answer.Booked != 3 || len(answer.Refused) != 2 {
		t.Errorf("got %+v for 5 nodes, want 3 recorded", answer)
	}
	week := func(b *ledger.Booking) { // each record covers the last four days
		b.Agentless, b.Batch.Stream.Epoch = true, b.Batch.Stream.Epoch+strconv.FormatUint(b.Batch.First, 10)
		b.Batch.StartSinceBoot, b.Batch.EndSinceBoot = 0, 4*24*time.Hour
		b.Batch.SetWall(ledgertest.Noon)
	}
	_, answer := g.send("beta", "beta", pack(t, world.Booking(0, 1), week), pack(t, world.Booking(0, 2), week))
	if answer.Booked != 1 || len(answer.Refused) != 1 {
		t.Errorf("eight days within seven without an agent: %+v", answer)
	}
	again := slices.Repeat(all[:1], 200)
	last := 0
	for range 10 {
		last, _ = g.send("alpha", "alpha", again...)
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("2,000 records in a minute with a limit of 1,000: got status %d", last)
	}
	g.now = g.now.Add(2 * time.Minute)
	if status, _ := g.send("alpha", "alpha", all[0]); status != http.StatusOK {
		t.Errorf("two minutes later: got status %d", status)
	}
	g.now = g.now.Add(25 * time.Hour)
	if _, answer := g.send("alpha", "alpha", all[3:]...); answer.Booked != 2 {
		t.Errorf("two other nodes a day later: %+v", answer)
	}
}

// repeated is a text that is repeated several times.
type repeated struct {
	text  string
	times int
}

// compress returns the concatenation of gzip members for the given parts, each a string or a repeated. Repetitions
// are compressed only once.
func compress(parts ...any) (all []byte) {
	for _, part := range parts {
		p, ok := part.(repeated)
		if !ok {
			p = repeated{part.(string), 1}
		}
		block := max(min(256<<10/max(len(p.text), 1), p.times), 1) // repetitions per gzip member
		var member bytes.Buffer
		zip := gzip.NewWriter(&member)
		_, _ = io.WriteString(zip, strings.Repeat(p.text, block))
		_ = zip.Close()
		all = append(all, bytes.Repeat(member.Bytes(), p.times/block)...)
		if rest := p.times % block; rest > 0 {
			all = append(all, compress(repeated{p.text, rest})...)
		}
	}
	return all
}

// TestMemberCannotExhaustMemory sends bodies of up to 32 MiB that cause as many allocations as possible while they
// are parsed. Even if no garbage were collected, two concurrent requests must not allocate more than half of the
// controller's memory limit in the chart, GOMEMLIMIT=800MiB.
//
//test:norace
func TestMemberCannotExhaustMemory(t *testing.T) {
	const (
		bad, tooLarge = http.StatusBadRequest, http.StatusRequestEntityTooLarge

		size  = 32 << 20
		part  = size - 4<<20 // reduced size for cases that do not depend on the last 4 MiB
		limit = 400 << 20
		rest  = `"batch":{"stream":{"node":"n","boot":"b","epoch":"e"}}}`
		valid = `{"version":1,"stream":{"node":"n","boot":"b","epoch":"e"},"first":1,"last":1,` +
			`"start":"2026-01-01T00:00:00Z","end":"2026-01-01T00:00:00Z","source":"s","idlePolicy":"apart","shares":[`
		consumer = `{"key":"vm/a","account":{"kind":"vm"}}`
	)
	fill := func(unit string, taken int) repeated { return repeated{unit, (size - taken) / len(unit)} }
	many := func(unit string, n int) string { return strings.Repeat(unit+",", n-1) + unit }
	line := func(shares, consumers string) string {
		return `{"version":1,"consumers":[` + consumers + `],"batch":` + valid + shares + "]}}\n"
	}
	lines := func(line string, n int) repeated { return repeated{line, min(n, size/len(line))} }
	var shares strings.Builder // the shortest valid shares, sorted by ID
	for i := range batch.MaxShares {
		fmt.Fprintf(&shares, `%s{"id":"vm/%04d"}`, strings.Repeat(",", min(i, 1)), i)
	}
	incompressible := make([]byte, 5<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(incompressible)
	for name, c := range map[string]struct {
		body   []byte
		status int
	}{
		"more than 32 MiB": {compress(repeated{" ", size + 1}), tooLarge},
		"more than 4 MiB":  {compress(string(incompressible)), tooLarge},
		"newlines":         {compress(fill("\n", 0)), bad},
		"lines": {
			compress(repeated{`{` + rest + "\n", api.MaxForwarded + 1}), tooLarge,
		},
		"empty consumers":  {compress(`{"consumers":[`, fill("{},", 200), `{}],`+rest), tooLarge},
		"null consumers":   {compress(`{"consumers":[`, fill("null,", part), `null],`+rest), http.StatusOK},
		"consumers":        {compress(`{"consumers":[`, fill(consumer+",", 200), consumer+`],`+rest), tooLarge},
		"empty shares":     {compress(lines(line(many("{}", batch.MaxShares), ""), api.MaxForwarded)), tooLarge},
		"shares":           {compress(lines(line(shares.String(), ""), 100)), tooLarge},
		"escaped names":    {compress(`{"consumers":[{"key":"`, fill(`\u00e4`, part), `"}],`+rest), http.StatusOK},
		"a name":           {compress(`{"batch":{"stream":{"node":"`, fill("n", part), `"}}}`), bad},
		"brackets":         {compress(fill("[", 0)), bad},
		"unknown brackets": {compress(`{"new":`, fill("[", part), `],`+rest), bad},
		"unknown elements": {compress(`{"new":[`, fill("0,", part), `0],`+rest), http.StatusOK},
		"unknown keys":     {compress(`{`, fill(`"":0,`, part), rest), http.StatusOK},
		"repeated keys":    {compress(`{`, fill(`"consumers":[],`, part), rest), http.StatusOK},
		"repeated batches": {compress(`{`, fill(`"batch":{},`, 200), rest), tooLarge},
		"empty members":    {bytes.Repeat(compress(""), (4<<20)/len(compress(""))), bad},
		"consumers of all lines": {
			compress(lines(line(shares.String(), many(consumer, batch.MaxShares)), 100)),
			tooLarge,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, usual)
			done := memtest.Limit(t, limit)
			var all sync.WaitGroup
			var answers [2]int
			for i, member := range []string{"alpha", "beta"} {
				all.Go(func() {
					var answer api.Forwarded
					if answers[i], answer = g.send(member, member, c.body); answer.Booked > 0 {
						t.Errorf("%s: %+v", member, answer)
					}
				})
			}
			all.Wait()
			done()
			slices.Sort(answers[:]) // the second request may be rejected for lack of memory
			if first, second := answers[0], answers[1]; first != c.status ||
				second != c.status && second != http.StatusServiceUnavailable {
				t.Errorf("got statuses %d, want %d", answers, c.status)
			}
		})
	}
	g := newGuarded(t, usual)
	spaces := compress(fill(" ", 0))
	for range 2 { // each is charged as 512 records because of its size
		if status, _ := g.send("alpha", "alpha", spaces); status != http.StatusBadRequest {
			t.Errorf("32 MiB of spaces: got status %d", status)
		}
	}
	if status, _ := g.send("alpha", "alpha", spaces); status != http.StatusTooManyRequests {
		t.Errorf("96 MiB of spaces in a minute: got status %d", status)
	}
	if status, _ := g.send("beta", "beta", pack(t, world.Booking(0, 1))); status != http.StatusOK {
		t.Errorf("another member: got status %d", status)
	}
}

// TestTimeSurvivesARestart verifies that the limit of reported time per node is persisted in the ledger.
func TestTimeSurvivesARestart(t *testing.T) {
	g := newGuarded(t, usual)
	fourDays := func(boot string) []byte {
		return pack(t, world.Booking(0, 1), func(b *ledger.Booking) {
			b.Batch.Stream.Boot, b.Batch.Stream.Epoch = boot, boot
			b.Batch.StartSinceBoot, b.Batch.EndSinceBoot = 0, 4*24*time.Hour
			b.Batch.SetWall(ledgertest.Noon)
		})
	}
	if _, answer := g.send("alpha", "alpha", fourDays("a")); answer.Booked != 1 {
		t.Fatalf("%+v", answer)
	}
	g.end()
	g.begin()
	if _, answer := g.send("alpha", "alpha", fourDays("b")); len(answer.Refused) != 1 {
		t.Errorf("eight days within seven: %+v", answer)
	}
}

// TestRefusedStreamsRest verifies that later records of a stream are rejected after one of its records is rejected,
// because accepting them would acknowledge it. Other streams are not affected.
func TestRefusedStreamsRest(t *testing.T) {
	g := newGuarded(t, usual)
	impossible := func(b *ledger.Booking) {
		b.Batch.Unknown, b.Batch.Measured = b.Batch.Unknown+200e9, b.Batch.Measured+200e9
	}
	lines := [][]byte{
		pack(t, world.Booking(0, 1)), pack(t, world.Booking(0, 2), impossible), pack(t, world.Booking(1, 1)),
		pack(t, world.Booking(0, 3)), pack(t, world.Booking(1, 2)),
	}
	_, answer := g.send("alpha", "alpha", lines...)
	var refused []int
	for line := range answer.Refused {
		refused = append(refused, line)
	}
	slices.Sort(refused)
	if !slices.Equal(refused, []int{1, 3}) || answer.Booked != 3 {
		t.Fatalf("got %+v, want lines 1 and 3 rejected", answer)
	}
	lines[1] = pack(t, world.Booking(0, 2)) // corrected
	if _, answer = g.send("alpha", "alpha", lines...); answer.Booked != 5 {
		t.Errorf("%+v", answer)
	}
	var truth ledgertest.Truth
	for number := range uint64(3) {
		truth.Book(world.Booking(0, number+1))
	}
	if got, want := g.booked()["alpha/node0000"], truth.Total.Energy(); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestRefusedBeginsCostNothing verifies that rejected records do not count towards the limit of new streams per
// node.
func TestRefusedBeginsCostNothing(t *testing.T) {
	g := newGuarded(t, usual)
	impossible := pack(t, world.Booking(0, 1), func(b *ledger.Booking) {
		b.Batch.Unknown, b.Batch.Measured = b.Batch.Unknown+200e9, b.Batch.Measured+200e9
	})
	for range 60 {
		if _, answer := g.send("alpha", "alpha", impossible); len(answer.Refused) != 1 {
			t.Fatalf("%+v", answer)
		}
	}
	if _, answer := g.send("alpha", "alpha", pack(t, world.Booking(0, 1))); answer.Booked != 1 {
		t.Errorf("after 60 rejected requests: %+v", answer)
	}
}

// TestABookingThatPanics verifies that a panic while processing a record does not affect other streams of the
// request.
func TestABookingThatPanics(t *testing.T) {
	t.Cleanup(panics.Reset)
	g := newGuarded(t, usual)
	lines := [][]byte{pack(t, world.Booking(0, 1)), pack(t, world.Booking(1, 1))}
	g.rates = func(node string, from, to time.Time) ledger.Rates {
		if node == "alpha/node0000" {
			panic("planted")
		}
		return rates(node, from, to)
	}
	g.end()
	g.begin()
	if _, answer := g.send("alpha", "alpha", lines...); answer.Booked != 1 || answer.Refused[0] == "" {
		t.Errorf("%+v", answer)
	}
	g.rates = rates
	g.end()
	g.begin()
	if _, answer := g.send("alpha", "alpha", lines...); answer.Booked != 2 {
		t.Errorf("after the panic was fixed: %+v", answer)
	}
}

const frozen = "testdata/bookings-v1.ndjson"

// TestFrozenRequest sends a request of a member with version 1. The file must not be changed, because members and
// federations may differ by one release. Unknown fields are ignored, unless they could change the meaning of a
// batch.
func TestFrozenRequest(t *testing.T) {
	data, err := os.ReadFile(frozen)
	if err != nil {
		t.Fatal(err)
	}
	var now bytes.Buffer
	for _, agentless := range []bool{false, true} {
		w := world
		if w.Agentless = agentless; agentless {
			w.Epoch = "2"
		}
		b := w.Booking(0, 1)
		b.Power = map[bool]ledger.Kind{true: ledger.Asleep}[agentless]
		now.Write(pack(t, b))
	}
	zip, err := gzip.NewReader(&now)
	if err != nil {
		t.Fatal(err)
	}
	var made bytes.Buffer
	if _, err := made.ReadFrom(zip); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made.Bytes(), data) {
		t.Errorf("got request\n%s\nwant\n%s", made.Bytes(), data)
	}
	for name, c := range map[string]struct {
		from, to string
		booked   int
	}{
		"unchanged":                 {"", "", 2},
		"a new field":               {`"consumers":`, `"news":{"a":1},"consumers":`, 2},
		"a new field of an account": {`"account":{`, `"account":{"news":1,`, 2},
		"a new field of a batch":    {`"batch":{`, `"batch":{"news":1,`, 0},
		"a new version":             {`{"version":1,"c`, `{"version":2,"c`, 1},
	} {
		g := newGuarded(t, usual)
		var packed bytes.Buffer
		zip := gzip.NewWriter(&packed)
		text := string(data)
		if c.from != "" {
			text = strings.ReplaceAll(text, c.from, c.to)
		}
		_, _ = zip.Write([]byte(text))
		_ = zip.Close()
		if status, answer := g.send("alpha", "alpha", packed.Bytes()); status != http.StatusOK ||
			answer.Booked != c.booked || len(answer.Refused) != 2-c.booked {
			t.Errorf("%s: got status %d, %+v", name, status, answer)
		}
	}
}
