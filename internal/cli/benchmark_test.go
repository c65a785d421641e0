package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/agent/meter"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/benchmark"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/hardware"
)

// bench is a fake cluster for benchmarks with a node, its finished Job, and a controller that reports the power of
// the node.
type bench struct {
	began     time.Time // start of the runs of the Job, each a minute long
	job       batchv1.Job
	logs      string
	running   bool
	refuseJob bool
}

// read decodes a request body in any encoding.
func (*bench) read(body []byte, into runtime.Object) {
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, into); err != nil {
		panic(err)
	}
}

func (b *bench) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	w.Header().Set("Content-Type", "application/json")
	path := q.URL.Path
	var answer any
	switch {
	case strings.Contains(path, "/serviceaccounts/"):
		answer = map[string]any{
			"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "status": map[string]any{"token": "made"},
		}
	case strings.HasSuffix(path, "/api/v1/nodes/power"):
		answer = api.NodesPower{Nodes: []api.NodePower{
			{Node: "n1", Watts: 50, AsOf: b.began.Add(20 * time.Second), Source: "wall (shelly2)", Quality: energy.Measured},
		}}
	case path == "/api/v1/nodes":
		gpu := v1.ResourceList{"nvidia.com/gpu": quantity("1")}
		answer = v1.NodeList{Items: []v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{Allocatable: gpu}}}}
	case strings.HasSuffix(path, "/jobs") && q.Method == http.MethodPost && !b.refuseJob:
		b.read(body, &b.job)
		b.job.Name = "made"
		answer = b.job
	case strings.HasSuffix(path, "/pods/pod/log"):
		_, _ = io.WriteString(w, b.logs)
		return
	case strings.HasSuffix(path, "/pods"):
		pod := v1.Pod{Spec: b.job.Spec.Template.Spec, Status: v1.PodStatus{Phase: v1.PodSucceeded}}
		pod.Name, pod.Namespace, pod.Labels = "pod", "team", map[string]string{batchv1.JobNameLabel: b.job.Name}
		if b.running {
			pod.Status.Phase = v1.PodRunning
		}
		former := *pod.DeepCopy() // pod of a previous command
		former.Name, former.Labels = "former", map[string]string{batchv1.JobNameLabel: "former"}
		answer = v1.PodList{Items: []v1.Pod{former, pod}}
	default:
		w.WriteHeader(http.StatusForbidden)
		answer = metav1.Status{Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: q.Method + " " + path}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// measured returns five runs of idle and of one work each, in turn.
func measured(began time.Time) *benchmarks {
	r := &benchmark.Result{Node: "n1", CPUs: 4}
	for range 5 {
		for _, work := range []string{benchmark.Idle, benchmark.CPU} {
			run := benchmark.Run{Work: work, Start: began, End: began.Add(time.Minute), Got: 1}
			if work == benchmark.CPU {
				run.Rate = &benchmark.Mean{Value: 10, Count: 5}
			}
			r.Runs = append(r.Runs, run)
			began = began.Add(time.Minute)
		}
	}
	return &benchmarks{[]*benchmark.Result{r}}
}

