package budget

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/kube/api/v1alpha1"
)

// TestWebhooksReachOnlyWhereTheyMay: who may write a budget writes a URL, and must not make the controller ask its own
// network.
func TestWebhooksReachOnlyWhereTheyMay(t *testing.T) {
	var hits atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer server.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer secure.Close()
	w, err := newWebhooks(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(secure.URL, "https://"))
	for _, to := range []string{
		server.URL, secure.URL, "https://localhost:" + port, "https://[::1]:" + port, "https://[::ffff:127.0.0.1]:" + port, "https://0.0.0.0:" + port,
		"https://2130706433:" + port, "https://169.254.169.254/latest/meta-data", "https://[fe80::1]/", "https://[fd00:ec2::254]/", "https://10.0.0.1/",
		"https://192.168.1.1/", "https://172.16.0.1/", "https://100.100.100.200/", "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "//x", "https://", "",
	} {
		err := w.post(t.Context(), to, false, &Message{})
		if err == nil {
			t.Errorf("%s was told", to)
		}
	}
	if hits.Load() > 0 {
		t.Errorf("%d requests went through", hits.Load())
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
	w, err := newWebhooks([]string{strings.TrimPrefix(server.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	to := server.URL + "/hook?token=secret"
	sent := &Message{Key: "k", Namespace: "team", Budget: "month", At: 100, Percent: 120, Limits: &v1alpha1.BudgetLimits{EnergyKWh: new(1.0)}, Time: time.Unix(1, 0).UTC()}
	if err := w.post(t.Context(), to, false, sent); err != nil {
		t.Fatal(err)
	}
	if got.Key != "k" || got.Percent != 120 || *got.Limits.EnergyKWh != 1 || header.Get("Idempotency-Key") != "k" || header.Get("Content-Type") != "application/json" {
		t.Errorf("%+v %v", got, header)
	}
	for _, answer = range []int{http.StatusFound, http.StatusInternalServerError, http.StatusNotFound} {
		if err := w.post(t.Context(), to, false, sent); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: %v", answer, err)
		}
	}
	if redirected.Load() > 0 {
		t.Error("a redirect was followed")
	}
	server.Close()
	if err := w.post(t.Context(), to, false, sent); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a dead server: %v", err)
	}
	for _, bad := range []string{"", "http://x", "a b", "u@h"} {
		if _, err := newWebhooks([]string{bad}); err == nil {
			t.Errorf("host %q is taken", bad)
		}
	}
}

// TestOneNamespaceDoesNotKeepOthersBack: one that names a server which hangs fills its own share of the queue.
func TestOneNamespaceDoesNotKeepOthersBack(t *testing.T) {
	var n notices
	n.init()
	for range 10 * maxPerSpace {
		n.add(&notice{namespace: "greedy"})
	}
	n.add(&notice{namespace: "modest"})
	if len(n.queue) != maxPerSpace+1 {
		t.Error(len(n.queue))
	}
	for range maxPerSpace {
		n.taken(<-n.queue)
	}
	n.add(&notice{namespace: "greedy"})
	if len(n.queue) != 2 || n.count["greedy"] != 1 {
		t.Error(len(n.queue), n.count)
	}
}
