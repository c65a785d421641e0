package controller

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/cached"
	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/daemon"
	testkit "github.com/kubenergy/kubenergy/test/kit"
)

// start runs the whole controller against an API server until the test ends.
func start(t testing.TB, s *apiServer, o Options) (*app, *prometheus.Registry) {
	t.Helper()
	return startAt(t, s.config(), o)
}

func startAt(t testing.TB, api *rest.Config, o Options) (*app, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	c, err := build(context.Background(), api, o, kit.Silent, registry)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("Run did not return within a minute")
		}
	})
	return c, registry
}

func quiet(t testing.TB) Options {
	o := *NewOptions(flag.NewFlagSet("", flag.ContinueOnError))
	o.MetricsAddress, o.ProbeAddress, o.LeaderElect, o.Namespace = "0", "0", false, v1alpha1.SystemNamespace
	o.Keys, o.Data = t.TempDir(), t.TempDir()
	return o
}

func typical(name, zone string) *v1alpha1.GridZone {
	z := kit.Zone(name, 1)
	z.TypeMeta = metav1.TypeMeta{APIVersion: "kubenergy.io/v1alpha1", Kind: "GridZone"}
	z.Spec.Zone = zone
	z.Spec.Carbon.Sources = []v1alpha1.CarbonSource{{Typical: &v1alpha1.TypicalSource{}}}
	z.Spec.Price = &v1alpha1.PriceSpec{Currency: "EUR", Sources: []v1alpha1.PriceSource{{Tariff: &v1alpha1.TariffSource{
		Price: new(0.2), TimeZone: "UTC", Schedules: []v1alpha1.TariffSchedule{{
			Start: "16:00", End: "20:00", Price: 0.4,
		}},
	}}}}
	return z
}

const ours = "/apis/kubenergy.io/v1alpha1/"

// TestReleasesRunsOfCronJobs runs the whole controller without a scheduler. A held run must be released before the next
// one is due, whether the runs of a CronJob may overlap or not.
func TestReleasesRunsOfCronJobs(t *testing.T) {
	s := newAPIServer(t)
	p := kit.Policy(v1alpha1.SystemNamespace, v1alpha1.ModeEnforce, 24*time.Hour)
	s.put(ours+"namespaces/kubenergy-system/energypolicies/default", p)
	for name, concurrency := range map[string]batchv1.ConcurrencyPolicy{
		"alone": batchv1.ForbidConcurrent, "beside": batchv1.AllowConcurrent,
	} {
		s.put("/apis/batch/v1/namespaces/team/cronjobs/"+name, &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
			Spec:       batchv1.CronJobSpec{Schedule: "* * * * *", ConcurrencyPolicy: concurrency},
		})
		run := kit.HeldUntil("team", name, time.Now(), time.Time{})
		run.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "20h"}
		run.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "CronJob", Name: name, UID: "u", Controller: new(true),
		}}
		s.put("/apis/batch/v1/namespaces/team/jobs/"+name, run)
	}
	start(t, s, quiet(t))
	suspended := func(name string) bool {
		var j batchv1.Job
		return s.read("/apis/batch/v1/namespaces/team/jobs/"+name, &j) && *j.Spec.Suspend
	}
	for _, name := range []string{"alone", "beside"} {
		kit.Eventually(t, time.Minute, "the run is released", func() bool { return !suspended(name) })
	}
}

