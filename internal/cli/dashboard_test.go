package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"html"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	dashboardcmd "github.com/kubenergy/kubenergy/internal/cli/dashboard"
	"github.com/kubenergy/kubenergy/internal/cli/doctor"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// observed returns a cluster with two sites. Its ledger contains a day with 100 W for work and 50 W idle in every
// hour, at 200 g/kWh, a fifth of it estimated.
func observed(t *testing.T) *apiServer {
	t.Helper()
	a := twoSites(t)
	policy := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PolicyName}}
	policy.Spec.Mode = v1alpha1.ModeEnforce
	a.add(t, policiesPath, policy)
	a.add(t, jobsIn("ns"), workJob("nightly"))
	a.add(t, jobsIn("other"), workJob("import"))
	for name, percent := range map[string]float64{"month": 20, "soon": 90} {
		b := &v1alpha1.EnergyBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
		b.Spec.Period.Type, b.Status.Percent = v1alpha1.PeriodMonth, percent
		b.Status.PeriodStart = new(metav1.NewTime(testNow.Add(-9 * 24 * time.Hour)))
		b.Status.PeriodEnd = new(metav1.NewTime(testNow.Add(21 * 24 * time.Hour)))
		a.add(t, "/apis/kubenergy.io/v1alpha1/namespaces/ns/energybudgets", b)
	}
	a.controller = map[string]any{
		"/api/v1/nodes/power": api.NodesPower{Nodes: []api.NodePower{
			{Node: "de-small", Watts: 90, AsOf: testNow, PowerState: v1alpha1.PowerAsleep},
			{Node: "de-big", Watts: 70, AsOf: testNow, PowerState: v1alpha1.PowerBooting},
			{Node: "full", Watts: 999, AsOf: testNow.Add(-time.Hour)},
			{Node: "guest", Host: "de-big", Watts: 40, AsOf: testNow},
			{Node: "orphan", Host: "full", Watts: 5, AsOf: testNow}, // included in the power of its host
		}},
		"/api/v1/ledger":    func(q *http.Request) any { return booked(q.URL.Query()) },
		"/api/v1/decisions": map[string]any{"decisions": []ledger.Record{}},

		"/api/v1/namespaces/ns-6/ledger": func(q *http.Request) any { return apart(q.URL.Query()) },
	}
	return a
}

func booked(q url.Values) *ledger.Answer {
	from, _ := time.Parse(time.RFC3339, q.Get("from"))
	to, _ := time.Parse(time.RFC3339, q.Get("to"))
	answer := &ledger.Answer{From: from, To: to, AsOf: testNow, Resolution: time.Hour, Rows: []ledger.Row{}}
	row := func(dynamic, idle energy.Joules, key ...string) {
		r := ledger.Row{Key: key}
		r.Dynamic, r.Idle = dynamic.Microjoules(), idle.Microjoules()
		r.Facility, r.Estimated = r.Energy(), r.Energy()/5
		r.Emit("average", ledger.Micrograms(float64(r.Facility)/3.6e12*200*1e6))
		answer.Rows = append(answer.Rows, r)
	}
	if slices.Equal(q["groupBy"], []string{"cluster", "namespace"}) {
		for i := range 7 {
			row(energy.Joules(3.6e6*float64(i+1)), 0, map[bool]string{true: "alpha"}[i == 6], fmt.Sprint("ns-", i))
		}
		return answer
	}
	if slices.Equal(q["groupBy"], []string{"cluster", "node"}) {
		row(3.6e6, 3.6e6, "", "small")
		row(3.6e6, 5*3.6e6, "", "big")
		return answer
	}
	for at := from.Truncate(time.Hour); at.Before(to); at = at.Add(time.Hour) {
		row(100*3600, 0, at.Format(time.RFC3339), "DE", "workload")
		row(50*3600, 0, at.Format(time.RFC3339), "DE", "idle")
	}
	return answer
}

