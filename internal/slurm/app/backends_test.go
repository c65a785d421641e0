package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/standalone"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/slurm"
	"github.com/kubenergy/kubenergy/test/kit"
)

// ctld is a fake slurmctld with its slurmrestd. Released jobs start when the test calls start.
type ctld struct {
	jobs []*slurmJob
	ran  []string // names of started jobs
}

type slurmJob struct {
	ID    int    `json:"job_id"`
	Name  string `json:"name"`
	State string `json:"job_state"`
	Why   string `json:"state_reason"`
	Begin int64  `json:"eligible_time,omitempty"`
}

func (c *ctld) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, _ := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/"), "/slurm/v0.0.45/")
	var id int
	switch path {
	case "ping":
	case "jobs":
		_ = json.NewEncoder(w).Encode(map[string]any{"jobs": c.jobs})
		return
	case "job/submit":
		var body struct {
			Script string
			Job    struct {
				Name string
				Hold bool
			}
		}
		if json.NewDecoder(r.Body).Decode(&body) != nil || !body.Job.Hold || !strings.HasPrefix(body.Script, "#!/bin/sh\nexec '") {
			http.Error(w, "want a script and a hold", http.StatusBadRequest)
			return
		}
		c.jobs = append(c.jobs, &slurmJob{ID: len(c.jobs) + 1, Name: body.Job.Name, State: "PENDING", Why: "JobHeldUser"})
		fmt.Fprintf(w, `{"job_id": %d}`, len(c.jobs))
		return
	default:
		_, _ = fmt.Sscanf(path, "job/%d", &id)
		j := c.jobs[id-1]
		var body struct {
			Hold  *bool
			Begin *struct{ Number int64 } `json:"begin_time"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		switch {
		case r.Method == http.MethodDelete && j.State == "PENDING":
			j.State = "CANCELLED"
		case body.Begin != nil:
			j.Begin = body.Begin.Number
		case j.State == "PENDING" && body.Hold != nil && *body.Hold:
			j.Why = "JobHeldUser"
		case j.State == "PENDING" && body.Hold != nil:
			j.Why = "None"
		}
	}
	fmt.Fprint(w, `{}`)
}

// start starts all released jobs.
func (c *ctld) start() {
	for _, j := range c.jobs {
		if j.State == "PENDING" && j.Why == "None" {
			j.State = "RUNNING"
			c.ran = append(c.ran, j.Name)
		}
	}
}

// twoWorlds contains a Slurm with one node, a cluster with one node, and the backends, which may crash.
type twoWorlds struct {
	mu      sync.Mutex // guards ctld and calls
	t       *testing.T
	ctld    *ctld
	cluster *fake.Clientset
	folder  string
	config  string                     // directory of YAML files
	write   func(string, []byte) error // replaces writing objects.json if not nil
	names   map[string]string          // job names by name in Slurm
	url     string
	view    *kube.View
	now     time.Time
	calls   int  // number of requests before a crash; negative if there is none
	done    bool // the last request takes effect before the crash
	booked  []string
	said    error // error of the last pass
	delay   string
	full    bool // other jobs wait for resources in Slurm
	*backends
}

func newWorlds(t *testing.T) *twoWorlds {
	t.Helper()
	w := &twoWorlds{t: t, ctld: &ctld{}, folder: t.TempDir(), config: t.TempDir(), names: map[string]string{}, now: time.Now().UTC().Truncate(time.Hour), calls: -1}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		last := w.dies()
		if !last || w.done {
			w.ctld.ServeHTTP(rw, r)
		}
		if last {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	w.cluster = fake.NewSimpleClientset(nodeOf("k1", 8))
	gvr := batchv1.SchemeGroupVersion.WithResource("jobs")
	w.cluster.PrependReactor("*", "jobs", func(a k8stesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		var o runtime.Object
		var err error
		last := w.dies()
		if last && !w.done {
			return true, nil, errors.New("the connection is lost")
		}
		switch a := a.(type) {
		case k8stesting.CreateAction:
			job := a.GetObject().(*batchv1.Job)
			job.Spec.Suspend = new(true) // as done by the scheduler
			o, err = job, w.cluster.Tracker().Create(gvr, job, a.GetNamespace())
		case k8stesting.DeleteAction:
			err = w.cluster.Tracker().Delete(gvr, a.GetNamespace(), a.GetName())
		default:
			return false, nil, nil
		}
		if last {
			err = errors.New("the connection is lost")
		}
		return true, o, err
	})
	w.price(1)
	w.restart()
	return w
}

func nodeOf(name string, cores int64) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1.LabelHostname: name, v1.LabelTopologyRegion: "of-" + name,
	}}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourceCPU: *resource.NewQuantity(cores, resource.DecimalSI), v1.ResourceMemory: resource.MustParse("64Gi"),
	}}}
}

// dies counts a request and reports whether the process crashes during it.
func (w *twoWorlds) dies() bool {
	w.calls--
	return w.calls == 0
}

// price sets the power per core in the cluster, as a multiple of the power per core in Slurm.
func (w *twoWorlds) price(times float64) {
	w.t.Helper()
	series, err := grid.NewSeries(w.now, time.Hour, []float64{300, 300, 300, 300})
	if err != nil {
		w.t.Fatal(err)
	}
	site := &sched.Site{Name: "here", Carbon: grid.Signal{Series: series, AsOf: w.now}}
	profile := func(name string, watts float64) *kube.NodeProfile {
		return &kube.NodeProfile{
			Profile: energy.Profile{Name: name, Idle: 10, Max: energy.Watts(10 + watts)}, Selector: map[string]string{v1.LabelHostname: name},
		}
	}
	c := kube.Contents{
		Sites: []*sched.Site{site}, DefaultSite: "here", Profiles: []*kube.NodeProfile{profile("k1", 80*times), profile("s1", 80)},
	}
	if w.view, err = c.View(); err != nil {
		w.t.Fatal(err)
	}
}

// restart simulates a new process with the same files.
func (w *twoWorlds) restart() {
	w.t.Helper()
	store, err := standalone.New(standalone.Options{
		Folder: w.config, State: filepath.Join(w.folder, "objects.json"), Log: slog.New(slog.DiscardHandler),
		Write: w.write,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	token := filepath.Join(w.folder, "token")
	kit.Write(w.t, token, "x")
	account, err := slurm.NewClient(slurm.ClientOptions{URL: w.url, TokenFile: token})
	if err != nil {
		w.t.Fatal(err)
	}
	w.backends = &backends{
		store: store, view: func() *kube.View { return w.view }, account: account, cluster: w.cluster,
		now: func() time.Time { return w.now }, record: func(r ledger.Record) { w.booked = append(w.booked, r.Action) },
	}
}

// submit stores a Job like POST /ingest.
func (w *twoWorlds) submit(name, backend string, cores int64) {
	w.t.Helper()
	job := &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "physics", Labels: map[string]string{"app.kubernetes.io/created-by": "kubenergy-ingest"},
			Annotations: map[string]string{v1alpha1.AnnotationStrategy: "energy", v1alpha1.AnnotationExpectedDuration: "1h"},
		},
		Spec: batchv1.JobSpec{Template: v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "job", Image: "busybox:1.37", Command: []string{"sleep", "60"}, Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(cores, resource.DecimalSI)},
			},
		}}}}},
	}
	if backend != "" {
		job.Annotations[v1alpha1.AnnotationBackend] = backend
	}
	if w.delay != "" {
		job.Annotations[v1alpha1.AnnotationAllowedDelay] = w.delay
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	if err == nil {
		err = w.store.Put(kindJob, &unstructured.Unstructured{Object: content})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// sees performs a pass.
func (w *twoWorlds) sees() {
	w.t.Helper()
	var jobs []slurm.Job
	w.mu.Lock()
	text, err := json.Marshal(w.ctld.jobs)
	w.mu.Unlock()
	if err == nil {
		err = json.Unmarshal(text, &jobs)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if w.full {
		jobs = append(jobs, slurm.Job{ID: 99, State: []string{"PENDING"}, Reason: "Resources"})
	}
	w.now = w.now.Add(time.Minute)
	nodes := []slurm.Node{{Name: "s1", CPUs: 8, Memory: 64 << 10, State: []string{"IDLE"}, Partitions: []string{"main"}}}
	for _, o := range w.store.All(kindJob) {
		w.names["kubenergy-"+string(o.GetUID())] = o.GetName()
	}
	if w.said = w.look(w.t.Context(), nodes, jobs); w.said != nil {
		w.t.Log(w.said)
	}
}

// locked calls f while no request is processed.
func (w *twoWorlds) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *twoWorlds) where(name string) string {
	o := w.store.Object(kindJob, "physics", name)
	if o == nil {
		return "gone"
	}
	return o.GetAnnotations()[v1alpha1.AnnotationRunsOn]
}

// TestWhereTheSimulatorSays verifies that jobs are placed in the backend that the simulator chooses for the nodes
// of both backends.
func TestWhereTheSimulatorSays(t *testing.T) {
	r := rand.New(rand.NewPCG(24, 5))
	for n := range 40 {
		w := newWorlds(t)
		times, cores := 0.2+2*r.Float64(), 1+r.Int64N(8)
		w.price(times)
		w.submit("a", "", cores)
		w.sees()
		site := w.view.Sites()[0]
		s := &sim.Scenario{Start: w.now, Sites: []*sched.Site{site}, Jobs: []sched.Job{{
			ID: "a", Submitted: w.now, Duration: time.Hour, Request: sched.Resources{MilliCPU: 1000 * cores},
		}}}
		for _, name := range []string{"k1", "s1"} {
			has := sched.Resources{MilliCPU: 8000, Memory: 64 << 30}
			node, _ := w.view.Node(nodeOf(name, 8), has, has, 0)
			s.Nodes = append(s.Nodes, node)
		}
		strategy, err := strategy.New("energy")
		if err != nil {
			t.Fatal(err)
		}
		result, err := sim.Run(t.Context(), s, "energy", strategy)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"k1": "kubernetes", "s1": "slurm"}[result.Outcomes[0].Placed.Node]
		if got, _, _ := strings.Cut(w.where("a"), "/"); got != want {
			t.Errorf("%d: %d cores with power ratio %.2f run in %q, want %q", n, cores, times, got, want)
		}
	}
}

func TestBackendThatIsNamed(t *testing.T) {
	w := newWorlds(t)
	w.submit("large", "any", 100)
	w.sees()
	if w.said == nil || !strings.Contains(w.said.Error(), "large: no node can run the job") || w.where("large") != "" {
		t.Errorf("unexpected error for a job that does not fit on any node: %v", w.said)
	}
	w.price(0.1)
	w.submit("slurm", "slurm", 1)
	w.submit("kubernetes", "kubernetes", 1)
	w.submit("any", "any", 1)
	w.sees()
	for name, want := range map[string]string{"slurm": "slurm/1", "kubernetes": "kubernetes/kubernetes", "any": "kubernetes/any"} {
		if got := w.where(name); got != want {
			t.Errorf("job %s runs on %q, want %q", name, got, want)
		}
	}
}

// TestMovedOnceRunsOnce verifies that a job that has not started is moved once in either direction and runs once,
// with a crash at any request.
func TestMovedOnceRunsOnce(t *testing.T) {
	for _, first := range []string{"slurm", "kubernetes"} {
		for calls := range 25 {
			for _, done := range []bool{false, true} {
				t.Run(fmt.Sprint(first, calls, done), func(t *testing.T) { movesOnce(t, first, calls, done) })
			}
		}
	}
}

func movesOnce(t *testing.T, first string, calls int, done bool) {
	w := newWorlds(t)
	w.done = done
	cheap, dear := 0.1, 10.0
	if first == "slurm" {
		cheap, dear = dear, cheap
	}
	w.price(cheap)
	w.submit("a", "any", 1)
	if calls > 0 {
		w.calls = calls // includes the first request
	}
	set := func(calls int) (previous int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		previous, w.calls = w.calls, calls
		return previous
	}
	step := func() {
		before := set(-1)
		set(before)
		w.sees()
		if after := set(-1); before > 0 && after <= 0 {
			w.restart()
		} else {
			set(after)
		}
	}
	for range 4 {
		step()
	}
	if got, _, _ := strings.Cut(w.where("a"), "/"); got != first {
		t.Fatalf("runs on %q, want %q", got, first)
	}
	w.price(dear)
	for range 6 {
		step()
	}
	if got, _, _ := strings.Cut(w.where("a"), "/"); got == first || got == "gone" {
		t.Fatalf("runs on %q, but the other backend is cheaper", got)
	}
	w.price(cheap)
	for range 4 {
		step()
	}
	set(-1)
	w.ctld.start()
	runs := len(w.ctld.ran)
	jobs, err := w.cluster.BatchV1().Jobs("physics").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if runs += len(jobs.Items); runs != 1 {
		t.Errorf("%d runs, want one: Slurm %q, cluster %d", runs, w.ctld.ran, len(jobs.Items))
	}
	moves := 0
	for _, action := range w.booked {
		if action == "move" {
			moves++
		}
	}
	if moves != 1 {
		t.Errorf("%d moves were recorded, want 1: %q", moves, w.booked)
	}
}

// TestStartedStays verifies that a job is not moved if it starts in the meantime.
func TestStartedStays(t *testing.T) {
	w := newWorlds(t)
	w.price(10)
	w.submit("a", "any", 1)
	for range 2 {
		w.sees()
	}
	w.ctld.start()
	w.price(0.1)
	for range 4 {
		w.sees()
	}
	if got := w.where("a"); got != "slurm/1" {
		t.Errorf("runs on %q", got)
	}
	w.ctld.jobs[0].State = "COMPLETED"
	w.sees()
	if got := w.where("a"); got != "gone" {
		t.Errorf("the finished job is still stored with place %q", got)
	}
}

// toWorld submits a job that is cheapest in the given backend, and verifies that it is sent there.
func toWorld(t *testing.T, backend string) *twoWorlds {
	t.Helper()
	w := newWorlds(t)
	w.price(map[string]float64{"slurm": 10, "kubernetes": 0.1}[backend])
	w.submit("a", "any", 1)
	for range 3 {
		w.sees()
	}
	if got, _, _ := strings.Cut(w.where("a"), "/"); got != backend {
		t.Fatalf("runs on %q, want %q", got, backend)
	}
	return w
}

// TestAnotherOfItsName verifies that an unrelated Job with the same name in the cluster is neither used nor
// deleted.
func TestAnotherOfItsName(t *testing.T) {
	w := newWorlds(t)
	theirs := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "physics"}}
	theirs.Status.CompletionTime = &metav1.Time{Time: w.now}
	if err := w.cluster.Tracker().Add(theirs); err != nil {
		t.Fatal(err)
	}
	w.submit("a", "kubernetes", 1)
	for range 4 {
		w.sees()
	}
	if w.where("a") != "kubernetes" || w.said == nil || !strings.Contains(w.said.Error(), "Job with this name") {
		t.Errorf("place = %q, error = %v", w.where("a"), w.said)
	}
	if _, err := w.cluster.Tracker().Get(batchv1.SchemeGroupVersion.WithResource("jobs"), "physics", "a"); err != nil {
		t.Error(err)
	}
}

// TestDelayGoesOn verifies that only the remaining delay applies after a move.
func TestDelayGoesOn(t *testing.T) {
	w := newWorlds(t)
	w.now = time.Now().UTC()
	w.price(10)
	w.delay = "6h"
	w.submit("a", "any", 1)
	w.sees()
	w.now = w.now.Add(2 * time.Hour)
	w.price(0.1)
	for range 6 {
		w.sees()
	}
	job, err := w.cluster.BatchV1().Jobs("physics").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	left, err := time.ParseDuration(job.Annotations[v1alpha1.AnnotationAllowedDelay])
	if err != nil || left > 4*time.Hour || left < 4*time.Hour-10*time.Minute {
		t.Errorf("remaining delay = %v, error %v", left, err)
	}
}

// TestRanBeforeItWasCancelled verifies that a job runs once if an administrator released it during a downtime,
// after its cancellation was stored as the next step.
func TestRanBeforeItWasCancelled(t *testing.T) {
	w := toWorld(t, "slurm")
	w.price(0.1)
	for range 2 {
		w.sees() // held, then canceled
	}
	w.locked(func() { w.ctld.jobs[0].State = "COMPLETED" })
	for range 3 {
		w.sees()
	}
	jobs, err := w.cluster.BatchV1().Jobs("physics").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(jobs.Items) > 0 || w.where("a") != "gone" {
		t.Errorf("job has run, but its place is %q and the cluster has %d Jobs: %v", w.where("a"), len(jobs.Items), err)
	}
}

// TestSubmittedAndLetGo verifies that a job submitted just before a crash is found, even if it has been released
// since.
func TestSubmittedAndLetGo(t *testing.T) {
	w := newWorlds(t)
	w.price(10)
	w.submit("a", "any", 1)
	w.locked(func() { w.calls, w.done = 2, true }) // ping and submit
	w.sees()
	w.locked(func() {
		w.ctld.jobs[0].Why = "None"
		w.ctld.start()
		w.calls = -1
	})
	w.restart()
	for range 3 {
		w.sees()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ctld.jobs) != 1 || w.where("a") != "slurm/1" {
		t.Errorf("%d jobs in Slurm, place = %q", len(w.ctld.jobs), w.where("a"))
	}
}

// TestClusterIsNotKnown verifies that jobs are not moved without a cluster, and that a job held for a move is
// released.
func TestClusterIsNotKnown(t *testing.T) {
	w := toWorld(t, "kubernetes")
	w.backends.cluster = nil
	w.sees()
	if w.said == nil || !strings.Contains(w.said.Error(), "--ingest-kubeconfig is missing") {
		t.Errorf("unexpected error: %v", w.said)
	}
	w = toWorld(t, "slurm")
	w.price(0.1)
	w.sees() // held for the move
	w.locked(func() {
		if w.ctld.jobs[0].Why != "JobHeldUser" {
			t.Fatalf("job = %+v, want a hold", w.ctld.jobs[0])
		}
	})
	w.backends.cluster = nil
	for range 3 {
		w.sees()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctld.jobs[0].Why != "None" || w.where("a") != "slurm/1" {
		t.Errorf("job = %+v, place = %q", w.ctld.jobs[0], w.where("a"))
	}
}

// TestClusterIsAway verifies that an unavailable cluster gets only one request per pass.
func TestClusterIsAway(t *testing.T) {
	w := newWorlds(t)
	w.price(0.1)
	for i := range 5 {
		w.submit(fmt.Sprint("j", i), "kubernetes", 1)
	}
	w.sees()
	asked := 0
	w.cluster.PrependReactor("*", "*", func(k8stesting.Action) (bool, runtime.Object, error) {
		asked++
		return true, nil, context.DeadlineExceeded
	})
	w.sees()
	if asked != 1 || w.said == nil || strings.Count(w.said.Error(), "job ") != 1 {
		t.Errorf("got %d requests and error %v, want one request and one error", asked, w.said)
	}
}

// TestRunNowByItsName verifies that run-now also starts a job that waits for its BeginTime.
func TestRunNowByItsName(t *testing.T) {
	w := toWorld(t, "slurm")
	w.locked(func() { w.ctld.jobs[0].Begin = w.now.Add(5 * time.Hour).Unix() })
	o := w.store.Object(kindJob, "physics", "a").DeepCopy()
	o.SetAnnotations(map[string]string{v1alpha1.AnnotationRunsOn: "slurm/1", v1alpha1.AnnotationRunNow: "true"})
	if err := w.store.Put(kindJob, o); err != nil {
		t.Fatal(err)
	}
	w.sees()
	w.mu.Lock()
	defer w.mu.Unlock()
	if begin := w.ctld.jobs[0].Begin; begin > w.now.Unix() {
		t.Errorf("BeginTime = %d, want at most %d", begin, w.now.Unix())
	}
}

// TestNoRoomHere verifies that a job is moved if its backend has no capacity and the other one is cheaper than an
// empty node here.
func TestNoRoomHere(t *testing.T) {
	w := toWorld(t, "slurm")
	w.price(0.1)
	w.full = true
	for range 5 {
		w.sees()
	}
	if got := w.where("a"); got != "kubernetes/a" {
		t.Errorf("place = %q, want kubernetes/a", got)
	}
}

// TestSlurmIsAway verifies that an unavailable slurmrestd gets a request for only one job per pass, and for another
// job in the next pass.
func TestSlurmIsAway(t *testing.T) {
	w := newWorlds(t)
	w.price(10)
	for i := range 3 {
		w.submit(fmt.Sprint("j", i), "slurm", 1)
	}
	token := filepath.Join(w.folder, "token")
	var err error
	if w.account, err = slurm.NewClient(slurm.ClientOptions{URL: "http://127.0.0.1:1", TokenFile: token}); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		w.sees()
		if w.said == nil || strings.Count(w.said.Error(), "job ") != 1 ||
			!strings.Contains(w.said.Error(), fmt.Sprint("job physics/j", i%3)) {
			t.Errorf("pass %d: %v", i, w.said)
		}
	}
}
