package karmada

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/test/kit"
)

// TestHostileMembers verifies that responses that would block the client or exhaust its memory exclude only the
// member that sent them.
func TestHostileMembers(t *testing.T) {
	list := func(capacity string) string {
		return fmt.Sprintf(`{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`+
			`{"metadata":{"name":"n","labels":{"commit":"7e12345"}},"status":{"capacity":{"cpu":%s}}}]}`, capacity)
	}
	answers := map[string]func(http.ResponseWriter){
		"good":     func(w http.ResponseWriter) { _, _ = io.WriteString(w, list(`"4"`)) },
		"quantity": func(w http.ResponseWriter) { _, _ = io.WriteString(w, list(`"1e-100000000"`)) },
		"number":   func(w http.ResponseWriter) { _, _ = io.WriteString(w, list(`1e100000000`)) },
		"protobuf": func(w http.ResponseWriter) { // the server ignores the Accept header
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			_, _ = io.WriteString(w, "k8s\x00")
		},
		"watched": func(w http.ResponseWriter) { _, _ = io.WriteString(w, list(`"4"`)) },
	}
	asked := make(chan string, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.Split(r.URL.Path, "/")[5]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Query().Has("watch") && name == "watched" && strings.HasSuffix(r.URL.Path, "/nodes"):
			_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"m",`+
				`"resourceVersion":"2"},"status":{"capacity":{"cpu":"1e-100000000"}}}}`)
			asked <- name
		case r.URL.Query().Has("watch"):
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/pods"):
			_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
		default:
			answers[name](w)
			asked <- name
		}
	}))
	defer server.Close()
	m := &members{config: &rest.Config{Host: server.URL}, of: map[string]*member{}}
	for name := range answers {
		if _, err := m.saw(t.Context(), &cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
		defer m.lost(name)
	}
	for _, name := range []string{"good", "watched"} {
		kit.Eventually(t, 30*time.Second, name+" has synced", m.of[name].nodes.HasSynced)
	}
	times := map[string]int{"good": 2}
	for len(times) < len(answers) || slices.Min(slices.Collect(maps.Values(times))) < 2 {
		times[<-asked]++ // a second request implies that the client did not block
	}
	for name, member := range m.of {
		nodes := 0
		if name == "good" || name == "watched" {
			nodes = 1
		}
		if got := member.nodes.GetStore().List(); len(got) != nodes || member.nodes.HasSynced() != (nodes > 0) {
			t.Errorf("%s: got %d nodes, want %d", name, len(got), nodes)
		}
	}
}

func TestLimitedResponses(t *testing.T) {
	const limit = 1 << 10
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, limit+1))
	}))
	defer server.Close()
	for path, fails := range map[string]bool{"/": true, "/?watch=true": false} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		response, err := (limited{http.DefaultTransport, limit}).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = io.ReadAll(response.Body); (err != nil) != fails {
			t.Errorf("%s: %v", path, err)
		}
		_ = response.Body.Close()
	}
}
