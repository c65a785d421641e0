package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// TestIngest submits jobs with the field names of KubEnergySched, with those of its trace sender, and with all
// additional fields.
func TestIngest(t *testing.T) {
	w := newWorld(t)
	h := w.handler()
	answer := ask(t, h, "POST", "/ingest", tenantA, `{"ID":"job-1","CPURequirement":2,"EnergyPriority":0.8}`)
	wantStatus(t, answer, http.StatusCreated, "KubEnergySched's job")
	var got Submitted
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	var job batchv1.Job
	if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: "a", Name: "job-1"}, &job); err != nil {
		t.Fatal(err)
	}
	pod := job.Spec.Template
	if got.Job.Name != "job-1" || got.Job.Namespace != "a" || pod.Spec.SchedulerName != "kubenergy" ||
		pod.Spec.Containers[0].Image != JobImage {
		t.Errorf("%+v", job)
	}
	if cores := pod.Spec.Containers[0].Resources.Requests.Cpu(); cores.MilliValue() != 2000 {
		t.Errorf("%v cores", cores)
	}
	for _, annotations := range []map[string]string{job.Annotations, pod.Annotations} {
		if _, weighed := annotations[v1alpha1.AnnotationPerformanceWeight]; weighed ||
			annotations[v1alpha1.AnnotationStrategy] != "carbon" { // hybrid requires benchmarks
			t.Errorf("%v", annotations)
		}
	}
	if job.Annotations[v1alpha1.AnnotationSubmittedBy] != "a" || got.Expected.Strategy == "" ||
		strings.Join(pod.Spec.Containers[0].Command, " ") != "sleep 60" {
		t.Errorf("%v, %+v", job.Annotations, got.Expected)
	}
	if *pod.Spec.AutomountServiceAccountToken || !*pod.Spec.SecurityContext.RunAsNonRoot ||
		*pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation {
		t.Error("the pod has unnecessary privileges")
	}
	wantStatus(t, ask(t, h, "POST", "/ingest", tenantA, `{"id":"job-1","cpu":2}`), http.StatusConflict, "again")

	wantStatus(t, ask(t, h, "POST", "/ingest", tenantA,
		`{"id":"trace-7","submit_time":"2026-01-01T00:00:00Z","duration":300000000000,"cpu":0.25,"memory":512.5}`),
		http.StatusCreated, "the trace sender's")
	if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: "a", Name: "trace-7"}, &job); err != nil {
		t.Fatal(err)
	}
	c := job.Spec.Template.Spec.Containers[0]
	if strings.Join(c.Command, " ") != "sleep 300" || c.Resources.Requests.Cpu().MilliValue() != 250 ||
		c.Resources.Requests.Memory().Value() != 537395200 ||
		job.Annotations[v1alpha1.AnnotationExpectedDuration] != "5m0s" {
		t.Errorf("%+v, %v", c, job.Annotations)
	}

	wantStatus(t, ask(t, h, "POST", "/ingest", tenantA, `{"id":"tiny","cpu":1e-300,"memory":1e-999999999}`),
		http.StatusCreated, "tiny CPU and memory requests")

	ours := `{"id":"ours","cpu":1,"namespace":"a","image":"example.org/x@sha256:0","command":["run","=x"],"duration":"10m","allowedDelay":"2h","memory":"1Gi","strategy":"carbon+window","workloadClass":"training"}`
	answer = ask(t, h, "POST", "/ingest", tenantA, ours)
	wantStatus(t, answer, http.StatusCreated, "ours")
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	a := got.Job.Annotations
	if a[v1alpha1.AnnotationAllowedDelay] != "2h0m0s" || a[v1alpha1.AnnotationStrategy] != "carbon+window" ||
		got.Job.Spec.Template.Labels[v1alpha1.LabelWorkloadClass] != "training" ||
		got.Job.Spec.Template.Spec.Containers[0].Image != "example.org/x@sha256:0" {
		t.Errorf("%+v", got.Job)
	}
}