// decided adds decisions with savings to the ledger of an observed cluster.
func decided(t *testing.T, a *apiServer) {
	t.Helper()
	unit := newFakeController(t)
	unit.history(t)
	recorded := unit.answers["/api/v1/ledger"].(func(*http.Request) any)
	a.controller["/api/v1/decisions"] = unit.answers["/api/v1/decisions"]
	a.controller["/api/v1/ledger"] = func(q *http.Request) any {
		switch strings.Join(q.URL.Query()["groupBy"], ",") {
		case "cluster,namespace":
			return booked(q.URL.Query())
		case "hour,site,kind": // enough machines for the compared work
			answer := booked(q.URL.Query())
			for i := range answer.Rows {
				for _, field := range answer.Rows[i].Fields() {
					*field *= 100
				}
			}
			return answer
		}
		return recorded(q)
	}
}

// apart returns the consumption of a namespace of another cluster, on two nodes and in two hours.
func apart(q url.Values) *ledger.Answer {
	answer := &ledger.Answer{AsOf: testNow, Resolution: time.Hour}
	if q.Get("cluster") != "alpha" {
		return answer
	}
	for i, key := range map[string][]string{
		"node": {"de-big", "gone"}, "hour": {"2026-11-02T10:00:00Z", "2026-11-02T11:00:00Z"},
	}[q.Get("groupBy")] {
		row := ledger.Row{Key: []string{key}, First: testNow.Add(-2 * time.Hour), Last: testNow}
		row.Dynamic, row.Idle = energy.Joules(3.6e6*float64(1+2*i)).Microjoules(), energy.Joules(3.6e6).Microjoules()
		row.Facility, row.Estimated = row.Energy()*6/5, row.Energy()/4
		row.Emit("average", ledger.Micrograms(float64(row.Facility)/3.6e12*100*1e6))
		answer.Rows = append(answer.Rows, row)
		answer.Total.Include(&row)
	}
	return answer
}

