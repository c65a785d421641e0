package intake_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/controller/intake"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
)

const (
	agentUser = "system:serviceaccount:kubenergy-system:kubenergy-agent"
	path      = "/api/v1/batches"
)

var noon = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

func unplaced(*v1.Pod) string { return "" }

// world is a handler with an in-memory ledger and a fake API server for token reviews.
type world struct {
	t         testing.TB
	store     *ledgertest.Store
	directory *intake.PodIndex
	handler   *intake.Handler
	logged    *lockedBuffer

	mu     sync.Mutex
	now    time.Time
	tokens map[string]authenticationv1.TokenReviewStatus
	fail   error // error of the ledger
	limits map[string]intake.Limits
	known  map[string]bool
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newWorld(t testing.TB, change ...func(*intake.Config)) *world {
	w := &world{
		t: t, store: &ledgertest.Store{}, logged: &lockedBuffer{}, now: noon,
		tokens: map[string]authenticationv1.TokenReviewStatus{}, limits: map[string]intake.Limits{},
		known: map[string]bool{},
	}
	w.directory = intake.NewPodIndex(intake.PodIndexOptions{Strategy: unplaced, Now: w.clock})
	w.restart(change...)
	for _, node := range []string{"a", "b", "c"} {
		w.agent(node)
	}
	return w
}

// restart creates a new handler without state.
func (w *world) restart(change ...func(*intake.Config)) {
	w.t.Helper()
	const many = 1_000_000
	c := intake.Config{
		Ledger: w, AgentUser: agentUser, PodIndex: w.directory, Now: w.clock,
		Log: slog.New(slog.NewTextHandler(w.logged, nil)),
		Gate: access.NewGate(access.Options{
			Tokens: w, Now: w.clock, Reviews: many, Agents: access.Allowance{PerSecond: many, AtOnce: many},
			Log: slog.New(slog.DiscardHandler),
		}),
		Envelope: func(node string, _ ledger.Seen) intake.Limits {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.limits[node]
		},
		Known: func(node string) bool { return w.known[node] },
		Ready: func() bool { return true },
		Rates: func(string, time.Time, time.Time) ledger.Rates {
			return ledger.Rates{Site: "north", PUE: 1.2, Carbon: 300, Signal: "average", Price: 0.2, Currency: "EUR"}
		},
	}
	for _, f := range change {
		f(&c)
	}
	w.handler = intake.New(c)
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// agent adds the token of the agent of a node.
func (w *world) agent(node string) {
	w.tokens["token-"+node] = authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: []string{access.Audience},
		User: authenticationv1.UserInfo{
			Username: agentUser, Extra: map[string]authenticationv1.ExtraValue{access.NodeClaim: {node}},
		},
	}
}

// Create implements [authenticationclient.TokenReviewInterface].
func (w *world) Create(_ context.Context, r *authenticationv1.TokenReview,
	_ metav1.CreateOptions,
) (*authenticationv1.TokenReview, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answer := r.DeepCopy()
	if s, ok := w.tokens[r.Spec.Token]; ok && slices.ContainsFunc(s.Audiences,
		func(a string) bool { return slices.Contains(r.Spec.Audiences, a) }) {
		answer.Status = s
	}
	return answer, nil
}

// Book implements [intake.Booker].
func (w *world) Book(ctx context.Context, b *ledger.Booking) (ledger.Receipt, error) {
	w.mu.Lock()
	err := w.fail
	w.mu.Unlock()
	if err != nil {
		return ledger.Receipt{}, err
	}
	receipts, errs, err := w.store.Book(ctx, []*ledger.Booking{b})
	if err != nil {
		return ledger.Receipt{}, err
	}
	return receipts[0], errs[0]
}

// Acked implements [intake.Booker].
func (w *world) Acked(_ context.Context, s batch.Stream) (acked uint64, known bool, err error) {
	for _, b := range w.store.Booked() {
		if b.Batch.Stream == s {
			acked, known = max(acked, b.Batch.Last), true
		}
	}
	return acked, known, nil
}

// Reported implements [intake.Booker].
func (w *world) Reported(ctx context.Context, node string) (ledger.Reported, error) {
	return w.store.Reported(ctx, node)
}

// forgetful is a ledger that does not return the progress of streams.
type forgetful struct{ w *world }

// Acked implements [intake.Booker].
func (forgetful) Acked(context.Context, batch.Stream) (acked uint64, known bool, err error) {
	return 0, false, nil
}

func (f forgetful) Reported(ctx context.Context, node string) (ledger.Reported, error) {
	return f.w.Reported(ctx, node)
}

func (f forgetful) Book(ctx context.Context, b *ledger.Booking) (ledger.Receipt, error) {
	return f.w.Book(ctx, b)
}

// of returns the n-th batch of a node, with 15 s and 1,500 J unless change modifies it.
func of(node string, n uint64, change ...func(*batch.Batch)) *batch.Batch {
	const length = 15 * time.Second
	b := &batch.Batch{
		Version: batch.Version, Stream: batch.Stream{Node: node, Boot: "boot", Epoch: "epoch"}, First: n, Last: n,
		StartSinceBoot: time.Duration(n) * length, EndSinceBoot: time.Duration(n+1) * length,
		Source: "package (rapl)", Quality: energy.Measured, IdlePolicy: "apart", Measured: 1500e6, Idle: 500e6,
		Unknown: 1000e6, Shares: []energy.Share{},
	}
	b.SetWall(noon)
	for _, f := range change {
		f(b)
	}
	return b
}

// with distributes the unknown energy of a batch to consumers.
func with(ids ...string) func(*batch.Batch) {
	return func(b *batch.Batch) {
		slices.Sort(ids)
		part := b.Unknown / energy.Microjoules(len(ids))
		for _, id := range ids {
			b.Shares = append(b.Shares, energy.Share{ID: id, Dynamic: part, CPU: time.Second})
			b.Unknown -= part
		}
	}
}

func lasting(d time.Duration) func(*batch.Batch) {
	return func(b *batch.Batch) {
		b.EndSinceBoot = b.StartSinceBoot + d
		b.SetWall(b.End)
	}
}

func joules(j energy.Microjoules) func(*batch.Batch) {
	return func(b *batch.Batch) { b.Measured, b.Idle, b.Unknown, b.Shares = j*1e6, j*1e6, 0, nil }
}

func (w *world) encoded(b *batch.Batch) []byte {
	data, err := batch.Encode(b)
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

func zip(data []byte) []byte {
	var buf bytes.Buffer
	z := zips.Get().(*gzip.Writer)
	defer zips.Put(z)
	z.Reset(&buf)
	_, _ = z.Write(data)
	_ = z.Close()
	return buf.Bytes()
}

var zips = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level that agents use
	return z
}}