// TestIngestByBenchmarks verifies that a priority selects the strategy hybrid if a node has benchmarks of the job's
// class, and carbon otherwise. An explicit strategy takes precedence.
func TestIngestByBenchmarks(t *testing.T) {
	w := newWorld(t)
	view, err := (&kube.Contents{Benchmarks: map[string]map[string]energy.Benchmark{
		"training": {"worker1": {Rate: 10, Power: 80, Idle: 50}},
	}}).View()
	if err != nil {
		t.Fatal(err)
	}
	w.config.View = func() *kube.View { return view }
	h := w.handler()
	for body, want := range map[string][2]string{ // strategy and weight
		`{"ID":"a","CPURequirement":1,"EnergyPriority":0.8}`:                               {"carbon", ""},
		`{"ID":"b","cpu":1,"priority":0.8,"workloadClass":"training"}`:                     {"hybrid", "0.2"},
		`{"ID":"c","cpu":1,"priority":0.8,"workloadClass":"rendering"}`:                    {"carbon", ""},
		`{"ID":"d","cpu":1,"priority":0.8,"strategy":"hybrid"}`:                            {"hybrid", "0.2"},
		`{"ID":"e","cpu":1,"priority":0.8,"strategy":"energy","workloadClass":"training"}`: {"energy", ""},
		`{"ID":"f","cpu":1,"workloadClass":"training"}`:                                    {"", ""},
	} {
		answer := ask(t, h, "POST", "/ingest", tenantA, body)
		wantStatus(t, answer, http.StatusCreated, body)
		var got Submitted
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		a := got.Job.Annotations
		if a[v1alpha1.AnnotationStrategy] != want[0] || a[v1alpha1.AnnotationPerformanceWeight] != want[1] {
			t.Errorf("%s: %v", body, a)
		}
	}
}

// TestIngestExpects verifies that the expected node is the most efficient one with enough capacity.
func TestIngestExpects(t *testing.T) {
	w := newWorld(t)
	h := w.handler()
	submit := func(id, body string) Expected {
		t.Helper()
		answer := ask(t, h, "POST", "/ingest", admin, `{"id":"`+id+`","namespace":"a",`+body+`}`)
		wantStatus(t, answer, http.StatusCreated, id)
		var got Submitted
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		return got.Expected
	}
	e := submit("one", `"cpu":4,"strategy":"energy+now","duration":"1h"`)
	if e.Node != "worker1" || e.Strategy != "energy+now" || e.Held || e.KWh == nil || *e.KWh <= 0 || e.Grams == nil ||
		*e.CarbonIntensity != 200 {
		t.Errorf("%+v", e)
	}
	// A pod that uses most of worker1, so that the next Job only fits on worker2.
	full := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "full"},
		Spec: v1.PodSpec{NodeName: "worker1", Containers: []v1.Container{{
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: *newNode("", "7",
				"").Status.Capacity.Cpu()}},
		}}},
	}
	if err := w.client.Create(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Minute)
	if e := submit("two", `"cpu":4,"strategy":"energy+now"`); e.Node != "worker2" {
		t.Errorf("%+v", e)
	}
	w.now = w.now.Add(time.Minute)
	if e := submit("three", `"cpu":500`); e.Node != "" || !strings.Contains(e.Note, "no node fits") {
		t.Errorf("%+v", e)
	}
	var worker2 v1.Node
	if err := w.client.Get(t.Context(), types.NamespacedName{Name: "worker2"}, &worker2); err != nil {
		t.Fatal(err)
	}
	worker2.Spec.Taints = []v1.Taint{{Key: "own", Effect: v1.TaintEffectNoSchedule}}
	if err := w.client.Update(t.Context(), &worker2); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Minute)
	if e := submit("four", `"cpu":4,"strategy":"energy+now"`); e.Node != "" {
		t.Errorf("%+v", e)
	}
	// The carbon intensity decreases within two hours.
	if e := submit("five", `"cpu":1,"strategy":"carbon+window","allowedDelay":"2h","duration":"30m"`); !e.Held ||
		e.Start == nil || !e.Start.After(w.now) {
		t.Errorf("%+v", e)
	}
	// Settings without an effect are reported.
	for i, c := range []struct{ body, want string }{
		{`"strategy":"carbon+window/shortest"`, "the order /shortest in kubenergy.io/strategy has no effect"},
		{`"strategy":"energy","energyPriority":0.5`, "EnergyPriority has no effect with the strategy energy+guarded"},
		{`"energyPriority":0.5`, "EnergyPriority has no effect with the strategy carbon+guarded"},
		{`"strategy":"profile","energyPriority":0.5`, ""},
		{`"strategy":"carbon+residual"`, "does not pause this work"},
	} {
		e := submit(fmt.Sprint("no-effect-", i), `"cpu":1,`+c.body)
		if c.want == "" && strings.Contains(e.Note, "effect") || !strings.Contains(e.Note, c.want) {
			t.Errorf("%s: the note is %q, want %q", c.body, e.Note, c.want)
		}
	}
	w.config.View = kube.Unsettled
	if e := w.expectOf(t, `{"id":"six","cpu":1}`); e.Node != "" || !strings.Contains(e.Note, "no preference") &&
		!strings.Contains(e.Note, "no node") {
		t.Errorf("%+v", e)
	}
}