func liveOf(t *testing.T, a *apiServer, f cmdutil.ControllerFlags) dashboard.Source {
	t.Helper()
	f.Kubeconfig = a.kubeconfig
	f.Component = v1alpha1.SystemNamespace
	s, err := dashboardcmd.OpenLive(t.Context(), cmdutil.Terminal{
		Name: "kubenergy", Out: io.Discard, Err: io.Discard, Now: func() time.Time { return testNow },
	}, &f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func modelOf(t *testing.T, s dashboard.Source, v dashboard.View) *dashboard.Model {
	t.Helper()
	m, err := s.Model(t.Context(), dashboard.Query{View: v, Run: -1})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The page of a cluster contains the same data as the API, held, explain and doctor.
func TestDashboardOfACluster(t *testing.T) {
	a := observed(t)
	m := modelOf(t, liveOf(t, a, cmdutil.ControllerFlags{}), dashboard.Overview)
	if m.Mode != "enforce" || !m.From.Equal(testNow.Add(-24*time.Hour)) || !m.To.Equal(testNow.Add(48*time.Hour)) {
		t.Errorf("got mode %s, from %s to %s", m.Mode, m.From, m.To)
	}
	if len(m.Jobs) != 2 || m.Jobs[0].Name != "nightly" || m.Jobs[0].Saving == nil ||
		!m.Jobs[0].PlannedEnd.Equal(testNow.Add(5*time.Hour)) {
		t.Errorf("unexpected held Jobs: %+v", m.Jobs)
	}
	carbon := m.Zones[0].Carbon
	if m.Zones[0].Name != "DE" || carbon.Stale || *carbon.Now != 300 || *carbon.AgeSeconds != 600 {
		t.Errorf("unexpected zone %+v", m.Zones[0])
	}
	for at, want := range map[time.Duration]float64{-20 * time.Hour: 200, 0: 300, 4 * time.Hour: 100} {
		if v, ok := carbon.At(testNow.Add(at)); !ok || v != want {
			t.Errorf("intensity in %v: got %v, want %v", at, v, want)
		}
	}
	p := m.Power
	if len(p.Points) != 24 || p.Points[3].Dynamic != 100 || p.Points[3].Idle != 50 || p.Nodes != 5 || p.Late != 1 ||
		*p.Now != 165 || p.Estimated != 0.2 || p.Asleep != 1 || p.Guests != 1 {
		t.Errorf("unexpected power %+v", p)
	}
	zoomed, err := liveOf(t, a, cmdutil.ControllerFlags{}).Model(t.Context(), dashboard.Query{
		From: testNow.Add(-5 * time.Hour), To: testNow.Add(-2*time.Hour + 36*time.Second), Run: -1,
	})
	if err != nil || len(zoomed.Power.Points) != 4 || zoomed.Power.Points[3].Total() != 150 {
		t.Errorf("time range that ends within an hour: got error %v, power %+v", err, zoomed.Power)
	}
	if len(m.Namespaces) != 5 || m.Namespaces[0].Name != "ns-6" || m.Namespaces[0].Cluster != "alpha" ||
		m.Namespaces[0].KWh != 7 || *m.Namespaces[0].Kg != 1.4 {
		t.Errorf("unexpected namespaces %+v", m.Namespaces)
	}
	machines := modelOf(t, liveOf(t, a, cmdutil.ControllerFlags{}), dashboard.Machines).Machines
	if len(machines) != 2 || machines[0].Name != "big" || machines[0].KWh != 6 || *machines[1].Kg != 0.4 {
		t.Errorf("unexpected machines %+v", machines)
	}
	if b := m.Budgets; len(b) != 2 || b[0].Name != "soon" || !b[0].UsedUp.Equal(testNow.Add(24*time.Hour)) ||
		b[1].UsedUp != nil {
		t.Errorf("unexpected budgets %+v", b)
	}
	if found := modelOf(t, liveOf(t, a, cmdutil.ControllerFlags{}), dashboard.Doctor).Findings; len(found) < len(doctor.Checks) {
		t.Errorf("got %d findings of %d checks", len(found), len(doctor.Checks))
	}
	if a.writes > 0 {
		t.Errorf("the page caused %d writes", a.writes)
	}
}

func shadow(t *testing.T, a *apiServer) {
	t.Helper()
	edit(t, a, policiesPath+"/"+v1alpha1.PolicyName, func(p *v1alpha1.EnergyPolicy) {
		p.Spec.Mode = v1alpha1.ModeShadow
		p.Status.Shadow = &v1alpha1.ShadowStatus{Decided: 9, Held: 4, SavedGrams: 1500}
	})
}

// In shadow mode, the page shows hypothetical savings until a namespace enforces.
func TestDashboardOfAShadow(t *testing.T) {
	a := observed(t)
	shadow(t, a)
	m := modelOf(t, liveOf(t, a, cmdutil.ControllerFlags{}), dashboard.Overview)
	if m.Mode != "shadow" || m.Enforcing != 1 || m.Saved != nil {
		t.Errorf("got mode %s, %d enforcing namespaces, savings %+v, want no recorded savings of namespace ns", m.Mode,
			m.Enforcing, m.Saved)
	}
	edit(t, a, "/api/v1/namespaces/ns", func(n *v1.Namespace) { n.Labels = nil })
	m = modelOf(t, liveOf(t, a, cmdutil.ControllerFlags{}), dashboard.Overview)
	if m.Enforcing != 0 || m.Saved == nil || !m.Saved.Shadow || m.Saved.Emissions.Saved != 1.5 {
		t.Errorf("got %d enforcing namespaces, savings %+v", m.Enforcing, m.Saved)
	}
}

// The page lists data that the user may not see, and shows the rest.
func TestDashboardWithoutRights(t *testing.T) {
	a := observed(t)
	a.controller = nil
	a.refused["list gridzones"], a.refused["list energybudgets"], a.refused["list pods"] = true, true, true
	m := modelOf(t, liveOf(t, a, cmdutil.ControllerFlags{}), dashboard.Overview)
	said := strings.Join(m.Unseen, "\n")
	for _, want := range []string{"the grid", "budgets", "pods", "past power"} {
		if !strings.Contains(said, want) {
			t.Errorf("unavailable data %q is not listed:\n%s", want, said)
		}
	}
	if len(m.Jobs) != 2 {
		t.Errorf("got %d Jobs", len(m.Jobs))
	}
}

// The page of one namespace does not request data of others.
func TestDashboardOfANamespace(t *testing.T) {
	a := observed(t)
	var asked []string
	for _, path := range []string{"ledger", "decisions"} {
		a.controller["/api/v1/"+path] = func(q *http.Request) any { asked = append(asked, q.URL.Path); return nil }
		a.controller["/api/v1/namespaces/ns/"+path] = func(q *http.Request) any { return booked(q.URL.Query()) }
	}
	a.controller["/api/v1/nodes/power"] = a.controller["/api/v1/ledger"]
	s := liveOf(t, a, cmdutil.ControllerFlags{ClusterFlags: cmdutil.ClusterFlags{Namespace: "ns"}})
	m := modelOf(t, s, dashboard.Overview)
	if len(m.Jobs) != 1 || m.Jobs[0].Namespace != "ns" || m.Power == nil || len(m.Power.Points) != 24 {
		t.Errorf("%+v", m)
	}
	modelOf(t, s, dashboard.Decisions)
	if len(asked) > 0 {
		t.Errorf("unexpected requests %v", asked)
	}
}

// tenant restricts the user of an observed cluster to one namespace, next to another one with private data.
func tenant(t *testing.T, a *apiServer) {
	t.Helper()
	a.add(t, jobsIn("hidden-ns"), workJob("hidden-job"))
	a.add(t, "/apis/kubenergy.io/v1alpha1/namespaces/hidden-ns/energybudgets", &v1alpha1.EnergyBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "hidden-budget", Namespace: "hidden-ns"},
	})
	for _, kind := range []string{"jobs", "pods", "namespaces", "energybudgets", "energypolicies", "events"} {
		a.refused["list all "+kind] = true
	}
	others := func(*http.Request) any {
		return map[string]any{"decisions": []ledger.Record{{ID: "x", Namespace: "hidden-ns", Owner: "hidden-job"}}}
	}
	a.controller["/api/v1/decisions"], a.controller["/api/v1/ledger"] = others, others
	a.controller["/api/v1/namespaces/ns/ledger"] = func(q *http.Request) any { return booked(q.URL.Query()) }
	a.controller["/api/v1/namespaces/ns/decisions"] = map[string]any{"decisions": []ledger.Record{{
		ID: "own", At: testNow, Action: "hold", Namespace: "ns", OwnerKind: "Job", Owner: "nightly",
	}}}
}

// A tenant with permissions in one namespace finds no data of others on any reachable page or download.
func TestDashboardOfATenant(t *testing.T) {
	a := observed(t)
	tenant(t, a)
	client, address := browse(t, liveOf(t, a, cmdutil.ControllerFlags{ClusterFlags: cmdutil.ClusterFlags{Namespace: "ns"}}))
	seen, next := map[string]bool{}, []string{
		"/", "/model.json", "/model.json?view=decisions", "/model.json?view=doctor",
		"/model.json?view=savings", "/search?q=hidden-job", "/csv?of=work", "/svg?of=work",
	}
	for len(next) > 0 {
		path := next[0]
		next = next[1:]
		if seen[path] || len(seen) > 200 {
			continue
		}
		seen[path] = true
		answer, err := client.Get(address + path)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		body := strings.ReplaceAll(string(data), "q=hidden-job", "") // the search term
		body = strings.NewReplacer(`value="hidden-job"`, "", "No Job &#34;hidden-job&#34;", "").Replace(body)
		if strings.Contains(body, "hidden-") {
			t.Errorf("%s contains data of other namespaces:\n%s", path, body)
		}
		for _, link := range regexp.MustCompile(`(?:href|action)="(/[^"#]*)`).FindAllStringSubmatch(body, -1) {
			next = append(next, html.UnescapeString(link[1]))
		}
	}
	if len(seen) < 20 {
		t.Errorf("only reached %d pages", len(seen))
	}
}

// serve serves a source and returns the first URL.
func serve(t *testing.T, s dashboard.Source) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	page := dashboard.NewServer(s, listener.Addr(), func() time.Time { return testNow.Add(time.Since(began)) })
	server := httptest.NewUnstartedServer(page.Handler())
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return page.Address()
}

