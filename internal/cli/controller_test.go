package cli

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/test/kit"
)

// fakeUnit is a fake controller, reachable directly and through the proxy of an API server.
type fakeUnit struct {
	server *httptest.Server

	mu       sync.Mutex
	asked    []string       // requested paths with queries
	tokens   map[string]int // number of requests by token
	made     int            // number of created tokens
	answers  map[string]any // responses by path; may be func(*http.Request) any
	refuse   map[string]int // status by path
	noTokens bool           // TokenRequests are forbidden
	onlyIn   string         // TokenRequests are only allowed in this namespace
}

// refusal is an error response.
type refusal struct {
	status int
	text   string
}

const proxyPath = "/api/v1/namespaces/kubenergy-system/services/https:kubenergy-controller:api/proxy"

func newFakeController(t *testing.T) *fakeUnit {
	t.Helper()
	c := &fakeUnit{tokens: map[string]int{}, answers: map[string]any{}, refuse: map[string]int{}}
	c.server = httptest.NewUnstartedServer(c)
	c.server.Config.ErrorLog = log.New(io.Discard, "", 0) // hides errors of clients that do not trust the certificate
	c.server.StartTLS()
	t.Cleanup(c.server.Close)
	return c
}

func (c *fakeUnit) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Date", testNow.Format(http.TimeFormat))
	w.Header().Set("Content-Type", "application/json")
	say := func(status int, what any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(what)
	}
	object := func(status int, text string) {
		say(status, map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": text,
			"reason": strings.ReplaceAll(http.StatusText(status), " ", ""),
		})
	}
	if strings.HasSuffix(q.URL.Path, "/serviceaccounts/kubenergy-viewer/token") {
		body, _ := io.ReadAll(q.Body)
		read, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil) // clients may use any encoding
		request, ok := read.(*authenticationv1.TokenRequest)
		if c.noTokens || !strings.Contains(q.URL.Path, "/namespaces/"+c.onlyIn) {
			object(403, "access denied")
			return
		}
		if !ok || !slices.Equal(request.Spec.Audiences, []string{"kubenergy"}) ||
			*request.Spec.ExpirationSeconds != 600 {
			object(400, fmt.Sprint("unexpected request ", request, err))
			return
		}
		c.made++
		say(201, map[string]any{
			"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
			"status": map[string]any{"token": "made", "expirationTimestamp": testNow},
		})
		return
	}
	path, proxied := strings.CutPrefix(q.URL.Path, proxyPath)
	token := q.Header.Get("X-Kubenergy-Token")
	if !proxied {
		token = strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
	}
	c.tokens[token]++
	c.asked = append(c.asked, path+"?"+q.URL.RawQuery)
	if status := c.refuse["proxy"]; status != 0 {
		object(status, "services \"https:kubenergy-controller:api\" access denied")
		return
	}
	if status := c.refuse[path]; status != 0 {
		say(status, api.Error{Error: "missing permission list energy"})
		return
	}
	switch answer := c.answers[path].(type) {
	case nil:
		say(404, api.Error{Error: "not found"})
	case func(*http.Request) any:
		switch what := answer(q).(type) {
		case refusal:
			say(what.status, api.Error{Error: what.text})
		default:
			say(200, what)
		}
	default:
		say(200, answer)
	}
}

// how sets the credentials of a kubeconfig.
type how func(*clientcmdapi.AuthInfo)

func withToken(a *clientcmdapi.AuthInfo) { a.Token = "secret" }

func withNothing(*clientcmdapi.AuthInfo) {}

// run runs a command line with a kubeconfig of this server.
func (c *fakeUnit) run(t *testing.T, auth how, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return runWithController(t, append(args, "--kubeconfig", c.kubeconfig(t, auth))...)
}

// kubeconfig writes a kubeconfig of this server.
func (c *fakeUnit) kubeconfig(t *testing.T, auth how) (path string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw})
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: c.server.URL, CertificateAuthorityData: authority}
	info := &clientcmdapi.AuthInfo{}
	auth(info)
	config.AuthInfos["test"] = info
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test", Namespace: "home"}
	config.CurrentContext = "test"
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func runWithController(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, cmdutil.Terminal{
		Name: "kubenergy", Env: []string{"NO_COLOR=1"}, Out: &out, Err: &err, Now: func() time.Time { return testNow },
	})
	return code, out.String(), err.String()
}