func (w *world) expectOf(t *testing.T, body string) Expected {
	t.Helper()
	answer := ask(t, w.handler(), "POST", "/ingest", admin, body)
	wantStatus(t, answer, http.StatusCreated, body)
	var got Submitted
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	return got.Expected
}

func TestIngestRefuses(t *testing.T) {
	w := newWorld(t)
	h := w.handler()
	for body, want := range map[string]int{
		``: 400, `{`: 400, `[]`: 400, `{"ID":"x","cpu":1}{}`: 400, `{"ID":"x","cpu":1,"namespce":"a"}`: 400,
		`{"ID":"x","cpu":"1"}`: 400, `{"ID":{},"cpu":1}`: 400, `null`: 422,
		`{"ID":"x"}`: 422, `{"cpu":1}`: 422, `{"ID":"x","cpu":0}`: 422, `{"ID":"x","cpu":-1}`: 422,
		`{"ID":"x","cpu":1e9}`: 422, `{"ID":"x","cpu":1e999}`: 400,
		`{"ID":"X","cpu":1}`: 422, `{"ID":"../x","cpu":1}`: 422, `{"ID":"` + strings.Repeat("x", 64) +
			`","cpu":1}`: 422, `{"ID":"x","cpu":1,"CPURequirement":2}`: 422,
		`{"ID":"x","cpu":1,"EnergyPriority":1.1}`: 422, `{"ID":"x","cpu":1,"priority":-0.1}`: 422,
		`{"ID":"x","cpu":1,"strategy":"best"}`: 422, `{"ID":"x","cpu":1,"image":"a b"}`: 422,
		`{"ID":"x","cpu":1,"duration":"-1h"}`: 422, `{"ID":"x","cpu":1,"duration":"long"}`: 400,
		`{"ID":"x","cpu":1,"allowedDelay":"99999h"}`: 422, `{"ID":"x","cpu":1,"memory":"-1"}`: 400,
		`{"ID":"x","cpu":1,"memory":"1e30"}`: 400, `{"ID":"x","cpu":1,"memory":-1}`: 400,
		`{"ID":"x","cpu":1,"memory":"1e-999999999"}`: 400, `{"ID":"x","cpu":1,"memory":"1E9"}`: 400,
		`{"ID":"x","cpu":1,"workloadClass":"a b"}`: 422, `{"ID":"x","cpu":1,"command":["a\u0000"]}`: 422,
		`{"ID":"x","cpu":1,"command":["` + strings.Repeat("a", 5000) + `"]}`: 422, `{"ID":"x","cpu":1,"command":[` +
			strings.Repeat(`"a",`, 300) + `"a"]}`: 422,
		strings.Repeat(" ", 70<<10): 413,
	} {
		wantStatus(t, ask(t, h, "POST", "/ingest", tenantA, body), want, shortened(body))
	}
	var jobs batchv1.JobList
	if err := w.client.List(t.Context(), &jobs); err != nil || len(jobs.Items) != 0 {
		t.Errorf("%d Jobs, %v", len(jobs.Items), err)
	}
	w.config.JobNamespaces = nil
	wantStatus(t, ask(t, w.handler(), "POST", "/ingest", admin, `{"ID":"x","cpu":1}`), http.StatusForbidden, "off")
	w.config.JobNamespaces = []string{"a"}
	wantStatus(t, ask(t, w.handler(), "POST", "/ingest", admin, `{"ID":"x","cpu":1}`), http.StatusCreated,
		"default image")

	w.config.Worlds = true
	for _, body := range []string{
		`{"ID":"slurm-7","cpu":1}`, `{"ID":"y","cpu":1,"backend":"slurm","image":"example.org/x"}`,
	} {
		wantStatus(t, ask(t, w.handler(), "POST", "/ingest", admin, body), http.StatusUnprocessableEntity, body)
	}
	w.config.Worlds = false

	batchJobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	for _, c := range []struct {
		err  error
		want int
	}{
		{apierrors.NewForbidden(batchJobs, "x", errors.New("quota")), 403},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "x", nil), 422},
		{apierrors.NewNotFound(batchJobs, "x"), 403},
		{apierrors.NewTooManyRequests("", 1), 503},
		{apierrors.NewInternalError(errors.New("the disk is full")), 503},
		{fmt.Errorf("dialing secret host: %w", syscall.ECONNREFUSED), 503},
		{errors.New("secret host away"), 504},
		{apierrors.NewTimeoutError("secret", 1), 504},
	} {
		w.config.Client = refusing{w.client, c.err}
		answer := ask(t, w.handler(), "POST", "/ingest", admin, `{"ID":"x","cpu":1}`)
		wantStatus(t, answer, c.want, c.err.Error())
		if strings.Contains(answer.Body.String(), "secret") {
			t.Error(answer.Body)
		}
	}
}