// browse serves a source and returns a client that has opened it.
func browse(t *testing.T, s dashboard.Source) (client *http.Client, address string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client = &http.Client{Jar: jar}
	first := serve(t, s)
	read(t, client, first)
	address, _, _ = strings.Cut(first, "/?")
	return client, address
}

func read(t *testing.T, client *http.Client, address string) string {
	t.Helper()
	answer, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d: %v: %s", address, answer.StatusCode, err, data)
	}
	return string(data)
}

// A Job's page explains the reason and the time of its start. run-now and mode changes show their effect before
// anything is written, and require a form of the page.
func TestDashboardActs(t *testing.T) {
	a := observed(t)
	client, address := browse(t, liveOf(t, a, cmdutil.ControllerFlags{}))
	job := read(t, client, address+"/job?kind=job&namespace=ns&name=nightly")
	x := explained(t, a, "job", "nightly")
	for _, want := range []string{
		x.Sentence, "Choice of the node", "de-small", "With the allowed delay of 8 h after its creation, 08:00,",
		"by start, at FR, the site of the highest ranked node", "6 h more delay would", "Run now",
	} {
		if !strings.Contains(job, want) {
			t.Errorf("the page of the Job does not contain %q", want)
		}
	}
	if strings.Contains(job, "Energy used") {
		t.Error("the page of a Job that never ran offers its energy")
	}
	for _, act := range []struct{ query, description string }{
		{"do=run-now&kind=job&namespace=ns&name=nightly", "The expected savings of waiting would be lost"},
		{"do=mode&namespace=ns&mode=shadow", "In shadow mode decisions are counted"},
	} {
		form := read(t, client, address+"/act?"+act.query)
		if !strings.Contains(form, act.description) || a.writes > 0 {
			t.Fatalf("got %d writes, and the page\n%s", a.writes, form)
		}
		values, err := url.ParseQuery(act.query)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := client.PostForm(address+"/act", values); err != nil || answer.StatusCode != 403 || a.writes > 0 {
			t.Fatalf("without the token of the form: got error %v, response %+v, %d writes", err, answer, a.writes)
		}
		values.Set("csrf", regexp.MustCompile(`name="csrf" value="(\w+)"`).FindStringSubmatch(form)[1])
		if answer, err := client.PostForm(address+"/act", values); err != nil || answer.StatusCode != 200 || a.writes != 1 {
			t.Fatalf("got error %v, response %+v, %d writes", err, answer, a.writes)
		}
		a.writes = 0
	}
	if note := a.get(t, jobsIn("ns")+"/nightly").GetAnnotations()[v1alpha1.AnnotationRunNow]; note != "true" {
		t.Errorf("unexpected run-now annotation %q", note)
	}
	if mode := a.get(t, "/api/v1/namespaces/ns").GetLabels()[v1alpha1.LabelMode]; mode != "shadow" {
		t.Errorf("unexpected mode %q", mode)
	}
}

