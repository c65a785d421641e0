package hold

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/test/kit"
)

// server simulates the part of an API server that the loop uses, with a given number of held Jobs. It streams lists
// of Jobs, and accepts all other requests.
type server struct {
	jobs     int
	template string // JSON of a Job, with NUMBER in place of the number of the Job
	patched  atomic.Int64
	streams  atomic.Int64
}

// heldJob returns a held Job with the usual fields set by its owner and the API server.
func heldJob(created time.Time) *batchv1.Job {
	suspended, one, six := true, int32(1), int32(6)
	annotations := map[string]string{v1alpha1.AnnotationAllowedDelay: "12h", v1alpha1.AnnotationExpectedDuration: "10m"}
	env := []v1.EnvVar{{Name: "STAGE", Value: "training"}, {Name: "INPUT", Value: "s3://bucket/NUMBER/input"}}
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "training-NUMBER", UID: "0b0f3a52-1111-4222-8333-0000NUMBER",
			ResourceVersion:   "1NUMBER",
			CreationTimestamp: metav1.NewTime(created), Annotations: annotations,
			Labels: map[string]string{v1alpha1.LabelHeld: "true", "app": "training"},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate,
				FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:suspend":{},"f:template":{}}}`),
			}},
		},
		Spec: batchv1.JobSpec{
			Suspend: &suspended, Parallelism: &one, Completions: &one, BackoffLimit: &six,
			Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
				RestartPolicy: v1.RestartPolicyNever, SchedulerName: "kubenergy",
				NodeSelector: map[string]string{"pool": "batch"},
				Containers: []v1.Container{{
					Name: "main", Image: "registry.example.com/training:1.2.3", Env: env,
					Resources: v1.ResourceRequirements{
						Requests: v1.ResourceList{
							v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("1Gi"),
						},
					},
				}},
			}},
		},
		Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{
			Type: batchv1.JobSuspended, Status: v1.ConditionTrue, Reason: "JobSuspended", Message: "Job suspended",
		}}},
	}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	watches := r.URL.Query().Get("watch") != ""
	switch {
	case watches && strings.HasSuffix(r.URL.Path, "/jobs"):
		s.streams.Add(1)
		for i := range s.jobs {
			number := fmt.Sprintf("%08d", i)
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", strings.ReplaceAll(s.template, "NUMBER", number))
		}
		s.bookmark(w, "batch/v1", "Job")
		<-r.Context().Done()
	case watches:
		s.bookmark(w, "v1", "Pod")
		<-r.Context().Done()
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods"):
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}`)
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
	default:
		if r.Method == http.MethodPatch {
			s.patched.Add(1)
		}
		fmt.Fprint(w, `{"metadata":{"name":"x","resourceVersion":"2"}}`)
	}
}

func (s *server) bookmark(w http.ResponseWriter, version, kind string) {
	fmt.Fprintf(w,
		`{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", version, kind)
	w.(http.Flusher).Flush()
}

// TestManyHoldsFitBesideAScheduler verifies that 100,000 held Jobs need at most 100 MB once they are planned, that
// listing them needs not much more, and that the loop uses almost no CPU time while no Job is due.
//
//test:norace
func TestManyHoldsFitBesideAScheduler(t *testing.T) {
	const most = 1000 // in bytes per Job, i.e. 100 MB for 100,000 Jobs
	jobs := 10_000
	if long {
		jobs = 100_000
	}
	created := time.Now().Truncate(time.Second)
	text, err := json.Marshal(heldJob(created))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{jobs: jobs, template: string(text)}
	http := httptest.NewServer(s)
	defer http.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: http.URL, QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float64, 24*12)
	for i := range values {
		values[i] = 500 - float64(i) // the intensity falls over time
	}
	series, err := grid.NewSeries(created.Add(-time.Minute), 5*time.Minute, values)
	if err != nil {
		t.Fatal(err)
	}
	view, err := (&kube.Contents{
		Sites:    []*sched.Site{{Name: "here", Carbon: grid.Signal{Series: series}}},
		Defaults: policy.Defaults{MaxDelay: 24 * time.Hour},
	}).View()
	if err != nil {
		t.Fatal(err)
	}

	before := liveHeap()
	loop := New(Config{Client: client, View: func() *kube.View { return view }})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := loop.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer func() { cancel(); http.CloseClientConnections(); running.Wait() }()
	began := time.Now()
	peak := int64(0)
	planned := func() (n int) {
		done := make(chan struct{})
		loop.post(func() {
			defer close(done)
			for h := range loop.jobs.order.all() {
				if h.basis != unplanned {
					n++
				}
			}
		})
		<-done
		return n
	}
	kit.Eventually(t, 10*time.Minute, "all Jobs are planned", func() bool {
		peak = max(peak, allocated()-before)
		return planned() >= jobs
	})
	took := time.Since(began)
	// Memory also contains temporary data of pending work: patches, their responses, and decoded objects.
	each := int64(0)
	defer func() {
		t.Logf("%d held Jobs were listed and planned in %v; %d bytes each, %d MB in total, peak %d MB", jobs,
			took.Round(time.Millisecond), each, each*int64(jobs)>>20, peak>>20)
	}()
	kit.Eventually(t, time.Minute, fmt.Sprintf("a held Job takes at most %d bytes", most), func() bool {
		each = (liveHeap() - before) / int64(jobs)
		return each <= most
	})
	if s.streams.Load() != 1 {
		t.Errorf("Jobs were streamed %d times", s.streams.Load())
	}
}

func allocated() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	return allocated()
}

// BenchmarkPlanning measures the cost of a new forecast per hold.
func BenchmarkPlanning(b *testing.B) {
	created := time.Now().Truncate(time.Second)
	values := make([]float64, 24*12)
	for i := range values {
		values[i] = 500 - float64(i*7919%300)
	}
	series, err := grid.NewSeries(created.Add(-time.Minute), 5*time.Minute, values)
	if err != nil {
		b.Fatal(err)
	}
	var views [2]*kube.View
	for i := range views {
		if views[i], err = (&kube.Contents{
			Sites:    []*sched.Site{{Name: "here", Carbon: grid.Signal{Series: series}}},
			Defaults: policy.Defaults{MaxDelay: 24 * time.Hour},
		}).View(); err != nil {
			b.Fatal(err)
		}
	}
	view := views[0]
	loop := New(Config{View: func() *kube.View { return view }})
	const holds = 1000
	for i := range holds {
		job := heldJob(created)
		job.Name, job.UID = strconv.Itoa(i), types.UID(strconv.Itoa(i))
		loop.sawJob(readJob(job))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		view = views[i%2]
		for _, h := range loop.jobs.byUID {
			loop.planOne(klog.Background(), h, view, created)
			break
		}
	}
}
