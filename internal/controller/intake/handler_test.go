package intake_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/controller/intake"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func TestABatchIsBooked(t *testing.T) {
	w := newWorld(t)
	uid := uidNumber(1)
	id := strings.Repeat(uid[:8], 8)
	w.directory.Saw(pod("shop", "web-7d9f-x1", uid, "a", owned("ReplicaSet", "web-7d9f"),
		labelled("pod-template-hash", "7d9f", "kubenergy.io/team", "front")))
	b, ack := w.booked("token-a", of("a", 1, with("pod/"+uid, "pod/"+uid+"/"+id, "pod/"+uid+"/gone", "system", "vm/x",
		"cgroup/slurm/job_1")))
	for i, want := range []ledger.Consumer{
		{Key: "cgroup/slurm/job_1", Account: ledger.Account{Kind: ledger.Cgroup, Owner: "slurm/job_1"}},
		{Key: "pod/" + uid, Pod: "web-7d9f-x1", Account: ledger.Account{
			Kind: ledger.Workload, Namespace: "shop", OwnerKind: "Deployment", Owner: "web", Team: "front",
		}},
		{Key: "pod/" + uid, Pod: "web-7d9f-x1", Account: ledger.Account{
			Kind: ledger.Workload, Namespace: "shop", OwnerKind: "Deployment", Owner: "web", Team: "front",
		}},
		{Key: "pod/" + uid, Pod: "web-7d9f-x1", Account: ledger.Account{
			Kind: ledger.Workload, Namespace: "shop", OwnerKind: "Deployment", Owner: "web", Team: "front",
		}},
		{Key: "system", Account: ledger.Account{Kind: ledger.System}},
		{Key: "vm/x", Account: ledger.Account{Kind: ledger.VM, Owner: "x"}},
	} {
		if *b.Consumers[i] != want {
			t.Errorf("share %d, %s: consumer = %+v, want %+v", i, b.Batch.Shares[i].ID, *b.Consumers[i], want)
		}
	}
	if !b.Received.Equal(noon) || b.Rates.Site != "north" || b.Agentless || len(b.Consumers) != len(b.Batch.Shares) {
		t.Errorf("%+v", b)
	}
	names := ack.Names[uid]
	if len(ack.Names) != 1 || names.Namespace != "shop" || names.Pod != "web-7d9f-x1" || len(names.Containers) != 1 ||
		names.Containers[id] != "main" {
		t.Errorf("unexpected names: %+v", ack.Names)
	}
}