// The page of a Job that another scheduler places is about a zone with nodes, like explain, and not about the default
// zone. It explains why the start of a joint plan is not the best one of the Job.
func TestDashboardOfAJobOfAnotherScheduler(t *testing.T) {
	a := observed(t)
	nodes := map[string]int32{"DE": 0, "FR": 6, "US": 2}
	dirty := zone("US")
	dirty.Spec.Default = false
	a.add(t, zonePath, dirty)
	for name, n := range nodes {
		edit(t, a, zonePath+"/"+name, func(z *v1alpha1.GridZone) {
			z.Status.Nodes = &n
			if name == "DE" {
				z.Status.Carbon.Values = slices.Repeat([]float64{374}, 48)
			}
		})
	}
	edit(t, a, jobsIn("ns")+"/nightly", func(j *batchv1.Job) {
		j.Spec.Template.Spec.SchedulerName = "default-scheduler"
		j.Annotations[v1alpha1.AnnotationHeldUntil] = testNow.Add(6 * time.Hour).Format(time.RFC3339)
		j.Annotations[v1alpha1.AnnotationHeldReason] += ", according to the joint plan of all waiting jobs"
	})
	s := liveOf(t, a, cmdutil.ControllerFlags{})
	client, address := browse(t, s)
	page := text(t, client, address+"/job?kind=job&namespace=ns&name=nightly")
	for _, want := range []string{
		"saves an estimated 67 %", "the best start has 10 gCO2e/kWh over its run, 66.7 % less",
		"by start, at FR, the cleanest zone with nodes, because no node is ranked", "8 h 2026-03-02 12:00 10 66.7 %",
		"The planned start, 15:00, is not the best one of this Job alone, because the joint plan",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q:\n%s", want, page)
		}
	}
	var names []string
	for _, z := range modelOf(t, s, dashboard.Overview).Zones {
		names = append(names, z.Name)
	}
	if got := strings.Join(names, " "); got != "FR US DE" {
		t.Errorf("got zones %s, want those with nodes first", got)
	}
}

