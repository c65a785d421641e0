package cli

import (
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
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/benchmark"
	"github.com/kubenergy/kubenergy/central/api"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/hardware"
)

// bench is as much of a cluster as benchmark needs: a node, its Job, which has ended, and a central unit that says what
// the node draws.
type bench struct {
	began     time.Time // of the runs of the Job, each a minute long
	job       batchv1.Job
	config    *v1.ConfigMap // the knowledge base
	profile   *v1alpha1.PowerProfile
	logs      string
	refuseJob bool
}

func (b *bench) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	w.Header().Set("Content-Type", "application/json")
	path := q.URL.Path
	var answer any
	switch {
	case strings.Contains(path, "/serviceaccounts/"):
		answer = map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
			"status": map[string]any{"token": "made"}}
	case strings.HasSuffix(path, "/api/v1/nodes/power"):
		answer = api.NodesPower{Nodes: []api.NodePower{
			{Node: "n1", Watts: 50, AsOf: b.began.Add(20 * time.Second), Source: "wall (shelly2)"},
		}}
	case path == "/api/v1/nodes":
		gpu := v1.ResourceList{"nvidia.com/gpu": quantity("1")}
		answer = v1.NodeList{Items: []v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{Allocatable: gpu}}}}
	case strings.HasSuffix(path, "/jobs") && q.Method == http.MethodPost && !b.refuseJob:
		_ = json.Unmarshal(body, &b.job)
		b.job.Name, b.job.Status.Succeeded = "made", 1
		answer = b.job
	case strings.HasSuffix(path, "/jobs/made"):
		answer = b.job
	case strings.HasSuffix(path, "/log"):
		_, _ = io.WriteString(w, b.logs)
		return
	case strings.HasSuffix(path, "/pods"):
		answer = v1.PodList{Items: []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}}}
	case strings.HasSuffix(path, "/configmaps/scheduler-knowledge-base"):
		if q.Method == http.MethodPut {
			_ = json.Unmarshal(body, &b.config)
		}
		answer = b.config
	case strings.HasSuffix(path, "/powerprofiles/n1") && q.Method == http.MethodPatch:
		_ = yaml.Unmarshal(body, &b.profile)
		answer = b.profile
	default:
		w.WriteHeader(http.StatusForbidden)
		answer = metav1.Status{Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: q.Method + " " + path}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// measured are runs of a Job: idle, and one work, five times in turn.
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
	b := &bench{began: time.Now().Add(-30 * time.Second), config: &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "scheduler-knowledge-base", Namespace: "kube-system"},
		Data: map[string]string{"profiles.yaml": "training:\n- {nodeName: old, performanceRate: 1, " +
			"powerConsumptionWatts: 2, idlePowerWatts: 1}\n"},
	}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	a := &apiServer{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	writeKubeconfig(t, a.kubeconfig, server.URL)
	logs, err := json.Marshal(measured(b.began))
	if err != nil {
		t.Fatal(err)
	}
	b.logs = string(logs)
	code, stdout, stderr := a.run(t, "benchmark", "--image", "example.org/kubenergy:1", "--workloads", "cpu,gpu",
		"--runtime-class", "nvidia", "-n", "team", "-o", "csv")
	if code != 0 || !strings.Contains(stdout, "n1,cpu,10,GFLOP/s,0,judged,") ||
		!strings.Contains(stdout, "n1,idle,,,,,50,0,not judged: 1 of 5 runs,,wall (shelly2),") {
		t.Fatalf("exit %d: %s\n%s", code, stdout, stderr)
	}
	pod := b.job.Spec.Template.Spec
	if limit := pod.Containers[0].Resources.Limits["nvidia.com/gpu"]; pod.NodeName != "n1" || limit.Value() != 1 ||
		*pod.RuntimeClassName != "nvidia" || pod.Containers[0].Image != "example.org/kubenergy:1" ||
		!strings.Contains(strings.Join(pod.Containers[0].Args, " "), "--local -o=json --node=n1 --workloads=cpu,gpu --runs=5 --at-least=45s") {
		t.Errorf("the Job's pod is %+v", pod)
	}

	b.logs = "there is no such image"
	if code, _, stderr = a.run(t, "benchmark", "--image", "i"); code != 0 || !strings.Contains(stderr, "node n1: its Job made failed: there is no such image") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	b.refuseJob = true
	if code, _, stderr = a.run(t, "benchmark", "--image", "i"); code != 1 || !strings.Contains(stderr, "creating a Job for node n1: forbidden") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// A reading of the controller counts for a run that it covers nothing but.
func TestWattsOfTheController(t *testing.T) {
	doc := measured(testNow)
	r := doc.Results[0]
	f := &fleet{drawn: map[string][]drawn{}}
	for at := 0; at <= 600; at += 10 {
		watts := 50.0
		if at/60%2 == 1 {
			watts = 100
		}
		if at%60 < 15 {
			watts = 75 // of both sides of a change
		}
		f.drawn["n1"] = append(f.drawn["n1"], drawn{
			Name: "n1", Watts: watts, AsOf: testNow.Add(time.Duration(at) * time.Second), Source: "wall (shelly2)",
			Quality: energy.Derived,
		})
	}
	f.meter(r)
	for i, want := range []float64{50, 100} {
		if w := r.Runs[i].Watts; w == nil || w.Value != want || w.Count != 4 {
			t.Errorf("run %d: %+v, want %v W of 4 readings", i, w, want)
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
	b := &bench{config: &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "scheduler-knowledge-base", Namespace: "kube-system"},
		Data: map[string]string{"profiles.yaml": "training:\n- {nodeName: old, performanceRate: 1, " +
			"powerConsumptionWatts: 2, idlePowerWatts: 1}\n"},
	}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	a := &apiServer{kubeconfig: filepath.Join(dir, "kubeconfig")}
	writeKubeconfig(t, a.kubeconfig, server.URL)
	code, stdout, stderr := a.run(t, "benchmark", "--results", filepath.Join(dir, "runs.json"), "--out",
		filepath.Join(dir, "out"), "--apply")
	if code != 0 || !strings.Contains(stdout, "judged") {
		t.Fatalf("exit %d: %s\n%s", code, stdout, stderr)
	}
	written, err := os.ReadFile(filepath.Join(dir, "out", "scheduler-knowledge-base.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := energy.Benchmark{Rate: 10, Power: 100, Idle: 50}
	for name, text := range map[string][]byte{"file": written, "cluster": []byte(b.config.Data["profiles.yaml"])} {
		byClass, _, err := hardware.ReadKnowledgeBase(text)
		if err != nil || byClass["training"]["n1"] != want {
			t.Errorf("the %s says %+v, %v", name, byClass["training"], err)
		}
		if _, kept := byClass["training"]["old"]; kept != (name == "cluster") {
			t.Errorf("the %s has an entry of another node: %v", name, kept)
		}
	}
	if b.profile == nil || len(b.profile.Spec.Curve) != 2 || b.profile.Spec.Quality != "derived" {
		t.Errorf("the PowerProfile is %+v", b.profile)
	}
	profiles, err := os.ReadFile(filepath.Join(dir, "out", "powerprofiles.yaml"))
	var p v1alpha1.PowerProfile
	if err != nil || yaml.UnmarshalStrict(profiles, &p) != nil || p.Name != "n1" {
		t.Errorf("%v: %s", err, profiles)
	}
}

// This machine is measured, for a moment: by its own meter, or a model.
func TestBenchmarkOfThisMachine(t *testing.T) {
	a := &apiServer{}
	code, stdout, stderr := a.run(t, "benchmark", "--local", "--node", "here", "--workloads", "sequential", "--runs", "1",
		"--at-least", "1ms", "--meters", "model", "-o", "json")
	var doc benchmarks
	if err := json.Unmarshal([]byte(stdout), &doc); code != 0 || err != nil || len(doc.Results) != 1 {
		t.Fatalf("exit %d: %s\n%s", code, stdout, stderr)
	}
	r := doc.Results[0]
	if len(r.Runs) != 2 || r.Node != "here" || r.Source != "model (model)" || r.Quality != energy.Estimated ||
		!(r.Runs[1].Rate.Value > 0 && r.Runs[0].Watts.Value > 0) {
		t.Errorf("%+v", r)
	}
}

func TestBenchmarkMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"":                             "give one of --local, --image and --results",
		"--local --image i":            "give one of --local, --image and --results",
		"--local --workloads disk":     `--workloads: there is no "disk": have cpu, sequential, memory or gpu`,
		"--local --classes a=gpu":      `--classes: a is "gpu": want cpu, sequential or memory`,
		"--local --runs 0":             "--runs is 0: want 1 or more",
		"--local --at-least -1s":       "--at-least is -1s: want a time",
		"--local --meters plug":        `--meters: there is no "plug"`,
		"--results /nowhere/runs.json": "no such file",
	} {
		a := &apiServer{}
		if code, _, stderr := a.run(t, append([]string{"benchmark"}, strings.Fields(args)...)...); code != 2 ||
			!strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d: %s", args, code, stderr)
		}
	}
}