func (c *fakeUnit) draw() {
	at := func(ago time.Duration) time.Time { return testNow.Add(-ago) }
	c.answers["/api/v1/nodes/power"] = api.NodesPower{Nodes: []api.NodePower{
		{
			Node: "a", Watts: 120.25, AsOf: at(10 * time.Second), Quality: energy.Measured, Source: "psys (rapl)",
			Temperature: sched.Heat{Celsius: 61.5, Limit: 85, AsOf: at(time.Minute)},
		},
		{
			Node: "b", Watts: 310, AsOf: at(100 * time.Second), Quality: energy.Estimated, Source: "profile",
			Implausible: true, Temperature: sched.Heat{Celsius: 91, Limit: 85, AsOf: at(time.Minute), Hot: true},
		},
		{Node: "c", Watts: 9, AsOf: at(45 * time.Second), Quality: energy.Derived, Source: "evil\x1b[2J"},
		{Node: "d", Watts: 5, AsOf: at(10 * time.Second), Quality: energy.Estimated, Source: "model", PowerState: "asleep"},
		{Node: "e", Host: "a", Watts: 40, AsOf: at(10 * time.Second), Quality: energy.Derived, Source: "guest"},
	}}
	pods := api.PodsPower{Pods: []api.PodPower{
		{
			Namespace: "shop", Pod: "web-0", UID: "1", Node: "a", OwnerKind: "StatefulSet", Owner: "web", Watts: 12.5,
			IdleWatts: 2, AsOf: at(5 * time.Second), Quality: energy.Derived, Source: "psys (rapl)",
		},
		{
			Namespace: "home", UID: "2", Node: "b", Watts: 30, AsOf: at(2 * time.Minute), Quality: energy.Estimated,
			Source: "requests",
		},
	}}
	c.answers["/api/v1/pods"] = pods
	c.answers["/api/v1/namespaces/shop/pods"] = api.PodsPower{Pods: pods.Pods[:1]}
	c.answers["/api/v1/namespaces/home/pods"] = api.PodsPower{Pods: pods.Pods[1:]}
}

func TestTop(t *testing.T) {
	c := newFakeController(t)
	c.draw()
	power := c.answers["/api/v1/nodes/power"].(api.NodesPower)
	power.Members = []api.NodePower{{Node: "alpha/a", Watts: 77, AsOf: testNow, Quality: energy.Measured, Source: "psys"}}
	c.answers["/api/v1/nodes/power"] = power
	var all strings.Builder
	for _, args := range [][]string{
		{"top", "nodes"},
		{"top", "nodes", "--sort", "age", "-o", "csv"},
		{"top", "nodes", "-o", "json", "--sort", "name"},
		{"top", "pods"},
		{"top", "pods", "-n", "shop"},
		{"top", "pods", "-A", "--sort", "name"},
	} {
		code, stdout, stderr := c.run(t, withToken, args...)
		if code != 0 || stderr != "" {
			t.Fatalf("%v: exit code %d, %s", args, code, stderr)
		}
		fmt.Fprintf(&all, "$ kubenergy %s\n%s\n", strings.Join(args, " "), stdout)
	}
	golden(t, "top.golden", all.String())
	if c.tokens["made"] != 6 || len(c.tokens) != 1 {
		t.Errorf("unexpected tokens %v", c.tokens)
	}
	c.answers["/api/v1/nodes/power"] = api.NodesPower{}
	if code, stdout, stderr := c.run(t, withToken, "top", "nodes"); code != 0 || stdout != "" ||
		!strings.Contains(stderr, "No power readings of nodes") {
		t.Errorf("without nodes: exit code %d, %q, %q", code, stdout, stderr)
	}
	c.answers["/api/v1/pods"] = api.PodsPower{}
	if code, _, stderr := c.run(t, withToken, "top", "pod", "-A"); code != 0 ||
		!strings.Contains(stderr, "No power readings of pods exist yet. Estimates appear about a minute") {
		t.Errorf("without pods, in the singular: exit code %d, %q", code, stderr)
	}
}