// TestEightQuestions checks the answers to common questions for five different clusters. Each answer is on a page
// that is at most two clicks away from the first one, and matches the API, explain and doctor.
func TestEightQuestions(t *testing.T) {
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 21))
		a := observed(t)
		job := workJob("asked")
		job.Annotations[v1alpha1.AnnotationHeldUntil] = testNow.Add(time.Duration(1+rng.IntN(5)) * time.Hour).Format(time.RFC3339)
		job.Annotations[v1alpha1.AnnotationHeldReason] = fmt.Sprintf("cleaner by %d percent", 1+rng.IntN(90))
		a.add(t, jobsIn("ns"), job)
		for name, scale := range map[string]float64{"DE": 1, "FR": 0.1} {
			edit(t, a, zonePath+"/"+name, func(z *v1alpha1.GridZone) {
				for i := range z.Status.Carbon.Values {
					z.Status.Carbon.Values[i] = scale * math.Round(100+400*rng.Float64())
				}
				z.Status.Carbon.Low, z.Status.Carbon.High = nil, nil
			})
		}
		edit(t, a, "/apis/kubenergy.io/v1alpha1/namespaces/ns/energybudgets/soon", func(b *v1alpha1.EnergyBudget) {
			b.Status.Percent = 40 + 59*rng.Float64()
		})
		if seed%2 == 1 {
			a.add(t, leasePath, lease(cmdutil.SchedulerName, time.Hour)) // not renewed
		}
		decided(t, a)
		s := liveOf(t, a, cmdutil.ControllerFlags{})
		client, address := browse(t, s)
		first := text(t, client, address+"/")
		page := text(t, client, address+"/job?kind=job&namespace=ns&name=asked")
		x := explained(t, a, "job", "asked")
		m := modelOf(t, s, dashboard.Overview)

		want := func(question, page, answer string) {
			t.Helper()
			if !strings.Contains(page, answer) {
				t.Errorf("cluster %d: %s The page does not contain %q:\n%s", seed, question, answer, page)
			}
		}
		want("When does this Job run, and why not now?", page, x.Sentence)
		want("Who used most this week?", first, "alpha/"+m.Namespaces[0].Name+" 7.000 kWh")
		want("Is the meter lying?", text(t, client, address+"/how"),
			"20 % of the energy is estimated, and the rest is measured. Of 5 nodes, the power of 1 is too old for decisions, and that of 0")
		saved := modelOf(t, s, dashboard.Savings).Saved
		want("What did we save, and how sure?", text(t, client, address+"/savings"),
			fmt.Sprintf("Saved %.3f kgCO2e", saved.Emissions.Saved))
		want("What did we save, and how sure?", text(t, client, address+"/savings"), "report --savings --max-decisions 2000")
		moved := 0.0
		for i, w := range m.Power.Points {
			moved += (m.Power.Baseline.Points[i].Value - w.Total()) / 1000
		}
		if math.Abs(1.2*moved-saved.Energy.Saved) > 0.001 {
			t.Errorf("cluster %d: the baseline has %v kWh more, but the savings are %v kWh at PUE 1.2", seed, moved,
				saved.Energy.Saved)
		}
		var budget v1alpha1.EnergyBudget
		if err := cmdutil.GetJSON(t.Context(), s.(*dashboardcmd.LiveSource).Cluster,
			"/apis/kubenergy.io/v1alpha1/namespaces/ns/energybudgets/soon", &budget); err != nil {
			t.Fatal(err)
		}
		ends := budget.Status.PeriodStart.Add(time.Duration(9 * 24 * float64(time.Hour) * 100 / budget.Status.Percent))
		if !ends.Before(budget.Status.PeriodEnd.Time) {
			t.Fatal("the budget is not exhausted within its period")
		}
		want("Which budget ends when?", first, "ns/soon")
		want("Which budget ends when?", first, "exhausted "+ends.UTC().Format("2 Jan 15:04"))
		best := x.Placement.Ranked[0]
		want("Why this node?", page, fmt.Sprintf("%s %s %s 1 ", best.Node, best.Site, best.Profile))
		want("What would six more hours bring?", page, sixMore(t, a))
		failed := 0
		for _, f := range modelOf(t, s, dashboard.Doctor).Findings {
			if f.Status == dashboard.StatusFail {
				failed++
			}
		}
		broken := "Works, with "
		if seed%2 == 1 {
			broken = fmt.Sprintf("Broken: %d, ", failed)
		}
		if failed > 0 != (seed%2 == 1) {
			t.Errorf("cluster %d: unexpected number of failed checks: %d", seed, failed)
		}
		want("Is anything broken?", text(t, client, address+"/doctor"), broken)
	}
}