// Zones get a status, the status of policies follows namespaces within a second, and the components that decide
// receive all of it.
func TestController(t *testing.T) {
	s := newAPIServer(t)
	clusters := kit.Policy(v1alpha1.SystemNamespace, v1alpha1.ModeShadow, time.Hour)
	clusters.TypeMeta = metav1.TypeMeta{APIVersion: "kubenergy.io/v1alpha1", Kind: "EnergyPolicy"}
	clustersPath := ours + "namespaces/kubenergy-system/energypolicies/default"
	s.put(ours+"gridzones/home", typical("home", "DE"))
	s.put(clustersPath, clusters)
	s.put("/api/v1/nodes/n1", kit.Node("n1", "4"))
	c, registry := start(t, s, quiet(t))
	kit.Eventually(t, 30*time.Second, "the zone is ready", func() bool {
		var z v1alpha1.GridZone
		return s.read(ours+"gridzones/home", &z) &&
			meta.IsStatusConditionTrue(z.Status.Conditions, v1alpha1.ConditionReady) && z.Status.Carbon != nil &&
			z.Status.Price != nil
	})
	kit.Eventually(t, 30*time.Second, "the view has the zone", func() bool {
		site := c.objects.View().Site("home")
		return site != nil && site.Carbon.Fresh(time.Now(), 0)
	})
	team := kit.Namespace("team",
		map[string]string{"compute-gardener-scheduler.kubernetes.io/energy-policies": "enabled"},
		map[string]string{"compute-gardener-scheduler.kubernetes.io/policy-max-scheduling-delay": "2h"})
	summary := func() (n v1alpha1.NamespaceSummary, known bool) {
		var p v1alpha1.EnergyPolicy
		s.read(clustersPath, &p)
		n, known = p.Status.Namespaces["team"]
		return n, known
	}
	s.put("/api/v1/namespaces/team", team)
	kit.Eventually(t, time.Second, "the status lists the namespace for admission",
		func() bool { n, known := summary(); return known && n.Delays })
	s.put("/apis/batch/v1/namespaces/team/jobs/job", kit.Job("team", "job", time.Now()))
	kit.Eventually(t, 20*time.Second, "the Job has a shadow decision",
		func() bool { return count(t, registry)["kubenergy_shadow_decisions_total"] > 0 })
	s.remove("/api/v1/namespaces/team")
	kit.Eventually(t, time.Second, "the status no longer lists the namespace",
		func() bool { _, known := summary(); return !known })
	if all := count(t, registry); all["kubenergy_signal_age_seconds"] != 2 ||
		all["kubenergy_shadow_decisions_total"] != 0 {
		t.Errorf("unexpected series %v", all)
	}
}

// TestBudgetsOfWorkloadsAreIndexed lists Jobs and pods that may have a budget from the cache, as package budget
// does.
func TestBudgetsOfWorkloadsAreIndexed(t *testing.T) {
	s := newAPIServer(t)
	own := kit.Job("team", "own", time.Now())
	own.Annotations = map[string]string{v1alpha1.AnnotationBudgetKWh: "1"}
	s.put("/apis/batch/v1/namespaces/team/jobs/own", own)
	s.put("/apis/batch/v1/namespaces/team/jobs/other", kit.Job("team", "other", time.Now()))
	c, _ := start(t, s, quiet(t))
	may := client.MatchingFields{cached.AllowanceIndex: cached.MayHaveAllowance}
	kit.Eventually(t, 20*time.Second, "only the Job with a budget is listed", func() bool {
		var jobs batchv1.JobList
		err := c.manager.GetClient().List(t.Context(), &jobs, may)
		return err == nil && len(jobs.Items) == 1 && jobs.Items[0].Name == "own"
	})
	kit.Eventually(t, 20*time.Second, "pods can be listed by the index", func() bool {
		var pods v1.PodList
		return c.manager.GetClient().List(t.Context(), &pods, may) == nil && len(pods.Items) == 0
	})
}

// count counts the series of each metric.
func count(t *testing.T, registry *prometheus.Registry) map[string]int {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, f := range families {
		all[f.GetName()] = len(f.GetMetric())
	}
	return all
}

// The controller does not exit if its CRDs are missing. It waits for them and starts once they are installed.
func TestControllerWaitsForItsKinds(t *testing.T) {
	s := newAPIServer(t)
	s.noCRDs = true
	o := quiet(t)
	o.ProbeAddress = testkit.Address(t)
	start(t, s, o)
	probe := func(path string) int {
		r, err := http.Get("http://" + o.ProbeAddress + path)
		if err != nil {
			return 0
		}
		defer r.Body.Close()
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return 0
		}
		return r.StatusCode
	}
	kit.Eventually(t, 10*time.Second, "the controller is healthy without its kinds",
		func() bool { return probe("/healthz") == http.StatusOK })
	s.put(ours+"gridzones/home", typical("home", "DE"))
	s.mu.Lock()
	s.noCRDs = false
	s.mu.Unlock()
	kit.Eventually(t, 60*time.Second, "it is ready", func() bool { return probe("/readyz") == http.StatusOK })
	var z v1alpha1.GridZone
	if !s.read(ours+"gridzones/home", &z) || !meta.IsStatusConditionTrue(z.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("the controller is ready but its zone is not: %+v", z.Status)
	}
}

// zoneReader lists GridZones.
type zoneReader struct {
	client.Reader
	zones []v1alpha1.GridZone
}

func (r zoneReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.GridZoneList).Items = r.zones
	return nil
}