// Only a token that is limited to the controller is sent to it. The user's own token, which grants access to the
// whole cluster, is never sent.
func TestWhoAsks(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "login")
	const answer = `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"told"}}`
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho '"+answer+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		how  how
		unix bool
	}{
		{"a token", withToken, false},
		{"a password", func(a *clientcmdapi.AuthInfo) { a.Username, a.Password = "u", "p" }, false},
		{"no credentials", withNothing, false},
		{
			"an impersonated user", func(a *clientcmdapi.AuthInfo) { a.Token, a.Impersonate = "secret", "jane" },
			false,
		},
		{"a program", func(a *clientcmdapi.AuthInfo) {
			a.Exec = &clientcmdapi.ExecConfig{
				Command: program, APIVersion: "client.authentication.k8s.io/v1",
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.unix && runtime.GOOS == "windows" {
				t.Skip("the program is a shell script")
			}
			c := newFakeController(t)
			c.draw()
			code, _, stderr := c.run(t, tc.how, "top", "nodes")
			if code != 0 || c.tokens["made"] != 1 || len(c.tokens) != 1 {
				t.Errorf("exit code %d, %s; unexpected tokens %v", code, stderr, c.tokens)
			}
			clear(c.tokens)
			c.onlyIn = "home/"
			code, _, stderr = c.run(t, tc.how, "top", "nodes")
			if code != 0 || c.tokens["made"] != 1 || len(c.tokens) != 1 {
				t.Errorf("in its own namespace: exit code %d, %s; unexpected tokens %v", code, stderr, c.tokens)
			}
			clear(c.tokens)
			c.noTokens = true
			code, _, stderr = c.run(t, tc.how, "top", "nodes")
			if code != 1 || len(c.tokens) != 0 || !strings.Contains(stderr, "docs/reference/reports.md") {
				t.Errorf("without permission: exit code %d, %s; unexpected tokens %v", code, stderr, c.tokens)
			}
		})
	}
}