func post(token string, body io.Reader, encoding string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, body)
	r.Header.Set("Content-Type", "application/json")
	if encoding != "" {
		r.Header.Set("Content-Encoding", encoding)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func (w *world) do(r *http.Request) *httptest.ResponseRecorder {
	w.t.Helper()
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	switch answer.Code {
	case http.StatusOK:
		if _, err := batch.DecodeAck(answer.Body.Bytes()); err != nil {
			w.t.Errorf("200 without an acknowledgement: %v", err)
		}
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		if answer.Header().Get("Retry-After") == "" {
			w.t.Errorf("status %d without Retry-After", answer.Code)
		}
	}
	if answer.Code != http.StatusOK {
		var e api.Error
		if err := json.Unmarshal(answer.Body.Bytes(), &e); err != nil || e.Error == "" {
			w.t.Errorf("status %d: invalid body %q", answer.Code, answer.Body)
		}
	}
	return answer
}

func (w *world) send(token string, b *batch.Batch) *httptest.ResponseRecorder {
	w.t.Helper()
	return w.do(post(token, bytes.NewReader(w.encoded(b)), "")) // uncompressed, to save time
}

// booked sends a batch that must be recorded, and returns the booking and the acknowledgement.
func (w *world) booked(token string, b *batch.Batch) (*ledger.Booking, *batch.Ack) {
	w.t.Helper()
	before := len(w.store.Booked())
	answer := w.send(token, b)
	all := w.store.Booked()
	if answer.Code != http.StatusOK || len(all) != before+1 {
		w.t.Fatalf("status = %d %s and %d new bookings, want 200 and 1", answer.Code, answer.Body, len(all)-before)
	}
	ack, err := batch.DecodeAck(answer.Body.Bytes())
	if err != nil || ack.Acked != b.Last || ack.Epoch != b.Stream.Epoch {
		w.t.Fatalf("unexpected acknowledgement: %+v, %v", ack, err)
	}
	return all[before], ack
}

// refused sends a batch that must be rejected with the given status, and returns the body of the response.
func (w *world) refused(token string, b *batch.Batch, status int) string {
	w.t.Helper()
	before := len(w.store.Booked())
	answer := w.send(token, b)
	if answer.Code != status {
		w.t.Errorf("status = %d %s, want %d", answer.Code, answer.Body, status)
	}
	if n := len(w.store.Booked()) - before; n != 0 {
		w.t.Errorf("recorded %d batches, want 0", n)
	}
	return answer.Body.String()
}

func uidNumber(n int) string { return fmt.Sprintf("%08x-1111-4222-8333-%012x", n, n) }

func pod(namespace, name, uid, node string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
		Spec:       v1.PodSpec{NodeName: node},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "main", ContainerID: "containerd://" + strings.Repeat(uid[:8], 8),
		}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func owned(kind, name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}
	}
}

func labelled(pairs ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Labels = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			p.Labels[pairs[i]] = pairs[i+1]
		}
	}
}

var errBroken = errors.New("something else broke")
