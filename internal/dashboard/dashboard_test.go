package dashboard_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/html"

	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

var now = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// demo runs the demo scenario like simulate. It returns the summary and the directory with the results.
func demo(t *testing.T) (*report.Report, string) {
	t.Helper()
	file, err := sim.ReadFile("../../scenarios/demo/scenario.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := file.LoadContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var results []*sim.Result
	for _, s := range []*sim.Scenario{s.StayingAwake(), s} {
		for _, name := range []string{"least-allocated", "energy", "carbon+window"} {
			strategy, err := strategy.ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			r, err := sim.Run(t.Context(), s, name, strategy)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, r)
		}
	}
	if _, err := sim.Align(results...); err != nil {
		t.Fatal(err)
	}
	summary, dir := report.New(file, results), t.TempDir()
	if _, err := dashboard.NewResults(summary, results).Write(dir); err != nil {
		t.Fatal(err)
	}
	return summary, dir
}

// site is a server, and a browser that has opened its URL.
type site struct {
	t      *testing.T
	url    string
	key    string
	client *http.Client
}

func serve(t *testing.T, source dashboard.Source) *site {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	page := dashboard.NewServer(source, listener.Addr(), func() time.Time { return now })
	server := httptest.NewUnstartedServer(page.Handler())
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t, server.URL, page.Address(), &http.Client{Jar: jar}}
	answer, err := s.client.Get(s.key)
	if err != nil || answer.StatusCode != http.StatusOK || answer.Request.URL.RawQuery != "" {
		t.Fatalf("got error %v, response %+v, want the page at a URL without the secret", err, answer)
	}
	_ = answer.Body.Close()
	return s
}

func folder(t *testing.T, dir string) *dashboard.Folder {
	t.Helper()
	f, err := dashboard.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (s *site) get(path string) (status int, header http.Header, body string) {
	s.t.Helper()
	answer, err := s.client.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(data)
}

// text returns the text of a page. It fails if the page violates its Content-Security-Policy.
func (s *site) text(path string) string {
	s.t.Helper()
	status, header, body := s.get(path)
	if status != http.StatusOK {
		s.t.Fatalf("GET %s: got status %d: %s", path, status, body)
	}
	policy := header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		s.t.Errorf("%s: unexpected Content-Security-Policy %q", path, policy)
	}
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	var b strings.Builder
	drawn := 0
	var walk func(n *html.Node, inSVG bool)
	walk = func(n *html.Node, inSVG bool) {
		switch n.Type {
		case html.TextNode:
			b.WriteString(n.Data)
		case html.ElementNode:
			if inSVG {
				drawn++
			}
			s.checkElement(path, n)
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c, inSVG || n.Data == "svg")
		}
		if n.Type == html.ElementNode && !inSVG {
			b.WriteString(" ")
		}
	}
	walk(root, false)
	if drawn > 1500 {
		s.t.Errorf("%s has %d SVG elements, want at most 1500", path, drawn)
	}
	return strings.Join(strings.Fields(strings.ReplaceAll(b.String(), "\u00a0", " ")), " ")
}

// checkElement fails if an element violates the policy or links to another site.
func (s *site) checkElement(path string, n *html.Node) {
	if n.Data == "style" || n.Data == "script" && n.FirstChild != nil {
		s.t.Errorf("%s has an inline %s", path, n.Data)
	}
	for _, a := range n.Attr {
		local := a.Key == "href" || a.Key == "src" || a.Key == "action"
		if a.Key == "style" || strings.HasPrefix(a.Key, "on") || local && !regexp.MustCompile(`^[/#?]`).MatchString(a.Val) ||
			strings.HasPrefix(a.Val, "//") {
			s.t.Errorf(`%s: <%s %s="%.80s">`, path, n.Data, a.Key, a.Val)
		}
	}
}