// For a report about one namespace, the account of that namespace is used regardless of the kubeconfig's namespace.
func TestTokenOfTheNamespaceAskedAbout(t *testing.T) {
	c := newFakeController(t)
	c.history(t)
	c.onlyIn = "shop/"
	c.answers["/api/v1/namespaces/shop/ledger"] = c.answers["/api/v1/ledger"]
	if code, _, stderr := c.run(t, withToken, "report", "-n", "shop"); code != 0 || c.tokens["made"] == 0 {
		t.Errorf("exit code %d, %s; unexpected tokens %v", code, stderr, c.tokens)
	}
	for _, args := range [][]string{{"report"}, {"report", "-n", "shop,home"}, {"report", "-n", "home"}} {
		if code, _, stderr := c.run(t, withToken, args...); code != 1 || !strings.Contains(stderr, "not allowed to create a token") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}

func TestDirectly(t *testing.T) {
	c := newFakeController(t)
	c.draw()
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(token, []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := runWithController(t, "top", "nodes", "--server", c.server.URL+"/", "--token-file", token,
		"--ca-file", ca)
	if code != 0 || !strings.Contains(stdout, "120.2") || c.tokens["mine"] != 1 {
		t.Errorf("exit code %d, %s%s, tokens %v", code, stdout, stderr, c.tokens)
	}
	// Without a token file, a token is requested.
	code, _, stderr = c.run(t, withToken, "top", "nodes", "--server", c.server.URL, "--ca-file", ca)
	if code != 0 || c.tokens["made"] != 1 || c.tokens["secret"] != 0 {
		t.Errorf("exit code %d, %s, tokens %v", code, stderr, c.tokens)
	}
	code, _, stderr = runWithController(t, "top", "nodes", "--server", c.server.URL, "--token-file", token)
	if code != 1 || !strings.Contains(stderr, "cannot be reached") || strings.Contains(stderr, "mine") {
		t.Errorf("with an untrusted certificate: exit code %d, %s", code, stderr)
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(*fakeUnit)
		how  how
		want string
	}{
		{
			"not installed", func(c *fakeUnit) { c.refuse["proxy"] = 404 }, withToken,
			"is not installed: there is no service kubenergy-controller in namespace kubenergy-system",
		},
		{
			"not running", func(c *fakeUnit) { c.refuse["proxy"] = 503 }, withToken,
			"cannot reach the controller, set --server to its address",
		},
		{
			"proxy forbidden", func(c *fakeUnit) { c.refuse["proxy"] = 403 }, withToken,
			"request the permission to get services/proxy of https:kubenergy-controller:api",
		},
		{
			"no right", func(c *fakeUnit) { c.refuse["/api/v1/nodes/power"] = 403 }, withToken,
			"the controller denied the request: missing permission list energy",
		},
		{
			"no such token", func(c *fakeUnit) { c.refuse["/api/v1/nodes/power"] = 401 }, withToken,
			"rejected the token",
		},
		{
			"too old", func(c *fakeUnit) { delete(c.answers, "/api/v1/nodes/power") }, withToken,
			"it is too old for this command",
		},
		{"not ready", func(c *fakeUnit) { c.refuse["/api/v1/nodes/power"] = 503 }, withToken, "is not ready"},
		{
			"token request denied", func(c *fakeUnit) { c.noTokens = true }, withNothing,
			"the permission to create serviceaccounts/token of kubenergy-viewer",
		},
		{"nonsense", func(c *fakeUnit) { c.answers["/api/v1/nodes/power"] = []int{1} }, withToken, "decoding the response"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newFakeController(t)
			c.draw()
			tc.set(c)
			code, stdout, stderr := c.run(t, tc.how, "top", "nodes")
			if code != 1 || stdout != "" || !strings.Contains(stderr, tc.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, got error %q, want %q", code, stderr, tc.want)
			}
		})
	}
}

// history sets up a ledger with three jobs placed by two strategies, one of them held, and the decisions.
func (c *fakeUnit) history(t *testing.T) {
	t.Helper()
	begin := testNow.Add(-24 * time.Hour).Truncate(time.Hour)
	row := func(key []string, kWh, intensity float64, last time.Time) ledger.Row {
		r := ledger.Row{Key: key, First: begin, Last: last}
		r.Dynamic, r.Facility = energy.Microjoules(kWh*3e12), energy.Microjoules(kWh*3.6e12)
		r.Emit("average", ledger.Micrograms(kWh*intensity*1e6))
		r.Charge("EUR", ledger.Nanos(kWh*0.25*1e9))
		return r
	}
	end := begin.Add(6 * time.Hour)
	answers := map[string][]ledger.Row{
		"strategy": {
			row([]string{""}, 40, 380, end), row([]string{"carbon"}, 3, 200, end),
			row([]string{"energy"}, 1, 400, end),
		},
		"namespace": {row([]string{"home"}, 4, 250, end), row([]string{"shop"}, 40, 380, end)},
		"uid": {
			row([]string{"uid-a"}, 2, 200, begin.Add(2*time.Hour)), row([]string{"uid-b"}, 1, 200, end),
			row([]string{"uid-c"}, 1, 400, begin.Add(time.Hour)),
		},
		"namespace,owner": {},
		"site,hour":       {},
	}
	for i := range 8 {
		intensity := 400.0
		if i >= 4 {
			intensity = 200
		}
		answers["site,hour"] = append(answers["site,hour"],
			row([]string{"de", begin.Add(time.Duration(i) * time.Hour).Format(time.RFC3339)}, 5, intensity, end))
	}
	sums := func(q *http.Request) any {
		by := strings.Join(q.URL.Query()["groupBy"], ",")
		a := &ledger.Answer{
			From: begin, To: testNow, AsOf: testNow.Add(-time.Minute), Resolution: time.Hour, Rows: answers[by],
		}
		for d := range strings.SplitSeq(by, ",") {
			a.GroupBy = append(a.GroupBy, ledger.Dimension(d))
		}
		for i := range a.Rows {
			a.Total.Include(&a.Rows[i])
		}
		return a
	}
	records := []ledger.Record{
		recorded(t, "place", "c", begin, "thrifty", "energy"), recorded(t, "place", "a", begin, "thrifty", "carbon"),
		recorded(t, "hold", "b", begin, "", "carbon+window"),
		recorded(t, "place", "b", begin.Add(5*time.Hour), "thrifty", "carbon"),
		{
			ID: "none", Action: "place", At: begin, Namespace: "home", OwnerKind: "Job", Owner: "d", UID: "uid-d",
			Strategy: "carbon", Node: "thrifty",
		},
	}
	decisions := func(q *http.Request) any {
		to, err := time.Parse(time.RFC3339, q.URL.Query().Get("to"))
		if err != nil {
			t.Error(err)
		}
		var page []ledger.Record // two per page, newest first
		for _, i := range []int{3, 0, 1, 2, 4} {
			if records[i].At.Before(to) {
				page = append(page, records[i])
			}
		}
		return map[string]any{"decisions": page}
	}
	for _, prefix := range []string{"/api/v1/", "/api/v1/namespaces/home/"} {
		c.answers[prefix+"ledger"], c.answers[prefix+"decisions"] = sums, decisions
	}
}

// recorded returns a decision between a thrifty node and a wasteful one, which requires 50 % more energy.
func recorded(t *testing.T, action, name string, at time.Time, node, strategy string) ledger.Record {
	t.Helper()
	series, err := grid.Constant(at.Add(-time.Hour), 48*time.Hour, 300)
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "de", Carbon: grid.Signal{Series: series}}
	ten := sched.Resources{MilliCPU: 10000, Memory: 64 << 30}
	s := &sched.Snapshot{
		Now: at, Sites: []*sched.Site{site},
		Nodes: []*sched.Node{
			{
				Name: "thrifty", Site: site, Jobs: 1, Capacity: ten,
				Free:    sched.Resources{MilliCPU: 5000, Memory: 32 << 30},
				Profile: &energy.Profile{Idle: 100, Max: 2100, Sleep: 100},
			},
			{
				Name: "wasteful", Site: site, Jobs: 1, Capacity: ten, Free: ten,
				Profile: &energy.Profile{Idle: 100, Max: 3100, Sleep: 100},
			},
		},
		Queue: []sched.Job{{
			ID: "home/" + name, Submitted: at.Add(-time.Minute), Duration: time.Hour,
			Request: sched.Resources{MilliCPU: 5000, Memory: 1 << 30},
		}},
	}
	data, err := codec.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return ledger.Record{
		ID: action + name, Action: action, At: at, Namespace: "home", OwnerKind: "Job", Owner: name, UID: "uid-" + name,
		Strategy: strategy, Node: node,
		Snapshot: kit.Gzip(data), Digest: codec.Digest(data),
	}
}

