package surface

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRoutes lists the routes in the OpenAPI document of the controller and the routes of the agent.
func TestRoutes(t *testing.T) {
	f := facts{}
	document := ask(t, openLedger(t, filepath.Join(t.TempDir(), "ledger.db")), "/openapi/v3.json").(object)
	for path, item := range document["paths"].(object) {
		for method, operation := range item.(object) {
			f.addOperation(strings.ToUpper(method)+" "+path, operation.(object))
		}
	}
	for name, schema := range document["components"].(object)["schemas"].(object) {
		f.addSchema("schema "+name, schema.(object))
	}
	address := startAgent(t, first, "--push-url", "http://127.0.0.1:1")
	for _, route := range []string{
		"GET /", "GET /metrics", "POST /metrics", "GET /healthz", "POST /healthz",
		"GET /forward-metrics", "POST /forward-metrics",
	} {
		method, path, _ := strings.Cut(route, " ")
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		f.add("agent", route, answer.Status, answer.Header.Get("Content-Type"))
	}
	f.check(t, "routes")
}

func (f facts) addOperation(route string, o object) {
	f.add(route, text(o["description"])) // contains the required permissions
	parameters, _ := o["parameters"].([]any)
	for _, p := range parameters {
		parameter := p.(object)
		f.addSchema(route+" "+text(parameter["in"])+" "+text(parameter["name"]), parameter["schema"].(object))
	}
	if body, ok := o["requestBody"].(object); ok {
		f.addContent(route+" takes", body)
	}
	for status, answer := range o["responses"].(object) {
		f.addContent(route+" answers "+status, answer.(object))
	}
}

func (f facts) addContent(what string, o object) {
	content, _ := o["content"].(object)
	for media, described := range content {
		f.addSchema(what+" "+media, described.(object)["schema"].(object))
	}
}

// TestOldBatch verifies that a batch of an older agent and a response of an older controller are encoded
// identically after decoding.
func TestOldBatch(t *testing.T) {
	for file, again := range formats {
		data, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		if now, err := again(data); err != nil || !bytes.Equal(now, data) {
			t.Errorf("%s: encoded as\n%s\nwant\n%s\nerror: %v", file, now, data, err)
		}
	}
}

// TestOldLedger opens a ledger of the first version and queries its content. It contains 17 minutes of two metered
// nodes and an estimated one, including 2.5 minutes in the journal, and 40 decisions.
func TestOldLedger(t *testing.T) {
	file, err := os.Open("testdata/ledger.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	handler := openLedger(t, path)
	f := facts{}
	const day = "from=2026-11-03&to=2026-11-04"
	for _, q := range [][2]string{
		{"statistics", "/api/v1/ledger/statistics"}, // before a query folds the journal
		{"by node and kind", "/api/v1/ledger?groupBy=node,kind&" + day},
		{"by pod", "/api/v1/ledger?groupBy=namespace,pod&" + day},
		{"decisions", "/api/v1/decisions?snapshots=true&" + day},
		{"audit", "/api/v1/ledger/audit?from=2026-11-01"},
	} {
		answer := ask(t, handler, q[1])
		if o, ok := answer.(object); ok {
			delete(o, "bytes") // the file grows when it is opened
		}
		f.addValues(q[0], answer)
	}
	f.check(t, "ledger")
}