// sixMore returns the benefit of six more hours for a Job of two hours that may wait for eight hours and was
// created an hour ago, at the site of the highest ranked node. It tries every quarter of an hour, with a cost of
// 0.5 % of an immediate start for each hour of waiting.
func sixMore(t *testing.T, a *apiServer) string {
	t.Helper()
	zones, err := cmdutil.ListZones(t.Context(), liveOf(t, a, cmdutil.ControllerFlags{}).(*dashboardcmd.LiveSource).Cluster)
	if err != nil {
		t.Fatal(err)
	}
	s := zones[slices.IndexFunc(zones, func(z v1alpha1.GridZone) bool { return z.Name == "FR" })].Status.Carbon
	series, err := grid.NewSeries(s.Start.Time, s.Step.Duration, s.Values)
	if err != nil {
		t.Fatal(err)
	}
	best := func(hours int) float64 {
		once := series.Mean(testNow, testNow.Add(2*time.Hour))
		mean, least := once, once
		for at := testNow; !at.After(testNow.Add(time.Duration(hours-1) * time.Hour)); at = at.Add(15 * time.Minute) {
			there := series.Mean(at, at.Add(2*time.Hour))
			if cost := there + 0.005*once*at.Sub(testNow).Hours(); cost < least-1e-9 {
				mean, least = there, cost
			}
		}
		return mean
	}
	if best(14) >= best(8) {
		return "6 h more delay would not reduce it."
	}
	return fmt.Sprintf("6 h more delay would reduce it to %.3g gCO2e/kWh", best(14))
}

// text returns the text of a page.
func text(t *testing.T, client *http.Client, address string) string {
	t.Helper()
	bare := regexp.MustCompile(`<svg.*?</svg>|<[^>]*>`).ReplaceAllString(read(t, client, address), " ")
	return strings.Join(strings.Fields(strings.ReplaceAll(html.UnescapeString(bare), "\u00a0", " ")), " ")
}

// The page of a decision shows all its inputs.
func TestDashboardDecision(t *testing.T) {
	a := observed(t)
	unit := newFakeController(t)
	unit.history(t)
	a.controller["/api/v1/decisions"] = unit.answers["/api/v1/decisions"]
	client, address := browse(t, liveOf(t, a, cmdutil.ControllerFlags{}))
	link := regexp.MustCompile(`/decision\?[^"]*id=placea[^"]*`).FindString(read(t, client, address+"/decisions"))
	if link == "" {
		t.Fatal("the page has no link to the decision")
	}
	page := text(t, client, address+html.UnescapeString(link))
	for _, want := range []string{
		"place home/a", "by carbon", "The job requested 5 cores and 1 GiB for 1 h", "thrifty de", "wasteful de", "de 300",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q:\n%s", want, page)
		}
	}
}