// want fails if a page does not contain the texts.
func (s *site) want(path string, texts ...string) {
	s.t.Helper()
	said := s.text(path)
	for _, text := range texts {
		if !strings.Contains(said, text) {
			s.t.Errorf("%s does not contain %q:\n%.3000s", path, text, said)
		}
	}
}

// The savings of a replay have the source of its figures, which are not all simulated.
func TestSavingsOfAReplay(t *testing.T) {
	r := &report.Report{Note: "NOT VALID: too busy. Placed by a real kube-scheduler."}
	at := &sim.Result{Scenario: &sim.Scenario{}}
	for _, name := range []string{"stock", "stock (simulated)"} {
		r.Runs = append(r.Runs, report.Run{Strategy: name})
	}
	method := dashboard.NewResults(r, []*sim.Result{at, at}).Models[0].Saved.Method
	if !strings.HasPrefix(method, r.Note) || strings.Contains(method, "simulated") {
		t.Errorf("unexpected source of savings: %s", method)
	}
}

// The page of a directory contains the same figures as the summary of the runs.
func TestPageOfAFolder(t *testing.T) {
	summary, dir := demo(t)
	s := serve(t, folder(t, dir))
	last := &summary.Runs[5]
	saved := fmt.Sprintf("%.3f kgCO2e", summary.Runs[0].EmissionsKg-last.EmissionsKg)
	s.want("/", saved, fmt.Sprintf("%.2f kWh", last.EnergyKWh), "100 % of energy", "91 Jobs were held; 0 starts too late",
		"SYNTHETIC: lowest 154 at 1 Jun 12:00", "least-allocated, machines stay on would have drawn 27.20 kWh")
	s.want("/savings", saved, "Sleep", "Placement", "Timing")
	s.want("/compare", "least-allocated, machines stay on", "carbon+window, machines sleep")
	if _, _, body := s.get("/decisions?q=demo-005"); !strings.Contains(body, `href="/job?kind=job`) {
		t.Error("a Job in the list of decisions has no link")
	}
	s.want("/decisions?q=demo-005", "place", "demo-005", "2 decisions out of 371")
	if _, _, body := s.get("/decisions"); strings.Contains(body, "/decision?") {
		t.Error("decisions of a directory link to snapshots, which it does not contain")
	}
	if status, _, body := s.get("/?run=9"); status != http.StatusNotFound ||
		!strings.Contains(body, "there is no run 9: the directory contains 6 runs, and the last one is 5") {
		t.Errorf("unexpected response for a missing run: %d: %s", status, body)
	}
	if text := s.text("/decisions?action=hold"); strings.Contains(text, "kWh") || !strings.Contains(text, "start why") {
		t.Errorf("empty columns are shown: %.300s", text)
	}
	s.want("/how", "A single run has no interval", "the scenario's file")
	s.want("/search?run=5&q=zzz", `No Job "zzz": the text occurs in none of 371 decisions.`)
	m, err := folder(t, dir).Model(t.Context(), dashboard.Query{Run: 5})
	if err != nil {
		t.Fatal(err)
	}
	var kWh, kg float64
	jobs := 0
	for i := range m.Machines {
		kWh, kg, jobs = kWh+m.Machines[i].KWh, kg+*m.Machines[i].Kg, jobs+m.Machines[i].Jobs
	}
	if math.Abs(kWh-last.EnergyKWh) > 1e-6 || math.Abs(kg-last.EmissionsKg) > 1e-6 || jobs != 280 {
		t.Errorf("the machines used %v kWh and emitted %v kg in %d jobs, want %v, %v and 280", kWh, kg, jobs,
			last.EnergyKWh, last.EmissionsKg)
	}
	s.want("/machines?run=5", "24 machines with "+humanize.Significant(last.EnergyKWh)+" kWh", m.Machines[0].Name,
		strconv.Itoa(m.Machines[0].Jobs))
	if _, _, body := s.get("/machines?run=5"); !strings.Contains(body, "/decisions?q="+m.Machines[0].Name) {
		t.Error("a machine has no link to its decisions")
	}
	s.want("/?run=0", "This run is the baseline")
	s.want("/?from=2026-06-01T11:00:00Z&to=2026-06-01T14:00:00Z", "show all")
	for _, path := range []string{
		"/?run=x", "/?from=yesterday", "/?from=2026-06-02&to=2026-06-01", "/csv?of=x",
		"/model.json?view=x", "/job?kind=node&name=x", "/decision?id=x&at=x",
	} {
		if status, _, body := s.get(path); status != http.StatusBadRequest {
			t.Errorf("GET %s: got status %d: %s", path, status, body)
		}
	}
	if status, _, _ := s.get("/act?do=run-now&kind=job&name=demo-005"); status != http.StatusForbidden {
		t.Errorf("a directory allows actions: %d", status)
	}
}