// 10,000 batches of senders without permission are rejected with 401 or 403, and none is recorded.
func TestForgedBatches(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	sum := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
	if err := os.WriteFile(file,
		[]byte("hosts: [{node: h1, tokenSHA256: "+sum("token-of-h1")+"}, {node: h2, tokenSHA256: "+sum(
			"token-of-h2")+"}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	hosts, err := access.NewHostTokens(file, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *intake.Config) { c.Agents = hosts })
	status := func(name string, audience []string, nodes ...string) authenticationv1.TokenReviewStatus {
		s := authenticationv1.TokenReviewStatus{
			Authenticated: true, Audiences: audience, User: authenticationv1.UserInfo{Username: name},
		}
		if nodes != nil {
			s.User.Extra = map[string]authenticationv1.ExtraValue{access.NodeClaim: nodes}
		}
		return s
	}
	ours := []string{access.Audience}
	w.tokens["no-claim"] = status(agentUser, ours)
	w.tokens["two-claims"] = status(agentUser, ours, "b", "a")
	w.tokens["wrong-audience"] = status(agentUser, []string{"https://kubernetes.default.svc"}, "b")
	w.tokens["other-account"] = status("system:serviceaccount:shop:kubenergy-agent", ours, "b")
	w.tokens["a-person"] = status("jane", ours)
	w.tokens["kubelet"] = status("system:node:b", ours, "b")
	w.tokens["nameless"] = status("", ours, "b")
	tokens := []string{
		"token-a", "token-c", "token-of-h1", "token-of-h2", "no-claim", "two-claims", "wrong-audience", "other-account",
		"a-person", "kubelet", "nameless", "expired", "", "token-b ",
		sum("token-of-h1"),
	}
	codes := map[int]int{}
	for i := range 10_000 {
		token := tokens[i%len(tokens)]
		b := of("b", uint64(i+1))
		switch {
		case token == "token-b ":
			token, b.Stream.Node = "token-b", "B" // names are case-sensitive
		case i%3 == 1:
			b.Stream.Node = "h3"
		case i%3 == 2 && token == "token-of-h1":
			b.Stream.Node = "h2"
		}
		r := post(token, bytes.NewReader(w.encoded(b)), "")
		r.RemoteAddr = fmt.Sprintf("192.0.%d.%d:1", i/200%200, i%200)
		answer := w.do(r)
		if codes[answer.Code]++; answer.Code != http.StatusUnauthorized && answer.Code != http.StatusForbidden {
			t.Fatalf("token %q, node %s: unexpected response %d %s", token, b.Stream.Node, answer.Code, answer.Body)
		}
	}
	if n := len(w.store.Booked()); n != 0 {
		t.Errorf("recorded %d batches, want 0", n)
	}
	if log := w.logged.String(); !strings.Contains(log, "Rejected batch of another node") ||
		strings.Count(log, "\n") > 100 {
		t.Errorf("logged %d lines, want some and at most 100", strings.Count(log, "\n"))
	}
	for _, secret := range []string{"token-a", "token-of-h1", sum("token-of-h1")} {
		if strings.Contains(w.logged.String(), secret) {
			t.Error("the log contains a token")
		}
	}
	w.booked("token-b", of("b", 1))
	w.booked("token-of-h1", of("h1", 1))
	t.Logf("10,000 forged batches: status codes %v, 0 recorded", codes)
}

// 10,000 batches that are sent again are acknowledged and change nothing.
//
//test:norace
func TestReplays(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*intake.Config)
		times  int
	}{
		"a ledger with progress": {func(*intake.Config) {}, 10_000},
		"a ledger without":       {func(c *intake.Config) { c.Ledger = forgetful{c.Ledger.(*world)} }, 1000},
	} {
		w := newWorld(t, c.change)
		const streams, each = 10, 20
		var bodies [][]byte
		for s := range streams {
			for n := range each {
				b := of("a", uint64(n+1), func(b *batch.Batch) { b.Stream.Boot = fmt.Sprint("boot", s) })
				w.booked("token-a", b)
				bodies = append(bodies, zip(w.encoded(b)))
			}
		}
		for i := range c.times {
			if i%1000 == 999 {
				w.restart(c.change)
			}
			answer := w.do(post("token-a", bytes.NewReader(bodies[i%len(bodies)]), "gzip"))
			ack, err := batch.DecodeAck(answer.Body.Bytes())
			if answer.Code != http.StatusOK || err != nil || ack.Acked != each {
				t.Fatalf("%s: replay %d: unexpected response %d %s", name, i, answer.Code, answer.Body)
			}
		}
		if n := len(w.store.Booked()); n != streams*each {
			t.Errorf("%s: recorded %d batches, want %d", name, n, streams*each)
		}
	}
}