func TestReport(t *testing.T) {
	c := newFakeController(t)
	c.history(t)
	var all strings.Builder
	for _, args := range [][]string{
		{"report"},
		{"report", "--group-by", "strategy"},
		{"report", "--group-by", "strategy", "-o", "csv", "--from", "2026-03-01"},
		{"report", "-n", "home", "--savings", "--baseline", "energy", "--from", "-36h", "-o", "wide"},
	} {
		code, stdout, stderr := c.run(t, withToken, args...)
		if code != 0 || stderr != "" {
			t.Fatalf("%v: exit code %d, %s", args, code, stderr)
		}
		fmt.Fprintf(&all, "$ kubenergy %s\n%s\n", strings.Join(args, " "), stdout)
	}
	golden(t, "report.golden", all.String())
	for args, want := range map[string]string{
		"--group-by owner": "Z&groupBy=namespace&groupBy=owner&", "--group-by owner -n home": "Z&groupBy=owner&",
	} {
		c.asked = nil
		code, stdout, stderr := c.run(t, withToken, append([]string{"report"}, strings.Fields(args)...)...)
		if asked := strings.Join(c.asked, "\n"); code != 0 || !strings.Contains(asked, want) {
			t.Errorf("%s: exit code %d, requests %s, output %s%s", args, code, asked, stdout, stderr)
		}
	}
	for _, asked := range c.asked {
		if strings.HasPrefix(asked, "/api/v1/namespaces/") && strings.Contains(asked, "namespace=") {
			t.Errorf("unexpected request %s", asked)
		}
	}
	out := filepath.Join(t.TempDir(), "report.html")
	code, stdout, stderr := c.run(t, withToken, "report", "--group-by", "strategy", "--out", out)
	page, err := os.ReadFile(out)
	if code != 0 || stdout != "" || stderr != "wrote "+out+"\n" || err != nil ||
		!bytes.Contains(page, []byte("</html>")) {
		t.Errorf("exit code %d, %q, %q, %v", code, stdout, stderr, err)
	}
}

