package budget

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// TestWebhooksReachOnlyWhereTheyMay verifies that the author of a budget cannot make the controller send requests
// to its own network.
func TestWebhooksReachOnlyWhereTheyMay(t *testing.T) {
	var hits atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer server.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer secure.Close()
	w, err := newWebhooks("", nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(secure.URL, "https://"))
	for _, to := range []string{
		server.URL, secure.URL, "https://localhost:" + port, "https://[::1]:" + port,
		"https://[::ffff:127.0.0.1]:" + port, "https://0.0.0.0:" + port,
		"https://2130706433:" + port, "https://169.254.169.254/latest/meta-data", "https://[fe80::1]/",
		"https://[fd00:ec2::254]/", "https://10.0.0.1/",
		"https://192.168.1.1/", "https://172.16.0.1/", "https://100.100.100.200/", "http://example.com/", "https://example.com/",
		"ftp://example.com/", "file:///etc/passwd", "//x", "https://", "",
	} {
		err := w.post(t.Context(), to, &Message{})
		if err == nil {
			t.Errorf("post(%s): expected an error", to)
		}
	}
	if hits.Load() > 0 {
		t.Errorf("got %d requests, want none", hits.Load())
	}
}

func TestWebhook(t *testing.T) {
	var got Message
	var header http.Header
	answer := http.StatusNoContent
	var redirected atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			redirected.Add(1)
		}
		body, err := io.ReadAll(r.Body)
		sum := hmac.New(sha256.New, []byte("key"))
		_, _ = sum.Write(body)
		if want := "sha256=" + hex.EncodeToString(sum.Sum(nil)); r.Header.Get("X-Kubenergy-Signature-256") != want {
			t.Errorf("got signature %q, want %q", r.Header.Get("X-Kubenergy-Signature-256"), want)
		}
		if err != nil || json.Unmarshal(body, &got) != nil {
			t.Errorf("%s: %v", body, err)
		}
		header = r.Header
		if answer == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(answer)
	}))
	defer server.Close()
	w, err := newWebhooks("", []byte("key"), []string{strings.TrimPrefix(server.URL, "http://")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	to := server.URL + "/hook?token=secret"
	sent := &Message{
		Key: "k", Namespace: "team", Budget: "month", At: 100, Percent: 120,
		Limits: &v1alpha1.BudgetLimits{EnergyKWh: new(1.0)}, Time: time.Unix(1, 0).UTC(),
	}
	if err := w.post(t.Context(), to, sent); err != nil {
		t.Fatal(err)
	}
	if got.Key != "k" || got.Percent != 120 || *got.Limits.EnergyKWh != 1 || header.Get("Idempotency-Key") != "k" ||
		header.Get("Content-Type") != "application/json" {
		t.Errorf("%+v %v", got, header)
	}
	for _, answer = range []int{http.StatusFound, http.StatusInternalServerError, http.StatusNotFound} {
		if err := w.post(t.Context(), to, sent); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: %v", answer, err)
		}
	}
	if redirected.Load() > 0 {
		t.Error("a redirect was followed")
	}
	server.Close()
	if err := w.post(t.Context(), to, sent); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a stopped server: %v", err)
	}
	for _, bad := range []string{"", "http://x", "a b", "u@h", "h:", "h:x", "h:0", "h:70000", ":80", "[]"} {
		if _, err := newWebhooks("", nil, []string{bad}, nil); err == nil {
			t.Errorf("host %q: expected an error", bad)
		}
	}
}

// TestOneNamespaceDoesNotKeepOthersBack verifies that a namespace with a slow webhook cannot fill the queue.
func TestOneNamespaceDoesNotKeepOthersBack(t *testing.T) {
	e := newWorld(t).engine("a", nil, time.Now)
	add := func(namespace string) {
		e.tasks.add(posting, &task{namespace: namespace, do: func(context.Context) {}})
	}
	queue := e.tasks.waiting[posting]
	for range 10 * maxPerNamespace {
		add("greedy")
	}
	add("modest")
	if len(queue) != maxPerNamespace+1 {
		t.Error(len(queue))
	}
	for range maxPerNamespace {
		e.runTask(t.Context(), <-queue)
	}
	add("greedy")
	if len(queue) != 2 || e.tasks.busy["posts of greedy"] != 1 {
		t.Error(len(queue), e.tasks.busy)
	}
}