type refusing struct {
	client.Client
	err error
}

func (r refusing) Create(context.Context, client.Object, ...client.CreateOption) error { return r.err }

// TestIngestIsMarked verifies that policy.ReadJob can parse the annotations of created Jobs.
func TestIngestIsMarked(t *testing.T) {
	for _, body := range []string{
		`{"id":"a","cpu":1,"priority":0}`, `{"id":"a","cpu":1,"priority":1}`,
		`{"id":"a","cpu":0.0001,"priority":0.333333333333}`, `{"id":1,"cpu":1,"strategy":"hybrid","priority":0.5}`,
		`{"id":"a","cpu":1,"strategy":"carbon","priority":0.5,"duration":"1ns","allowedDelay":1}`,
	} {
		asked, err := readSubmission([]byte(body))
		if err != nil {
			t.Fatal(body, err)
		}
		job, err := asked.kubeJob()
		if err != nil {
			t.Fatal(body, err)
		}
		work, err := policy.ReadJob(job)
		if err != nil || work.Scheduler != "kubenergy" || work.Marks.Where == "" {
			t.Errorf("%s: %+v, %v", body, work.Marks, err)
		}
	}
}

func FuzzSubmission(f *testing.F) {
	for _, seed := range []string{
		`{"ID":"job-1","CPURequirement":2,"EnergyPriority":0.8}`,
		`{"id":"trace-7","submit_time":"2026-01-01T00:00:00Z","duration":300000000000,"cpu":0.25,"memory":512.5}`,
		`{"id":1,"cpu":1e3,"priority":1,"namespace":"a","image":"i","command":["a"],"duration":"1h","allowedDelay":"1h","memory":"1Gi","strategy":"carbon","workloadClass":"c"}`, `{"id":null}`, `{`, `{"id":"a","cpu":1e-300,"memory":"1e-999999999"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer memtest.Limit(t, 100*len(data))()
		asked, err := readSubmission(data)
		if err != nil {
			var known *failure
			if !errors.As(err, &known) || known.status/100 != 4 {
				t.Fatal(err)
			}
			return
		}
		job, err := asked.kubeJob()
		if err != nil {
			return
		}
		if _, err := policy.ReadJob(job); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if cores := job.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu(); cores.MilliValue() < 1 ||
			cores.MilliValue() > maxCores*1000 {
			t.Fatalf("%s: %v cores", data, cores)
		}
		if _, err := json.Marshal(job); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzDecisions tests decisions from an untrusted client.
func FuzzDecisions(f *testing.F) {
	f.Add([]byte(`{"decisions":[{"id":"a","at":"2026-06-01T12:00:00Z","action":"place","namespace":"n",
		"energyJoules":1}]}`))
	f.Add([]byte("[" + strings.Repeat("{},", 1<<17) + "{}]"))
	f.Add([]byte(` [{"action":"hold","namespace":"n","id":"b","at":"2026-06-01T12:00:00Z","carbonIntensity":1e18}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		records, err := readDecisions(text)
		if err != nil && records != nil || len(records) > maxRecordCount {
			t.Fatalf("%d decisions: %v", len(records), err)
		}
		for _, r := range records {
			if _, err := json.Marshal(r); err != nil || r.Namespace == "" || !slices.Contains(actions, r.Action) {
				t.Fatalf("%+v: %v", r, err)
			}
		}
	})
}