// A recorded batch is acknowledged even if it would be rejected now.
func TestReplaysComeFirst(t *testing.T) {
	w := newWorld(t)
	w.booked("token-a", of("a", 1))
	w.limits["a"] = intake.Limits{MaxPower: 1}
	w.restart()
	w.refused("token-a", of("a", 2), http.StatusUnprocessableEntity)
	if answer := w.send("token-a", of("a", 1)); answer.Code != http.StatusOK {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	w.refused("token-b", of("a", 1), http.StatusForbidden) // but not for other senders
}

func TestStatuses(t *testing.T) {
	w := newWorld(t)
	w.booked("token-a", of("a", 1))
	w.booked("token-a", of("a", 2))
	// partly recorded
	w.refused("token-a", of("a", 2, func(b *batch.Batch) { b.Last = 5 }), http.StatusConflict)
	w.refused("token-a", of("a", 1, func(b *batch.Batch) { b.Stream.Epoch = "other" }), http.StatusConflict) // overlaps
	// impossible energy
	w.refused("token-a", of("a", 3, joules(1e6)), http.StatusUnprocessableEntity)
	w.booked("token-a", of("a", 4)) // a gap
	fails := map[int]error{503: fmt.Errorf("booking: %w", ledger.ErrReadOnly), 500: errBroken, 422: ledger.ErrInvalid}
	for status, err := range fails {
		w.fail = err
		w.refused("token-a", of("a", 5), status)
	}
	w.fail = fmt.Errorf("booking: %w", context.DeadlineExceeded)
	w.refused("token-a", of("a", 5), http.StatusServiceUnavailable)
	w.fail = nil

	body := func() io.Reader { return bytes.NewReader(w.encoded(of("a", 5))) }
	zipped := zip(w.encoded(of("a", 5)))
	for name, c := range map[string]struct {
		request *http.Request
		status  int
	}{
		"GET": {func() *http.Request {
			r := post("token-a", body(), "")
			r.Method = http.MethodGet
			return r
		}(), 405},
		"no content type": {func() *http.Request {
			r := post("token-a", body(), "")
			r.Header.Del("Content-Type")
			return r
		}(), 415},
		"text": {func() *http.Request {
			r := post("token-a", body(), "")
			r.Header.Set("Content-Type", "text/plain")
			return r
		}(), 415},
		"brotli":        {post("token-a", body(), "br"), 415},
		"gzip twice":    {post("token-a", body(), "gzip, gzip"), 415},
		"no gzip":       {post("token-a", body(), "gzip"), 400},
		"two members":   {post("token-a", bytes.NewReader(append(bytes.Clone(zipped), zip(nil)...)), "gzip"), 400},
		"trailing data": {post("token-a", bytes.NewReader(append(bytes.Clone(zipped), 0)), "gzip"), 400},
		"cut":           {post("token-a", bytes.NewReader(zipped[:len(zipped)-9]), "gzip"), 400},
		"a bad checksum": {post("token-a", bytes.NewReader(append(bytes.Clone(zipped[:len(zipped)-8]), 1, 2, 3, 4, 5,
			6, 7, 8)), "gzip"), 400},
		"empty":    {post("token-a", http.NoBody, ""), 422},
		"no batch": {post("token-a", strings.NewReader("{}"), ""), 422},
		"not conserved": {post("token-a", strings.NewReader(strings.Replace(string(w.encoded(of("a", 5))),
			`"idle":500`, `"idle":501`, 1)), ""), 422},
		"unknown field": {post("token-a", strings.NewReader(strings.Replace(string(w.encoded(of("a", 5))),
			`"version"`, `"mood":1,"version"`, 1)), ""), 422},
	} {
		if answer := w.do(c.request); answer.Code != c.status {
			t.Errorf("%s: status = %d %s, want %d", name, answer.Code, answer.Body, c.status)
		}
	}
	if answer := w.do(post("token-a", body(), "")); answer.Code != http.StatusOK {
		t.Errorf("uncompressed: status = %d, want 200", answer.Code)
	}
}

func TestNotReady(t *testing.T) {
	ready := false
	w := newWorld(t, func(c *intake.Config) { c.Ready = func() bool { return ready } })
	w.refused("token-a", of("a", 1), http.StatusServiceUnavailable)
	w.refused("wrong", of("a", 1), http.StatusUnauthorized)
	ready = true
	w.booked("token-a", of("a", 1))
}

// zeros is a reader of a number of zero bytes.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	n := int(min(int64(len(p)), z.left))
	clear(p[:n])
	if z.left -= int64(n); n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

//test:norace
func TestBombs(t *testing.T) {
	const maxCompressed = 8 << 20
	w := newWorld(t)
	var big bytes.Buffer
	zipInto(&big, &zeros{1 << 26})
	empty := bytes.Repeat(zip(nil), maxCompressed/len(zip(nil))+1) // a long series of empty gzip members
	shares := []byte(`{"shares":[` + strings.Repeat("{},", 1<<20) + `{}]}`)
	deep := []byte(strings.Repeat("[", 2<<20))
	long := []byte(`{"version":"` + strings.Repeat("x", 4<<20))
	before := heap()
	for name, c := range map[string]struct {
		body     io.Reader
		encoding string
		status   int
	}{
		"zeros":                 {bytes.NewReader(big.Bytes()), "gzip", 413},
		"many members":          {bytes.NewReader(empty[:len(empty)-100]), "gzip", 400},
		"large, not compressed": {&zeros{1 << 30}, "", 413},
		"large Content-Length":  {bytes.NewReader(make([]byte, 17<<20)), "", 413},
		"a million shares":      {bytes.NewReader(zip(shares)), "gzip", 422},
		"brackets":              {bytes.NewReader(zip(deep)), "gzip", 422},
		"a long text":           {bytes.NewReader(zip(long)), "gzip", 422},
		"exactly 16 MiB":        {bytes.NewReader(zip(make([]byte, batch.MaxBytes))), "gzip", 422},
		"a byte more":           {bytes.NewReader(zip(make([]byte, batch.MaxBytes+1))), "gzip", 413},
	} {
		began := time.Now()
		if answer := w.do(post("token-a", c.body, c.encoding)); answer.Code != c.status {
			t.Errorf("%s: status = %d %.200s, want %d", name, answer.Code, answer.Body, c.status)
		}
		t.Logf("%s: %v", name, time.Since(began))
	}
	if grew := int64(heap()) - int64(before); grew > 64<<20 {
		t.Errorf("heap grew by %d MiB, want at most 64", grew>>20)
	}
	// Concurrent requests stay within the memory limit together.
	var wg sync.WaitGroup
	many := 24
	codes := make(chan int, many)
	for i := range many {
		w.mu.Lock()
		node := fmt.Sprint("n", i)
		w.agent(node)
		w.mu.Unlock()
		wg.Go(func() {
			answer := httptest.NewRecorder()
			w.handler.ServeHTTP(answer, post("token-"+node, bytes.NewReader(big.Bytes()), "gzip"))
			codes <- answer.Code
		})
	}
	wg.Wait()
	close(codes)
	for code := range codes {
		if code != 413 && code != 503 {
			t.Errorf("one of many bombs: status = %d, want 413 or 503", code)
		}
	}
	w.booked("token-a", of("a", 1))
}

func zipInto(w io.Writer, r io.Reader) {
	z := gzip.NewWriter(w)
	_, _ = io.Copy(z, r)
	_ = z.Close()
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A slow client loses its slot and does not delay others.
func TestSlowBodies(t *testing.T) {
	w := newWorld(t, func(c *intake.Config) { c.ReadTimeout = 200 * time.Millisecond })
	s := httptest.NewServer(w.handler)
	defer s.Close()
	connections := make([]net.Conn, 0, 3)
	for range 3 {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		connections = append(connections, c)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-a\r\nContent-Type: "+
			"application/json\r\nContent-Length: 1000\r\n\r\n{", path)
	}
	w.booked("token-b", of("b", 1))
	for _, c := range connections {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408") {
			t.Errorf("response = %.60s, %v, want 408", answer, err)
		}
	}
	w.booked("token-a", of("a", 1))
}