func TestZonesRead(t *testing.T) {
	read, unread := *typical("read", "DE"), *typical("unread", "DE")
	read.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}}
	if err := zonesRead(t.Context(), zoneReader{zones: []v1alpha1.GridZone{read}}); err != nil {
		t.Errorf("not ready because of a zone with failing sources: %v", err)
	}
	if err := zonesRead(t.Context(), zoneReader{zones: []v1alpha1.GridZone{read, unread}}); err == nil {
		t.Error("ready before the first status of a zone")
	}
}

// The controller starts without the API server and retries.
func TestControllerWaitsForTheServer(t *testing.T) {
	api := &rest.Config{
		Host: "http://" + testkit.Address(t), QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}
	c, err := build(context.Background(), api, quiet(t), kit.Silent, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.run(ctx) }()
	select {
	case err := <-ended:
		t.Errorf("returned %v while the server is unavailable", err)
	case <-time.After(time.Second):
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Run did not return within a minute")
	}
}

// At its start, the controller warns about invalid environment variables, and not about variables that depend on
// zones and policies.
func TestVariablesAtTheStart(t *testing.T) {
	t.Setenv("ELECTRICITY_MAP_API_KEY", "s") // a GridZone may refer to it
	t.Setenv("MAX_SCHEDULING_DELAY", "48h")  // an EnergyPolicy may allow it
	t.Setenv("CACHE_TTL", "5m")
	var reported strings.Builder
	log := slog.New(slog.NewTextHandler(&reported, &slog.HandlerOptions{Level: slog.LevelWarn}))
	api := &rest.Config{Host: "http://127.0.0.1:1"}
	if _, err := build(t.Context(), api, quiet(t), log, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	if strings.Count(reported.String(), "Invalid environment variable") != 1 || !strings.Contains(reported.String(), "CACHE_TTL") {
		t.Errorf("told\n%s", reported.String())
	}
}

// One of two replicas writes. When it stops, the other one takes over with the values that the first one has
// written.
func TestOneReplicaLeads(t *testing.T) {
	s := newAPIServer(t)
	s.put(ours+"gridzones/home", typical("home", "DE"))
	o := quiet(t)
	o.LeaderElect = true
	one, err := build(context.Background(), s.config(), o, kit.Silent, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- one.manager.Start(ctx) }()
	kit.Eventually(t, 30*time.Second, "the first replica leads", one.leads)
	two, _ := start(t, s, o)
	writes := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.statuses[ours+"gridzones/home"]
	}
	kit.Eventually(t, 30*time.Second, "the zone is written", func() bool { return writes() > 0 })
	kit.Eventually(t, 30*time.Second, "the second replica has synced", func() bool {
		return two.objects.Synced() && two.synced.Load() == followed
	})
	held := kit.HeldUntil("team", "job", time.Now(), time.Now().Add(time.Hour))
	held.Annotations[v1alpha1.AnnotationAllowedDelay] = "6h"
	s.put("/apis/batch/v1/namespaces/team/jobs/job", held)
	kit.Eventually(t, 10*time.Second, "both replicas count the held Job",
		func() bool { return one.held.Count("") == 1 && two.held.Count("") == 1 })
	if two.leads() || writes() != 1 {
		t.Errorf("the second replica leads = %v; the status was written %d times", two.leads(), writes())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	kit.Eventually(t, 30*time.Second, "the second replica leads", two.leads)
	kit.Eventually(t, 30*time.Second, "it updates the zone", func() bool {
		var z v1alpha1.GridZone
		return s.read(ours+"gridzones/home", &z) &&
			meta.IsStatusConditionTrue(z.Status.Conditions, v1alpha1.ConditionReady) && z.Status.Carbon != nil
	})
	if writes() != 1 {
		t.Errorf("the status was written %d times without a change", writes())
	}
}

// An SQLite file has a single writer. Its process needs no Lease and does not exit if a Lease cannot be renewed.
func TestOnlyReplicasElectALeader(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    bool
	}{
		"SQLite":                  {Options{LeaderElect: true, State: "state"}, false},
		"PostgreSQL":              {Options{LeaderElect: true, State: "state", LedgerDSN: "postgres://db"}, true},
		"no ledger":               {Options{LeaderElect: true}, true},
		"PostgreSQL, not elected": {Options{LedgerDSN: "postgres://db"}, false},
	} {
		if got := managerOptions(c.options, nil, nil, kit.Silent).LeaderElection; got != c.want {
			t.Errorf("%s: elects() = %v", name, got)
		}
	}
}