// The figure of a namespace links to the nodes and hours that it consists of, and to their meters.
func TestDashboardOrigin(t *testing.T) {
	a := observed(t)
	var asked []url.Values
	nodes := a.controller["/api/v1/nodes/power"].(api.NodesPower)
	nodes.Nodes[1].Source, nodes.Nodes[1].Quality = "rapl", energy.Measured
	client, address := browse(t, liveOf(t, a, cmdutil.ControllerFlags{}))
	link := regexp.MustCompile(`/origin\?[^"]*ns-6[^"]*`).FindString(read(t, client, address+"/"))
	page := text(t, client, address+html.UnescapeString(link))
	for _, want := range []string{
		"Origin of the energy of alpha/ns-6", "6.000 kWh were booked on 2 nodes", "25 % of it is estimated", "Multiplied by a PUE of 1.2, this is 7.200 kWh",
		"100 gCO2e/kWh on average, this is 720.0 gCO2e",
		"de-big 1.000 1.000 1.2 2.400 100 240.0 – 25 % rapl, measured",
		"gone 3.000 1.000 1.2 4.800 100 480.0 – 25 % –", "2026-11-02 11:00 3.000",
		"--group-by node,hour -n ns-6 --cluster alpha",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q:\n%s", want, page)
		}
	}
	a.controller["/api/v1/namespaces/ns/ledger"] = func(r *http.Request) any {
		asked = append(asked, r.URL.Query())
		return &ledger.Answer{}
	}
	answer, err := client.Get(address + "/origin?namespace=ns&owner=Job/nightly")
	if err != nil || answer.StatusCode != http.StatusNotFound || asked[len(asked)-1].Get("owner") != "Job/nightly" ||
		asked[len(asked)-1].Get("cluster") != ledger.OwnCluster {
		t.Errorf("got error %v, response %+v, requests %v", err, answer, asked)
	}
}

// locked is a buffer that a command writes to while a test reads it.
type locked struct {
	sync.Mutex
	bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.Write(p)
}

func (l *locked) text() string {
	l.Lock()
	defer l.Unlock()
	return l.String()
}

// The command serves the results of simulate until it is interrupted.
//
//test:norace
func TestDashboardCommand(t *testing.T) {
	dir := t.TempDir()
	if code, _, stderr := execute(t, "simulate", "-f", "../../scenarios/demo/scenario.yaml", "--out", dir); code != 0 {
		t.Fatal(stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, dashboard.FileName)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var errs locked
	printed, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"dashboard", "--dir", dir, "--no-browser"}, cmdutil.Terminal{
			Name: "kubenergy", Out: out, Err: &errs, Now: time.Now,
		})
		_ = out.Close()
	}()
	address, err := bufio.NewReader(printed).ReadString('\n') // the only output
	if err != nil {
		t.Fatalf("%v: %s", err, errs.text())
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if page := read(t, &http.Client{Jar: jar}, strings.TrimSpace(address)); !strings.Contains(page, "5.062") {
		t.Errorf("the page does not contain the savings: %.2000s", page)
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("got exit code %d: %s", code, errs.text())
	}
	for args, description := range map[string]string{
		"--dir " + t.TempDir():                     "--out",
		"--listen 0.0.0.0:0":                       "which other machines can reach",
		"--listen 8080":                            "want a loopback address",
		"--dir x --listen [::]:8080":               "which other machines can reach",
		"--dir " + dir + " -n reports --context c": "--dir uses no cluster: remove --context, --namespace",
	} {
		code, _, stderr := execute(t, append([]string{"dashboard", "--no-browser"}, strings.Fields(args)...)...)
		if code != 2 || !strings.Contains(stderr, description) {
			t.Errorf("%s: exit code %d: %s", args, code, stderr)
		}
	}
}

func execute(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, cmdutil.Terminal{Name: "kubenergy", Out: &out, Err: &errs, Now: time.Now})
	return code, out.String(), errs.String()
}

// If a token request fails, the next page requests a token again.
func TestDashboardAsksForATokenAgain(t *testing.T) {
	a := observed(t)
	s := liveOf(t, a, cmdutil.ControllerFlags{})
	a.before = func(_, path string) int {
		if strings.HasSuffix(path, "/token") {
			return http.StatusInternalServerError
		}
		return 0
	}
	if m := modelOf(t, s, dashboard.Overview); m.Power != nil || !strings.Contains(strings.Join(m.Unseen, "\n"), "token") {
		t.Errorf("without a token: got power %+v, unavailable data %q", m.Power, m.Unseen)
	}
	a.before = nil
	if m := modelOf(t, s, dashboard.Overview); m.Power == nil {
		t.Errorf("unavailable data after the recovery of the server: %q", m.Unseen)
	}
}