// A batch that is sent over many connections at the same time is recorded once. All other requests are acknowledged
// or must be retried.
func TestTheSameBatchAtOnce(t *testing.T) {
	w := newWorld(t)
	for n := range uint64(20) {
		data := zip(w.encoded(of("a", n+1)))
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				answer := httptest.NewRecorder()
				w.handler.ServeHTTP(answer, post("token-a", bytes.NewReader(data), "gzip"))
				if answer.Code != http.StatusOK && answer.Code != http.StatusServiceUnavailable {
					t.Errorf("%d %s", answer.Code, answer.Body)
				}
			})
		}
		wg.Wait()
		if got := len(w.store.Booked()); got > int(n)+1 {
			t.Fatalf("recorded %d batches, want at most %d", got, n+1)
		}
		if answer := w.send("token-a", of("a", n+1)); answer.Code != http.StatusOK {
			t.Fatal(answer.Code)
		}
	}
	if got := len(w.store.Booked()); got != 20 {
		t.Errorf("recorded %d batches, want 20", got)
	}
}

// The size of an acknowledgement is limited, however many names there are.
func TestNamesOfManyPods(t *testing.T) {
	w := newWorld(t)
	var ids []string
	for i := range batch.MaxShares {
		uid := uidNumber(i)
		w.directory.Saw(pod("a-namespace-with-a-long-name", fmt.Sprintf("%s-%d", strings.Repeat("n", 60), i), uid, "a"))
		ids = append(ids, "pod/"+uid+"/"+strings.Repeat(uid[:8], 8))
	}
	_, ack := w.booked("token-a", of("a", 1, with(ids...), lasting(time.Hour)))
	if n := len(ack.Names); n < 2000 || n > batch.MaxShares {
		t.Errorf("%d names", n)
	}
}