// TestHostsWithoutAPort verifies that a host without a port permits only the default ports of http and https.
func TestHostsWithoutAPort(t *testing.T) {
	w, err := newWebhooks("", nil, []string{
		"Inside.example", "ported.example:8443", "10.1.2.3", "fd00::1", "[fd00::2]:9000", "secure.example:443",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]bool{
		"https://inside.example/x": true, "https://INSIDE.example:443": true, "http://inside.example": true,
		"http://inside.example:80":    true,
		"https://inside.example:8443": false, "http://inside.example:443": false, "https://inside.example:80": false,
		"http://inside.example:2379":  false,
		"https://ported.example:8443": true, "http://ported.example:8443": true, "https://ported.example": false,
		"https://ported.example:22": false,
		"http://10.1.2.3":           true, "http://10.1.2.3:6443": false, "https://[fd00::1]/": true,
		"https://[fd00::1]:6443/": false,
		"http://[fd00::2]:9000":   true, "http://[fd00::2]": false, "https://secure.example": true,
		"http://secure.example": false, "https://public.example": false,
	} {
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.allows(u); got != want {
			t.Errorf("%s: %v", to, got)
		}
	}
}

// TestHostWithoutItsPortIsRefused verifies that a running server on another port of a permitted host is not called.
func TestHostWithoutItsPortIsRefused(t *testing.T) {
	var hits atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer server.Close()
	w, err := newWebhooks(server.URL, nil, []string{"127.0.0.1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.post(t.Context(), server.URL, &Message{}); err == nil || hits.Load() > 0 {
		t.Errorf("got error %v and %d requests", err, hits.Load())
	}
	// The default URL is set by administrators and always permitted.
	if err := w.post(t.Context(), "", &Message{}); err != nil || hits.Load() != 1 {
		t.Errorf("got error %v and %d requests", err, hits.Load())
	}
}

// TestStatusKeepsNoURL verifies that the status of a budget does not contain the URL of its webhook.
func TestStatusKeepsNoURL(t *testing.T) {
	const to = "https://hooks.example/x?token=sesame"
	notify := v1alpha1.BudgetAction{At: 50, Do: v1alpha1.DeedNotify, Webhook: to}
	clock := &clockAt{monday.Add(time.Hour)}
	w := newWorld(t, newJob("j", nil), newBudget(nil, notify))
	w.used(monday, monday.Add(time.Minute), oneKWh, "team", "Job/j")
	w.fails = func(*Message) error { return errors.New("the receiver is unavailable") }
	e := w.engine("a", nil, clock.now)
	var asked []string
	e.o.deliver = func(ctx context.Context, to string, m *Message) error {
		asked = append(asked, to)
		return w.post(ctx, to, m)
	}
	e.sweepAndWork(t.Context())
	w.fails = nil
	for range 3 {
		clock.at = clock.at.Add(time.Minute)
		e.sweepAndWork(t.Context())
	}
	b := w.budget("month")
	if !slices.Equal(asked, []string{to, to}) || len(b.Status.Actions) != 1 || b.Status.Actions[0].Done == nil {
		t.Errorf("called %q with status %+v", asked, b.Status.Actions)
	}
	text, err := json.Marshal(b.Status)
	if err != nil || strings.Contains(string(text), "sesame") {
		t.Errorf("unexpected status %s, %v", text, err)
	}
}

// TestWebhookBySecret verifies that administrators can store a URL in a Secret and budgets refer to it by name.
func TestWebhookBySecret(t *testing.T) {
	var hits atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer server.Close()
	w, err := newWebhooks("", nil, nil, urls{"chat": server.URL + "/token", "key": "sesame"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.post(t.Context(), "secret:chat", &Message{}); err != nil || hits.Load() != 1 {
		t.Errorf("got error %v and %d requests", err, hits.Load())
	}
	for _, other := range []string{"secret:key", "secret:absent", "secret:"} {
		if err := w.post(t.Context(), other, &Message{}); err == nil || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v", other, err)
		}
	}
}

type urls map[string]string

func (u urls) Key(name string) (string, error) {
	if to, ok := u[name]; ok {
		return to, nil
	}
	return "", fs.ErrNotExist
}

// TestNoticesAreRetriedForADay verifies that notifications are retried for at least a day with increasing
// intervals.
//
//test:norace
func TestNoticesAreRetriedForADay(t *testing.T) {
	for _, per := range []string{v1alpha1.PerScope, v1alpha1.PerWorkload} {
		clock := &clockAt{monday.Add(time.Hour)}
		w := newWorld(t, newJob("j", nil), newBudget(func(b *v1alpha1.EnergyBudget) {
			b.Spec.Per, b.Spec.Period.Type = per, v1alpha1.PeriodLifetime
		}, do(v1alpha1.DeedNotify)...))
		w.used(monday, monday.Add(time.Minute), oneKWh, "team", "Job/j")
		var tried []time.Time
		var keys []string
		w.fails = func(m *Message) error {
			tried, keys = append(tried, clock.at), append(keys, m.Key)
			return errors.New("the receiver is unavailable")
		}
		e := w.engine("a", nil, clock.now)
		for range 30 * 12 { // for 30 hours
			e.sweepAndWork(t.Context())
			clock.at = clock.at.Add(5 * time.Minute)
		}
		if len(tried) != noticeAttempts || len(slices.Compact(keys)) != 1 {
			t.Fatalf("%s: got %d attempts", per, len(tried))
		}
		if lasted := tried[len(tried)-1].Sub(tried[0]); lasted < 24*time.Hour {
			t.Errorf("%s: retried for %v, want at least 24h", per, lasted)
		}
		for i := 1; i < len(tried); i++ {
			gap := tried[i].Sub(tried[i-1])
			if before := i - 1; gap > longestRetry+2*time.Minute ||
				before > 0 && gap < tried[before].Sub(tried[before-1]) {
				t.Errorf("%s: unexpected interval %v between attempts %d and %d", per, gap, i, i+1)
			}
		}
	}
}