func TestOptimum(t *testing.T) {
	c := newFakeController(t)
	c.history(t)
	if code, stdout, stderr := c.run(t, withToken, "optimum"); code != 0 || stderr != "" ||
		!strings.Contains(stdout, "held job") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	if code, _, stderr := c.run(t, withToken, "optimum", "--from", "soon"); code != 2 || !strings.Contains(stderr, "--from") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	c.refuse["/api/v1/decisions"] = 403
	if code, stdout, stderr := c.run(t, withToken, "optimum"); code != 0 || stderr != "" ||
		!strings.Contains(stdout, "No held job can be compared") || !strings.Contains(stdout, "cannot be read") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

// Without access to nodes, or if data has expired, the rest of the report is still printed.
func TestReportWithoutAllRights(t *testing.T) {
	c := newFakeController(t)
	c.history(t)
	c.refuse["/api/v1/decisions"] = 403
	code, stdout, stderr := c.run(t, withToken, "report", "--group-by", "strategy")
	if code != 0 || !strings.Contains(stdout, "turnaround and savings are missing") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	delete(c.refuse, "/api/v1/decisions")
	whole := c.answers["/api/v1/ledger"].(func(*http.Request) any)
	c.answers["/api/v1/ledger"] = func(q *http.Request) any {
		if by := strings.Join(q.URL.Query()["groupBy"], ","); by == "uid" || by == "site,hour" {
			return "nonsense"
		}
		return whole(q)
	}
	if code, _, stderr = c.run(t, withToken, "report", "--group-by", "strategy"); code != 1 ||
		!strings.Contains(stderr, "decoding the response") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	c.refuse["/api/v1/ledger"] = 500
	if code, stdout, stderr = c.run(t, withToken, "report"); code != 1 || stdout != "" ||
		!strings.Contains(stderr, "returned 500") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

// A tenant without access to the nodes in snapshots gets the report and an explanation for the missing savings.
func TestReportOfATenant(t *testing.T) {
	c := newFakeController(t)
	c.history(t)
	const path = "/api/v1/namespaces/home/decisions"
	all := c.answers[path].(func(*http.Request) any)
	c.answers[path] = func(q *http.Request) any {
		if q.URL.Query().Get("snapshots") == "true" {
			return refusal{403, "missing permission to list nodeenergy.kubenergy.io in all namespaces"}
		}
		return all(q)
	}
	code, stdout, stderr := c.run(t, withToken, "report", "-n", "home", "--group-by", "strategy")
	if code != 0 || stderr != "" || strings.Contains(stdout, "saved") || !strings.Contains(stdout, "turnaround") ||
		!strings.Contains(stdout, "Savings are missing") || !strings.Contains(stdout, "list nodeenergy") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

// If there are more decisions than are fetched, the report contains the time of the oldest fetched one.
//
//test:norace
func TestReportOfTooManyDecisions(t *testing.T) {
	c := newFakeController(t)
	c.history(t)
	begin := testNow.Add(-48 * time.Hour).Truncate(time.Hour)
	c.answers["/api/v1/decisions"] = func(q *http.Request) any {
		to, err := time.Parse(time.RFC3339, q.URL.Query().Get("to"))
		if err != nil {
			t.Error(err)
		}
		var page []ledger.Record // one per second since begin
		for i := int(to.Sub(begin).Seconds()); i >= 0 && len(page) < cmdutil.PageOfRecords; i-- {
			if at := begin.Add(time.Duration(i) * time.Second); at.Before(to) {
				page = append(page, ledger.Record{
					ID: strconv.Itoa(i), At: at, Action: "place", Namespace: "home", OwnerKind: "Job", Owner: "x",
				})
			}
		}
		return map[string]any{"decisions": page}
	}
	code, stdout, stderr := c.run(t, withToken, "report", "--from", "-10d", "--max-decisions", "12000")
	if code != 0 || !strings.Contains(stdout, "since "+testNow.Add(-12000*time.Second).Format("2006-01-02 15:04")) {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	begin = testNow.Add(-time.Hour)
	if code, stdout, stderr = c.run(t, withToken, "report", "--from", "-10d", "--max-decisions", "12000"); code != 0 ||
		strings.Contains(stdout, "since") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	// If more records have the same time than fit on a page, older ones cannot be fetched.
	c.answers["/api/v1/decisions"] = func(*http.Request) any {
		page := make([]ledger.Record, cmdutil.PageOfRecords)
		for i := range page {
			page[i] = ledger.Record{
				ID: strconv.Itoa(i), At: begin, Action: "place", Namespace: "home", OwnerKind: "Job", Owner: "x",
			}
		}
		return map[string]any{"decisions": page}
	}
	if code, stdout, stderr = c.run(t, withToken, "report", "--from", "-10d", "--max-decisions", "12000"); code != 0 ||
		!strings.Contains(stdout, "since "+begin.Format("2006-01-02 15:04")) {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}