// The stacked power over time adds up to the energy of the run.
//
//test:norace
func TestWattsAddUp(t *testing.T) {
	summary, dir := demo(t)
	for i := range summary.Runs {
		m, err := folder(t, dir).Model(t.Context(), dashboard.Query{Run: i})
		if err != nil {
			t.Fatal(err)
		}
		var sum, asleep float64
		for k := range m.Power.Points {
			w := &m.Power.Points[k]
			until := m.Power.Until
			if k+1 < len(m.Power.Points) {
				until = m.Power.Points[k+1].At
			}
			sum += w.Total() * until.Sub(w.At).Hours() / 1000
			asleep += w.Asleep
			if w.Dynamic < 0 || w.Idle < 0 || w.Asleep < 0 {
				t.Fatalf("run %d: %+v", i, w)
			}
		}
		if want := summary.Runs[i].EnergyKWh; math.Abs(sum-want) > 1e-6*want {
			t.Errorf("%s: the band contains %v kWh, want %v as in the run", m.Runs[i], sum, want)
		}
		if sleeps := summary.Runs[i].EmptyNodes == sim.EmptyNodesSleep; sleeps != (asleep > 0) {
			t.Errorf("%s: unexpected %v W asleep", m.Runs[i], asleep)
		}
		steps := 0.0
		for _, step := range m.Saved.Steps {
			steps += step.Value
		}
		if i > 0 && math.Abs(steps-m.Saved.Emissions.Saved) > 1e-9 {
			t.Errorf("%s: the steps add up to %v, want %v", m.Runs[i], steps, m.Saved.Emissions.Saved)
		}
	}
}

// A Job's page shows when it ran, why it did not run earlier, and the benefit of a longer delay.
func TestPageOfAJob(t *testing.T) {
	_, dir := demo(t)
	s := serve(t, folder(t, dir))
	m, err := folder(t, dir).Model(t.Context(), dashboard.Query{Run: 5})
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Jobs {
		j := &m.Jobs[i]
		if j.PlannedStart == nil {
			continue
		}
		s.want("/job?run=5&kind=job&name="+url.QueryEscape(j.Name), j.Name, "held until", j.Node,
			"With the allowed delay of", "least-allocated, machines stay on")
		status, _, body := s.get("/search?run=5&q=" + url.QueryEscape(j.Name))
		if status != http.StatusOK || !strings.Contains(body, "The start with other allowed delays") {
			t.Errorf("unexpected status for a search of %s: %d", j.Name, status)
		}
		break
	}
	if status, _, _ := s.get("/job?kind=job&name=none"); status != http.StatusNotFound {
		t.Errorf("unexpected status for a missing job: %d", status)
	}
}