// heavy returns a zone with two days of five-minute values and percentiles in its status, and an unavailable
// source.
func heavy(name string, now time.Time) *v1alpha1.GridZone {
	z := typical(name, "DE")
	z.Spec.Carbon.Sources = []v1alpha1.CarbonSource{{HTTP: &v1alpha1.HTTPSource{
		URL: "https://127.0.0.1:1/", Value: "x",
	}}}
	asOf := metav1.NewTime(now)
	s := &v1alpha1.SignalStatus{
		Now: 300, Unit: "gCO2e/kWh", Quality: "measured", Source: "http", AsOf: &asOf, ForecastSource: "http",
		Start: metav1.NewTime(now.Truncate(5 * time.Minute)), Step: metav1.Duration{Duration: 5 * time.Minute},
	}
	for i := range heavyValues {
		value := 300 + float64(i)/7
		s.Values, s.Low, s.High = append(s.Values, value), append(s.Low, value*0.9), append(s.High, value*1.1)
	}
	z.Status = v1alpha1.GridZoneStatus{ObservedGeneration: 1, Carbon: s}
	return z
}

const heavyValues = int(48 * time.Hour / (5 * time.Minute))

const apiServerVariable = "KUBENERGY_TEST_API_SERVER"

// TestAPIServerProcess is not a test. It is the process of the API server for the test that measures memory.
func TestAPIServerProcess(t *testing.T) {
	if os.Getenv(apiServerVariable) == "" {
		t.Skip("the API server process of another test")
	}
	s := newAPIServer(t)
	now := time.Now()
	for i := range 100 {
		name := fmt.Sprintf("zone-%02d", i)
		s.put(ours+"gridzones/"+name, heavy(name, now))
	}
	fmt.Println(s.server.URL)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Error(err)
	}
}

// apiServerBeside starts an API server with a hundred heavy zones in another process.
func apiServerBeside(t *testing.T) *rest.Config {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^TestAPIServerProcess$")
	command.Env = append(os.Environ(), apiServerVariable+"=1")
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(stdout).ReadString('\n')
	t.Cleanup(func() {
		stdin.Close()
		if err := command.Wait(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return &rest.Config{
		Host: strings.TrimSpace(url), QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}
}

// The process must not use more than 100 MB of memory with 100 zones that have a full status of two days. It runs no
// other tests, because memory that these have used counts as resident.
//
//test:norace
func TestMemoryWith100Zones(t *testing.T) {
	const variable = "KUBENERGY_MEMORY_PROCESS"
	if testing.Short() {
		t.Skip("measures memory")
	}
	if os.Getenv(variable) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryWith100Zones$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"=1")
		out, err := cmd.CombinedOutput()
		if t.Logf("%s", out); err != nil {
			t.Error(err)
		}
		return
	}
	c, _ := startAt(t, apiServerBeside(t), quiet(t))
	kit.Eventually(t, 60*time.Second, "all zones are ready", func() bool {
		fresh := 0
		for _, site := range c.objects.View().Sites() {
			if site.Carbon.Fresh(time.Now(), 0) && site.Price.Fresh(time.Now(), 0) &&
				site.Carbon.Series.Len() > heavyValues-20 {
				fresh++
			}
		}
		return fresh == 100
	})
	var zones v1alpha1.GridZoneList
	if err := c.direct.List(t.Context(), &zones); err != nil {
		t.Fatal(err)
	}
	for i := range zones.Items {
		if s := zones.Items[i].Status.Carbon; s == nil || len(s.Low) < heavyValues-20 || len(s.High) != len(s.Low) {
			t.Fatalf("unexpected status of %s: %+v", zones.Items[i].Name, s)
		}
	}
	zones = v1alpha1.GridZoneList{}
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	rss := residentBytes(t)
	t.Logf("heap %.1f MB, from the system %.1f MB, resident %.1f MB", mb(m.HeapAlloc), mb(m.Sys), mb(rss))
	if mb(rss) > 100 {
		t.Errorf("%.1f MB of resident memory, want at most 100 MB", mb(rss))
	}
}

func mb(bytes uint64) float64 { return float64(bytes) / 1e6 }

func residentBytes(t testing.TB) uint64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Skip("the resident memory is not available on this system")
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kb, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb * 1024
		}
	}
	t.Skip("the resident memory is not available on this system")
	return 0
}

func TestOptions(t *testing.T) {
	good := NewOptions(flag.NewFlagSet("", flag.ContinueOnError))
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	bad := Options{
		Namespace: "No Good", MetricsAddress: "8443", ProbeAddress: "0", Logging: daemon.Logging{LogFormat: "xml"},
	}
	err := bad.Validate()
	for _, want := range []string{"--namespace", "--metrics-bind-address", "--log-format"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "health-probe") {
		t.Errorf("unexpected error %v for a disabled address", err)
	}
}