func TestBenchmarkOfACluster(t *testing.T) {
	b := &bench{began: time.Now().Add(-30 * time.Second)}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	a := &apiServer{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	writeKubeconfig(t, a.kubeconfig, server.URL)
	logs, err := json.MarshalIndent(measured(b.began), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b.logs = "measuring n1\n" + string(logs)
	code, stdout, stderr := a.run(t, "benchmark", "--image", "example.org/kubenergy:1", "--workloads", "cpu,gpu",
		"--runtime-class", "nvidia", "-n", "team", "-o", "csv")
	if code != 0 || !strings.Contains(stdout, "n1,cpu,10,GFLOP/s,0,conclusive,") ||
		!strings.Contains(stdout, "n1,idle,,,,,50,0,inconclusive: 1 of 5 runs,wall (shelly2),") {
		t.Fatalf("exit code %d: %s\n%s", code, stdout, stderr)
	}
	pod := b.job.Spec.Template.Spec
	if limit := pod.Containers[0].Resources.Limits["nvidia.com/gpu"]; pod.NodeName != "n1" || limit.Value() != 1 ||
		*pod.RuntimeClassName != "nvidia" || pod.Containers[0].Image != "example.org/kubenergy:1" ||
		!strings.HasSuffix(strings.Join(append(pod.Containers[0].Command, pod.Containers[0].Args...), " "),
			"--local -o=json --node=n1 --workloads=cpu,gpu --runs=5 --at-least=45s") {
		t.Errorf("unexpected pod of the Job: %+v", pod)
	}

	b.logs = "no such image"
	if code, _, stderr = a.run(t, "benchmark", "--image", "i"); code != 1 ||
		!strings.Contains(stderr, "node n1: Job made failed: no such image") ||
		!strings.Contains(stderr, "failed to measure 1 node") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	// The Job does not finish in time.
	b.running = true
	if code, _, stderr = a.run(t, "benchmark", "--image", "i", "--timeout", "1s"); code != 1 ||
		!strings.Contains(stderr, "node n1: Job made did not finish in time: delete it in namespace") ||
		*b.job.Spec.ActiveDeadlineSeconds != 1 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	b.refuseJob = true
	if code, _, stderr = a.run(t, "benchmark", "--image", "i"); code != 1 || !strings.Contains(stderr, "node n1: creating the Job: forbidden") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// A reading of the controller only counts for a run that contains its whole interval.
func TestWattsOfTheController(t *testing.T) {
	doc := measured(testNow)
	r := doc.Results[0]
	f := &fleet{drawn: map[string][]cmdutil.PowerReading{}}
	for at := 0; at <= 600; at += 10 {
		watts := 50.0
		if max(0, at-1)/60%2 == 1 {
			watts = 100
		}
		if at%60 > 0 && at%60 < 15 {
			watts = 75 // covers both sides of a change
		}
		f.drawn["n1"] = append(f.drawn["n1"], cmdutil.PowerReading{
			Name: "n1", Watts: watts, AsOf: testNow.Add(time.Duration(at) * time.Second), Source: "wall (shelly2)",
			Quality: energy.Derived,
		})
	}
	f.meter(r)
	for i, want := range []float64{50, 100} {
		if w := r.Runs[i].Watts; w == nil || w.Value != want || w.Count != 5 {
			t.Errorf("run %d: got %+v, want %v W of 5 readings", i, w, want)
		}
	}
	if r.Source != "wall (shelly2)" || r.Quality != energy.Derived {
		t.Errorf("%s, %v", r.Source, r.Quality)
	}

	dir := t.TempDir()
	runs, err := json.Marshal(doc)
	if err != nil || os.WriteFile(filepath.Join(dir, "runs.json"), runs, 0o600) != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := (&apiServer{}).run(t, "benchmark", "--results", filepath.Join(dir, "runs.json"), "-o", "yaml")
	objects := strings.Split(stdout, "---\n")
	if code != 0 || len(objects) != 3 {
		t.Fatalf("exit code %d: %s\n%s", code, stdout, stderr)
	}
	byClass, _, err := hardware.ReadKnowledgeBase([]byte(objects[1]))
	if want := (energy.Benchmark{Rate: 10, Power: 100, Idle: 50}); err != nil || byClass["training"]["n1"] != want {
		t.Errorf("unexpected knowledge base %+v or error %v", byClass["training"], err)
	}
	// Inconclusive results are omitted and listed. Without conclusive results there is no output to apply.
	r.Runs[len(r.Runs)-1].Rate.Value = 20
	if runs, err = json.Marshal(doc); err != nil || os.WriteFile(filepath.Join(dir, "wide.json"), runs, 0o600) != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = (&apiServer{}).run(t, "benchmark", "--results", filepath.Join(dir, "wide.json"), "-o", "yaml")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "node n1: omitted inconclusive results: training, inference\n") ||
		!strings.Contains(stderr, "there is no knowledge base") {
		t.Errorf("exit code %d: %s\n%s", code, stdout, stderr)
	}
	var p v1alpha1.PowerProfile
	if err := yaml.UnmarshalStrict([]byte(objects[2]), &p); err != nil || p.Name != "n1" || len(p.Spec.Curve) != 2 ||
		p.Spec.Quality != "derived" {
		t.Errorf("unexpected PowerProfile %s or error %v", objects[2], err)
	}
}

// This machine is measured briefly with the model. The result must be marked as estimated.
func TestBenchmarkOfThisMachine(t *testing.T) {
	f := benchmarkFlags{
		works: []string{benchmark.Sequential}, node: "here", meters: meter.DefaultConfig(), output: &cmdutil.Choice{Value: "table"},
		rules: benchmark.Rules{Runs: 1, AtLeast: 50 * time.Millisecond, Rep: 20 * time.Millisecond, Least: 2, Most: 3},
	}
	f.meters.Meters = []string{"model"}
	var said strings.Builder
	r, err := f.measure(t.Context(), cmdutil.Terminal{Err: &said})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 3 || r.Node != "here" || r.Source != "model (model)" || r.Quality != energy.Estimated ||
		!(r.Runs[2].Rate.Value > 0 && r.Runs[0].Watts.Value > 0) {
		t.Errorf("%+v", r)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	var out strings.Builder
	if f.local = true; f.run(ended, cmdutil.Terminal{Out: &out, Err: io.Discard}) == nil || out.Len() > 0 {
		t.Errorf("unexpected output after cancellation: %q", out.String())
	}
	if !strings.Contains(said.String(), "Measuring here: 1 runs each of idle, half, sequential, at least ") {
		t.Errorf("unexpected messages %q", said.String())
	}
}

func TestBenchmarkMistakes(t *testing.T) {
	empty, text := filepath.Join(t.TempDir(), "empty.json"), filepath.Join(t.TempDir(), "text.json")
	if os.WriteFile(empty, []byte(`{}`), 0o600) != nil || os.WriteFile(text, []byte("idle took 5s"), 0o600) != nil {
		t.Fatal("failed to write files")
	}
	for args, want := range map[string]string{
		"":                             "specify exactly one of --local, --image and --results",
		"--local --image i":            "specify exactly one of --local, --image and --results",
		"--local --workloads disk":     `--workloads: unknown work "disk": want cpu, sequential, memory or gpu`,
		"--local --runs 0":             "--runs is 0 and --at-least is 0s: want at least 1 run and a positive duration",
		"--local --at-least -1s":       "--runs is 5 and --at-least is -1s: want at least 1 run and a positive duration",
		"--local --meters plug":        `--meters: unknown meter "plug"`,
		"--results /nowhere/runs.json": "no such file",
		"--results " + empty:           "the file is not output of benchmark -o json",
		"--results " + text:            "the file is not output of benchmark -o json",
	} {
		a := &apiServer{}
		if code, _, stderr := a.run(t, append([]string{"benchmark"}, strings.Fields(args)...)...); code != 2 ||
			!strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d: %s", args, code, stderr)
		}
	}
}