func TestLocal(t *testing.T) {
	w := newWorld(t)
	b := of("z", 1, func(b *batch.Batch) { b.SetWall(noon.Add(time.Hour)) })
	before := *b
	if err := w.handler.Local(t.Context(), b, true); err != nil {
		t.Fatal(err)
	}
	if b.End != before.End || b.Parent != before.Parent {
		t.Error("the batch of the caller was modified")
	}
	booked := w.store.Booked()
	if len(booked) != 1 || !booked[0].Agentless || !booked[0].Batch.End.Equal(noon) {
		t.Errorf("%+v", booked)
	}
	if err := w.handler.Local(t.Context(), b, true); err != nil || len(w.store.Booked()) != 1 {
		t.Errorf("again: error = %v, recorded %d batches", err, len(w.store.Booked()))
	}
	is := func(err error) string {
		for name, target := range map[string]error{
			"refused": intake.ErrRefused, "overlap": ledger.ErrOverlap, "read only": ledger.ErrReadOnly,
		} {
			if errors.Is(err, target) {
				return name
			}
		}
		return fmt.Sprint(err)
	}
	if got := is(w.handler.Local(t.Context(), of("z", 2, joules(1e9)), false)); got != "refused" {
		t.Error(got)
	}
	if got := is(w.handler.Local(t.Context(), of("z", 2, func(b *batch.Batch) { b.Measured++ }),
		false)); got != "refused" {
		t.Error(got)
	}
	if err := w.handler.Local(t.Context(), of("z", 5), false); err != nil {
		t.Error(err)
	}
	if got := is(w.handler.Local(t.Context(), of("z", 5, func(b *batch.Batch) { b.Stream.Epoch = "o" }),
		false)); got != "overlap" {
		t.Error(got)
	}
	w.fail = ledger.ErrReadOnly
	if got := is(w.handler.Local(t.Context(), of("z", 3), false)); got != "read only" {
		t.Error(got)
	}
}

func FuzzHandler(f *testing.F) {
	w := newWorld(f)
	w.logged = &lockedBuffer{}
	plain := w.encoded(of("a", 1, with("pod/"+uidNumber(1)+"/c", "vm/x", "system")))
	f.Add(plain, false)
	f.Add(zip(plain), true)
	f.Add([]byte("{}"), false)
	f.Add([]byte{0x1f, 0x8b, 8, 0}, true)
	f.Fuzz(func(t *testing.T, body []byte, zipped bool) {
		defer memtest.Limit(t, 100*len(body))()
		encoding := ""
		if zipped {
			encoding = "gzip"
		}
		w.t = t
		if answer := w.do(post("token-a", bytes.NewReader(body), encoding)); answer.Code >= 500 {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
		for _, b := range w.store.Booked() {
			if b.Batch.Stream.Node != "a" || b.Batch.Measured > energy.Microjoules(1e18) {
				t.Errorf("unexpected booking: %+v", b.Batch)
			}
		}
		if len(w.store.Booked()) > 100 {
			w.store = &ledgertest.Store{}
			w.restart()
		}
	})
}

// A node that sends decompression bombs is throttled soon, and other nodes are not.
func TestBombsAreCharged(t *testing.T) {
	w := newWorld(t)
	gate := access.NewGate(access.Options{Tokens: w, Now: w.clock, Log: slog.New(slog.DiscardHandler)})
	w.restart(func(c *intake.Config) { c.Gate = gate })
	bomb := zip(make([]byte, batch.MaxBytes+1))
	codes := map[int]int{}
	for range 100 {
		codes[w.do(post("token-a", bytes.NewReader(bomb), "gzip")).Code]++
	}
	if codes[413] > 3 || codes[429] < 97 {
		t.Errorf("100 bombs: %v", codes)
	}
	for n := range 300 { // as after the controller was unavailable for an hour
		w.booked("token-b", of("b", uint64(n+1)))
	}
}

// Energy that no pod of a sleeping or booting machine used is recorded separately from the energy of idle machines.
func TestEnergyOfSleep(t *testing.T) {
	states := map[string]string{"a": "asleep", "b": "booting", "c": "stopping"}
	w := newWorld(t, func(c *intake.Config) { c.Power = func(node string) string { return states[node] } })
	for node, want := range map[string]ledger.Kind{"a": ledger.Asleep, "b": ledger.Booting, "c": ledger.Idle} {
		booking, _ := w.booked("token-"+node, of(node, 1, joules(100)))
		for p := range booking.Postings() {
			if p.Consumer.Account.Kind != want || p.Amount.Energy() != 100e6 {
				t.Errorf("%s: %+v", node, p)
			}
		}
	}
}