// The server only responds to the browser that received the secret, and a secret is valid once.
func TestGuard(t *testing.T) {
	_, dir := demo(t)
	s := serve(t, folder(t, dir))
	for name, change := range map[string]func(*http.Request){
		"no cookie": func(r *http.Request) { r.Header.Del("Cookie") },
		"another cookie": func(r *http.Request) {
			name, _, _ := strings.Cut(r.Header.Get("Cookie"), "=")
			r.Header.Set("Cookie", name+"=x")
		},
		"the secret again":    func(r *http.Request) { r.Header.Del("Cookie"); r.URL, _ = url.Parse(s.key) },
		"a name that rebinds": func(r *http.Request) { r.Host = "evil.example:80" },
		"another port":        func(r *http.Request) { r.Host = "127.0.0.1:1" },
		"another origin":      func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") },
		"null origin":         func(r *http.Request) { r.Header.Set("Origin", "null") },
		"a foreign script": func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "no-cors")
		},
	} {
		r, err := http.NewRequest(http.MethodGet, s.url+"/model.json", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range s.client.Jar.Cookies(r.URL) {
			r.AddCookie(c)
		}
		change(r)
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden && answer.StatusCode != http.StatusMisdirectedRequest ||
			strings.Contains(string(data), "demo") {
			t.Errorf("%s: %d: %.100s", name, answer.StatusCode, data)
		}
	}
	if status, _, _ := s.get("/model.json"); status != http.StatusOK {
		t.Errorf("unexpected status for the browser itself: %d", status)
	}
}

// fixed is a source of one model.
type fixed struct{ model dashboard.Model }

func (f *fixed) Origin(context.Context, dashboard.Query, string, string) (*dashboard.Origin, error) {
	return nil, nil
}

func (f *fixed) Live() bool { return true }

func (f *fixed) Model(context.Context, dashboard.Query) (*dashboard.Model, error) {
	return &f.model, nil
}

func (f *fixed) Job(_ context.Context, _ dashboard.Query, kind, namespace, name string) (*dashboard.JobView, error) {
	return &dashboard.JobView{Now: now, Explanation: dashboard.Explanation{
		Object: kind, Namespace: namespace, Name: name, State: "held", Sentence: name, Warnings: []string{name},
	}}, nil
}

func (f *fixed) Decision(context.Context, dashboard.Query, *ledger.Record) (*ledger.Record, error) {
	return nil, nil
}

// live returns a model of a cluster with held Jobs of the given names.
func live(names ...string) *fixed {
	m := dashboard.Model{
		Title: "test", Now: now, From: now.Add(-24 * time.Hour), To: now.Add(48 * time.Hour), Mode: "enforce",
	}
	for i, name := range names {
		start, latest := now.Add(time.Duration(1+i%40)*time.Hour), now.Add(time.Duration(3+i%40)*time.Hour)
		m.Jobs = append(m.Jobs, dashboard.Job{Team: name, Held: dashboard.Held{
			Namespace: name, Kind: "Job", Name: name, Since: now.Add(-time.Hour), PlannedStart: &start, LatestStart: &latest,
			Why: name,
		}})
	}
	return &fixed{m}
}

// Names that contain markup or change the text direction are shown as text.
func TestHostileNames(t *testing.T) {
	var names []string
	for i := range 1000 {
		names = append(names, strconv.Itoa(i)+[]string{
			`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, "\u202eevil\u202c",
			`javascript:alert(1)`, `{{.}}`, `</svg><style>*{display:none}</style>`, `&lt;script&gt;`, `//evil.example/`,
			"a\r\nSet-Cookie: x=y",
		}[i%10])
	}
	for _, some := range [][]string{names[:150], names} {
		f := live(some...)
		for i, name := range some {
			f.model.Namespaces = append(f.model.Namespaces, dashboard.Use{Name: name, KWh: 1})
			f.model.Budgets = append(f.model.Budgets, dashboard.Budget{Namespace: name, Name: name, Period: name})
			f.model.Unseen = append(f.model.Unseen, name)
			f.model.Findings = append(f.model.Findings, dashboard.Finding{Check: name, Message: name, Advice: name})
			f.model.Strategies = append(f.model.Strategies, dashboard.Strategy{Name: name, Kg: float64(i), Best: i < 9})
			if i < 12 {
				f.model.Zones = append(f.model.Zones, dashboard.Zone{Name: name, Carbon: &dashboard.Signal{
					Unit: name, Source: name, Forecast: name, Quality: name, Line: dashboard.Line{
						Points: []dashboard.Point{{At: now, Value: 1}}, Until: now.Add(time.Hour),
					},
				}})
			}
		}
		f.model.Title, f.model.Saved = some[0], &dashboard.Saved{Against: some[1], Method: some[2]}
		s := serve(t, f)
		for _, path := range []string{"/", "/decisions", "/savings", "/doctor", "/how"} {
			s.text(path)
		}
		for _, name := range some[:10] {
			s.want("/job?kind=job&"+url.Values{"namespace": {name}, "name": {name}}.Encode(), strings.Fields(name)[0])
			if status, header, _ := s.get("/search?q=" + url.QueryEscape(name)); status != 200 || header.Get("Set-Cookie") != "" {
				t.Errorf("unexpected status for a search of %q: %d", name, status)
			}
			s.text("/decisions?q=" + url.QueryEscape(name))
			status, _, body := s.get("/decision?at=" + url.QueryEscape(name))
			if status != 400 || !strings.Contains(body, `<html lang="en">`) || strings.Contains(body, "<script>") {
				t.Errorf("unexpected response for %q: %d: %s", name, status, body)
			}
		}
	}
}

// If there are too many Jobs, their density is drawn, and the page stays small.
//
//test:norace
func TestManyJobs(t *testing.T) {
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("job-%05d", i)
	}
	f := live(names...)
	for i := range f.model.Jobs {
		f.model.Jobs[i].Team = fmt.Sprintf("team-%d", i%9)
	}
	s := serve(t, f)
	s.want("/", "10000 Jobs are held", "Planned starts per interval", "others", "And 9500 more.")
	_, _, body := s.get("/")
	if _, _, csv := s.get("/csv?of=work"); strings.Count(csv, "\n") != 10_001 {
		t.Errorf("unexpected number of CSV lines: %d", strings.Count(csv, "\n"))
	}
	if strings.Count(body, `class="job`) > 0 || len(body) > 400_000 {
		t.Errorf("got %d bars and %d bytes", strings.Count(body, `class="job`), len(body))
	}
}

// Decisions link to the pages of Jobs and pods. Other owners have no page.
func TestOwnersOfDecisions(t *testing.T) {
	f := live()
	for _, kind := range []string{"Job", "Pod", "Deployment", "ReplicaSet", ""} {
		f.model.Decisions = append(f.model.Decisions, ledger.Record{
			ID: kind, At: now, Action: "place", Namespace: "ns", OwnerKind: kind, Owner: "of-" + kind,
		})
	}
	s := serve(t, f)
	s.want("/decisions", "of-Deployment", "of-ReplicaSet")
	_, _, body := s.get("/decisions")
	if links := strings.Count(body, `href="/job?`); links != 2 || !strings.Contains(body, "kind=job&amp;name=of-Job") ||
		!strings.Contains(body, "kind=pod&amp;name=of-Pod") {
		t.Errorf("got %d owners with links, want the Job and the pod\n%s", links, body)
	}
}

// Empty, outdated and shadow states are shown first.
func TestStates(t *testing.T) {
	s := serve(t, live())
	s.want("/", "No data yet.", "kubenergy doctor", "No Job is held.", "No node reports its power",
		"There is no EnergyBudget.")
	f := live("a")
	f.model.Mode = "shadow"
	hours := 7200.0
	f.model.Zones = []dashboard.Zone{{Name: "DE", Carbon: &dashboard.Signal{
		Unit: "gCO2e/kWh", Quality: "measured", Source: "x", AgeSeconds: &hours, Stale: true, Line: dashboard.Line{
			Points: []dashboard.Point{{At: now, Value: 300}}, Until: now.Add(time.Hour),
		},
	}}}
	serve(t, f).want("/", "Shadow mode:", "1 too old", "carbon intensity of DE", "STALE: 2 h old, not used for decisions")
}

// The saved model of a cluster can be opened as a directory.
//
//test:norace
func TestModelIsOneSchema(t *testing.T) {
	_, dir := demo(t)
	s := serve(t, folder(t, dir))
	var m dashboard.Model
	_, _, body := s.get("/model.json?run=5")
	if err := json.Unmarshal([]byte(body), &m); err != nil || m.Kind != dashboard.KindDashboard || len(m.Jobs) != 280 {
		t.Fatalf("%v: %d jobs", err, len(m.Jobs))
	}
	data, err := json.Marshal(&dashboard.Results{Models: []*dashboard.Model{&m}})
	if err != nil {
		t.Fatal(err)
	}
	again := t.TempDir()
	if err := os.WriteFile(filepath.Join(again, dashboard.FileName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if a, b := s.text("/?run=5"), serve(t, folder(t, again)).text("/?run=5"); a != b {
		t.Errorf("the page of savings differs:\n%s\n%s", a, b)
	}
	for band, first := range map[string]string{
		"decisions": "time (UTC),what,work", "grid": `from (UTC),"SYNTHETIC, gCO2e/kWh"`, "power": `from (UTC),"for work, W"`,
		"work": "Job,team,created",
	} {
		if _, _, csv := s.get("/csv?of=" + band); !strings.HasPrefix(csv, first) || strings.Count(csv, "\n") < 10 {
			t.Errorf("%s: %.200s", band, csv)
		}
		if band == "decisions" {
			continue // decisions have no figure
		}
		if _, header, svg := s.get("/svg?of=" + band); !strings.HasPrefix(svg, "<svg xmlns=") ||
			!strings.Contains(header.Get("Content-Disposition"), band+".svg") || xml.Unmarshal([]byte(svg), new(any)) != nil ||
			!regexp.MustCompile(`of demo, 2026-06-01 \d\d:\d\d to .*<rect class="\S+" .*</text></g><svg`).MatchString(svg) {
			t.Errorf("%s: %.200s", band, svg)
		}
	}
}

func TestComparison(t *testing.T) {
	dir := t.TempDir()
	row := func(strategy string, grams, hours float64) report.SweepRow {
		r := report.SweepRow{Variant: report.Variant{Strategy: strategy}, Trials: 4, MeanWaitHours: hours}
		r.Grams = grams
		return r
	}
	sweep := &report.Sweep{Name: "year", Baseline: "stock", Trials: 12, Strategies: []report.SweepRow{
		row("stock", 12000, 0), row("carbon+window", 8000, 2), row("worse", 10000, 3),
	}}
	data, err := json.Marshal(sweep)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "comparison.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, folder(t, dir))
	if _, _, body := s.get("/"); strings.Contains(body, `id="search"`) {
		t.Error("a comparison has a search field for Jobs")
	}
	s.want("/", "Means over 4 trials of each strategy",
		"wait and emissions: stock (3.000 kgCO2e, waits 0 s); carbon+window (2.000 kgCO2e, waits 2h 00m).", "worse 3h 00m 2.500")
	if _, err := dashboard.OpenFolder(t.TempDir()); err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("got error %v, want advice for a directory without results", err)
	}
}

// The Prometheus queries of a page refer to existing metrics.
func TestPromQL(t *testing.T) {
	known, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, _, body := serve(t, live("a")).get("/")
	found := regexp.MustCompile(`kubenergy_\w+`).FindAllString(body, -1)
	if len(found) == 0 {
		t.Error("the page contains no metrics")
	}
	for _, name := range found {
		if !strings.Contains(string(known), "`"+name+"`") {
			t.Errorf("%s is not a metric of KubEnergy", name)
		}
	}
}

// The assets are small, and their colors are the palette of reports.
func TestAssets(t *testing.T) {
	files, err := filepath.Glob("assets/*")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	size := 0
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		size += len(data)
		if filepath.Ext(name) != ".css" {
			continue
		}
		for _, c := range report.Palette[:6] {
			if colour := fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B); !strings.Contains(string(data), colour) {
				t.Errorf("%s does not contain the color %s", name, colour)
			}
		}
	}
	if size > 120<<10 {
		t.Errorf("the assets have %d bytes", size)
	}
}

// An hour without bookings is not included in sums, rows, lines and the baseline. The tables contain the selected
// time range, even if it is short.
func TestHoursThatAreNotBooked(t *testing.T) {
	f := live()
	price := -12.5
	f.model.Power = &dashboard.Power{
		Where: "at the nodes", Until: now, StepSeconds: 3600, Instead: "stock", Nodes: 1, Now: new(150.0),
		Points: []dashboard.Watts{
			{At: now.Add(-5 * time.Hour), Dynamic: 150}, {At: now.Add(-1 * time.Hour), Dynamic: 150},
		},
	}
	f.model.Zones = []dashboard.Zone{{Name: "DE", Price: &dashboard.Signal{
		Unit: "EUR/MWh", Now: &price, Line: dashboard.Line{
			Points: []dashboard.Point{{At: now.Add(-time.Hour), Value: price}}, Until: now.Add(time.Hour),
		},
	}}}
	s := serve(t, f)
	s.want("/", "0.300 kWh in this period", "DE: -12.5 EUR/MWh now")
	if _, _, csv := s.get("/csv?of=power"); strings.Count(csv, "\n") != 3 {
		t.Errorf("the CSV contains hours without bookings:\n%s", csv)
	}
	if _, _, csv := s.get("/csv?of=grid"); !strings.Contains(csv, ",-12.5\n") {
		t.Errorf("a negative price is not a number:\n%s", csv)
	}
	_, _, body := s.get("/")
	if areas := strings.Count(regexp.MustCompile(`class="area dynamic" d="([^"]*)"`).FindString(body), "M"); areas != 2 {
		t.Errorf("the figure has %d areas, want 2 with a gap between them", areas)
	}
	f.model.From, f.model.To = now.Add(-30*time.Minute), now.Add(-20*time.Minute)
	s = serve(t, f)
	if _, _, csv := s.get("/csv?of=power"); strings.Count(csv, "\n") != 11 {
		t.Errorf("unexpected CSV of ten minutes:\n%s", csv)
	}
	f.model.Power = &dashboard.Power{Nodes: 1, Now: new(150.0), Where: "at the nodes"}
	serve(t, f).want("/", "150 W now, reported by 1 of 1 node.", "Estimated unknown no energy is available")
}

// The savings of shadow mode have no table of consumption, which is unknown.
func TestSavingsOfAShadow(t *testing.T) {
	f := live()
	f.model.Saved = &dashboard.Saved{
		Against: "starting at once", Shadow: true, Jobs: 9, Emissions: &report.Difference{Saved: 1.2},
	}
	s := serve(t, f)
	s.want("/savings", "Would have saved 1.200 kgCO2e relative to starting at once, over 9 jobs.")
	if text := s.text("/savings"); strings.Contains(text, "0.000") {
		t.Errorf("unknown consumption is shown as 0: %s", text)
	}
	few, none := &report.Difference{Used: 2, Baseline: 1.9999, Saved: -0.0001}, report.Difference{Saved: -1e-12}
	f.model.Saved = &dashboard.Saved{
		Against: "stock", Jobs: 3, Few: 3, Emissions: few, Energy: &none, Unit: "kgCO2e",
		Steps: []dashboard.Step{{Name: "Placement", Value: 1e-12}, {Name: "Timing", Value: -0.0001}},
	}
	s = serve(t, f)
	s.want("/savings", "over 3 jobs; an interval requires 10 Jobs, not 3.", "(0 %)")
	if text := s.text("/savings"); strings.Contains(text, "-0.000 ") || strings.Contains(text, "-0 %") {
		t.Errorf("got a negative zero: %s", text)
	}
	lost := &report.Difference{Used: 3, Baseline: 2, Saved: -1}
	f.model.Saved = &dashboard.Saved{Against: "stock", Jobs: 1, Energy: lost}
	serve(t, f).want("/", "50 % more than stock")
}

// Requests share a model while it is created, however long that takes, and time ranges do not exceed the retention
// of the ledger.
func TestRequestsShareAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		release := make(chan struct{})
		var clock atomic.Int64 // each call advances the clock by a minute
		get := browser(t, &faulty{moves: true, make: func() (*dashboard.Model, error) {
			made++
			<-release
			return &dashboard.Model{Now: now, From: now.Add(-time.Hour), To: now}, nil
		}}, func() time.Time { return now.Add(time.Duration(clock.Add(1)) * time.Minute) })
		var asked sync.WaitGroup
		for range 6 {
			asked.Go(func() {
				if w := get("/"); w.Code != http.StatusOK {
					t.Errorf("unexpected response: %d %s", w.Code, w.Body)
				}
			})
			synctest.Wait() // the second request waits for the model
		}
		close(release)
		asked.Wait()
		if made != 1 {
			t.Errorf("got %d models for concurrent requests", made)
		}
		if w := get("/?from=1950-01-01"); w.Code != http.StatusBadRequest {
			t.Errorf("unexpected status for 76 years: %d", w.Code)
		}
	})
}

// An invalid file is not reported as missing.
func TestBrokenFolders(t *testing.T) {
	for name, text := range map[string]string{
		"comparison.json": `{"strategies": 3}`, dashboard.FileName: `{"models": [null]}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := dashboard.OpenFolder(dir); err == nil || !strings.Contains(err.Error(), "reading ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := dashboard.OpenFolder(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unexpected error for a missing directory: %v", err)
	}
}

// The best start is exactly that of the core everywhere, and not rounded to the drawn quarters of an hour.
func TestBestStart(t *testing.T) {
	const length = 47 * time.Minute
	s, err := grid.NewSeries(now.Add(-13*time.Minute), time.Hour, []float64{300, 200, 100, 100, 50, 300, 300, 300, 300, 300})
	if err != nil {
		t.Fatal(err)
	}
	v := &dashboard.JobView{}
	job := &sched.Job{Submitted: now, Duration: length, AllowedDelay: 3 * time.Hour}
	best := func(allowed time.Duration) time.Time { return sched.BestStart(s, now, now.Add(allowed), length) }
	v.Weigh(s, "gCO2e/kWh", job, now, best)
	i := slices.IndexFunc(v.Delays, func(d dashboard.Delay) bool { return d.Set })
	if d := v.Delays[i]; !d.Start.Equal(now.Add(107*time.Minute)) || d.Value != 100 || d.Saving != 2./3 {
		t.Errorf("got %+v, want the first start with 100 gCO2e/kWh, at the third step", d)
	}
}

// Labels of strategies that are close to each other do not overlap.
func TestLabelsOfAComparison(t *testing.T) {
	f := live()
	for i := range 8 {
		f.model.Strategies = append(f.model.Strategies, dashboard.Strategy{
			Name: fmt.Sprintf("strategy-number-%d", i), WaitHours: 1 + float64(i)/50, Kg: 8 - float64(i)/20, Best: true,
		})
	}
	_, _, body := serve(t, f).get("/compare")
	labels := regexp.MustCompile(`<text x="([\d.]+)%" y="([\d.]+)%" text-anchor="(start|end)">strategy-number-`).
		FindAllStringSubmatch(body, -1)
	if len(labels) < 3 {
		t.Fatalf("got %d labels:\n%s", len(labels), body)
	}
	number := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	left := func(l []string) float64 {
		if l[3] == "end" {
			return number(l[1]) - 11
		}
		return number(l[1])
	}
	for i, a := range labels {
		for _, b := range labels[:i] {
			if math.Abs(left(a)-left(b)) < 11 && math.Abs(number(a[2])-number(b[2])) < 4 {
				t.Errorf("%s and %s overlap", a[0], b[0])
			}
		}
	}
}
