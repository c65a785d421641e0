package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// hardwareServer is a fake API server for labelling nodes. It tracks the field managers of labels and supports
// applying PowerProfiles.
type hardwareServer struct {
	kubeconfig string

	mu       sync.Mutex
	nodes    map[string]*v1.Node
	profiles map[string]*v1alpha1.PowerProfile
	owners   map[string]string // field managers of PowerProfiles
	noKind   bool
	dryRuns  int
}

func newHardwareServer(t *testing.T) *hardwareServer {
	t.Helper()
	s := &hardwareServer{
		nodes: map[string]*v1.Node{}, profiles: map[string]*v1alpha1.PowerProfile{}, owners: map[string]string{},
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, s.kubeconfig, server.URL)

	s.node("m5a", "aws:///eu-central-1a/i-1", "4", "15.3Gi", 0,
		map[string]string{v1.LabelInstanceTypeStable: "m5.xlarge"})
	s.node("m5b", "aws:///eu-central-1b/i-2", "4", "15.2Gi", 0,
		map[string]string{v1.LabelInstanceTypeStable: "m5.xlarge"})
	s.node("gpu", "aws:///eu-central-1b/i-3", "16", "62Gi", 1,
		map[string]string{v1.LabelInstanceTypeStable: "g5.4xlarge"})
	s.node("nuc", "", "4", "15.3Gi", 0, map[string]string{"kubernetes.io/arch": "amd64"})
	return s
}

func (s *hardwareServer) node(name, providerID, cpus, memory string, gpus int, labels map[string]string) {
	s.nodes[name] = &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, ResourceVersion: "1"},
		Spec:       v1.NodeSpec{ProviderID: providerID},
		Status: v1.NodeStatus{Capacity: v1.ResourceList{
			v1.ResourceCPU: quantity(cpus), v1.ResourceMemory: quantity(memory),
		}},
	}
	if gpus > 0 {
		s.nodes[name].Status.Capacity["nvidia.com/gpu"] = quantity(strconv.Itoa(gpus))
	}
}

// setLabel sets the label of a node as another field manager.
func (s *hardwareServer) setLabel(node, value string) {
	s.patch(node, "kubectl-label", nil, string(types.MergePatchType), fmt.Appendf(nil,
		`{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelPowerProfile, value))
}

func (s *hardwareServer) label(node string) string {
	return s.nodes[node].Labels[v1alpha1.LabelPowerProfile]
}

func (s *hardwareServer) labels(nodes ...string) string {
	var all []string
	for _, n := range nodes {
		all = append(all, s.label(n))
	}
	return strings.Join(all, ",")
}

func (s *hardwareServer) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), append([]string{"profile", "--kubeconfig", s.kubeconfig}, args...),
		cmdutil.Terminal{Name: "kubenergy", Out: &out, Err: &err})
	return code, out.String(), err.String()
}

func (s *hardwareServer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(q.Body)
	code, answer := s.answer(q, body)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *hardwareServer) answer(q *http.Request, body []byte) (int, any) {
	path, name := q.URL.Path, q.URL.Path[strings.LastIndex(q.URL.Path, "/")+1:]
	dry := q.URL.Query().Get("dryRun") == "All"
	if dry {
		s.dryRuns++
	}
	switch {
	case path == "/api/v1/nodes":
		var list v1.NodeList
		for _, n := range s.nodes {
			list.Items = append(list.Items, *n)
		}
		return 200, list
	case strings.HasPrefix(path, "/apis/kubenergy.io/") && s.noKind:
		return failed(apierrors.NewNotFound(schema.GroupResource{Resource: "powerprofiles"}, ""))
	case path == cmdutil.ResourcePath+"powerprofiles":
		var list v1alpha1.PowerProfileList
		for _, p := range s.profiles {
			list.Items = append(list.Items, *p)
		}
		return 200, list
	case strings.HasPrefix(path, cmdutil.ResourcePath+"powerprofiles/") && q.Method == http.MethodPatch:
		return s.apply(name, q, body, dry)
	case strings.HasPrefix(path, "/api/v1/nodes/") && q.Method == http.MethodPatch:
		query := q.URL.Query()
		return s.patch(name, query.Get("fieldManager"), query, q.Header.Get("Content-Type"), body)
	}
	return failed(apierrors.NewBadRequest(q.Method + " " + path))
}

func (s *hardwareServer) apply(name string, q *http.Request, body []byte, dry bool) (int, any) {
	manager := q.URL.Query().Get("fieldManager")
	if q.Header.Get("Content-Type") != "application/apply-patch+yaml" || manager == "" {
		return failed(apierrors.NewBadRequest("expected an apply patch"))
	}
	if owner := s.owners[name]; owner != "" && owner != manager && q.URL.Query().Get("force") != "true" {
		return failed(apierrors.NewConflict(schema.GroupResource{Resource: "powerprofiles"}, name,
			fmt.Errorf("conflict with %s", owner)))
	}
	p := &v1alpha1.PowerProfile{}
	if err := json.Unmarshal(body, p); err != nil {
		return failed(apierrors.NewBadRequest(err.Error()))
	}
	if !dry {
		s.profiles[name], s.owners[name] = p, manager
	}
	return 200, p
}

// patch patches a node with a fake client that tracks field managers.
func (s *hardwareServer) patch(name, manager string, q url.Values, kind string, body []byte) (int, any) {
	client := fake.NewClientset(s.nodes[name].DeepCopy())
	after, err := client.CoreV1().Nodes().Patch(context.Background(), name, types.PatchType(kind), body,
		metav1.PatchOptions{FieldManager: manager, Force: new(q.Get("force") == "true")})
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return failed(status)
	}
	if err != nil {
		panic(err)
	}
	if q.Get("dryRun") == "" {
		s.nodes[name] = after
	}
	return 200, after
}

func TestProfileLists(t *testing.T) {
	s := newHardwareServer(t)
	code, out, stderr := s.run(t)
	if code != 0 {
		t.Fatal(stderr)
	}
	golden(t, "profile.txt", out)

	code, out, stderr = s.run(t, "-o", "json")
	if code != 0 {
		t.Fatal(stderr)
	}
	var listed struct{ Nodes []profileRow }
	if err := json.Unmarshal([]byte(out), &listed); err != nil {
		t.Fatal(err)
	}
	if len(listed.Nodes) != 4 || listed.Nodes[0].Node != "gpu" || listed.Nodes[0].Kind.Components.GPUs != 1 ||
		listed.Nodes[3].Known {
		t.Errorf("%s", out)
	}
	if _, yamlOut, _ := s.run(t, "-o", "yaml"); !strings.Contains(yamlOut, "profile:\n") {
		t.Error(yamlOut)
	}
	if len(s.profiles) > 0 || s.dryRuns > 0 {
		t.Error("listing modified objects")
	}
}

func TestProfileDryRun(t *testing.T) {
	s := newHardwareServer(t)
	s.setLabel("m5b", "theirs")
	code, out, stderr := s.run(t, "--create", "--label-nodes", "--dry-run")
	// two profiles and three nodes are written
	if code != 0 || s.label("m5a") != "" || len(s.profiles) > 0 || s.dryRuns != 5 {
		t.Fatalf("exit code %d, %d dry runs, label %q: %s%s", code, s.dryRuns, s.label("m5a"), out, stderr)
	}
	golden(t, "profile_dry_run.txt", out)
}

func TestProfileCreatesAndLabels(t *testing.T) {
	s := newHardwareServer(t)
	s.setLabel("m5b", "theirs")
	code, out, stderr := s.run(t, "--create", "--label-nodes")
	if code != 0 {
		t.Fatal(out, stderr)
	}
	golden(t, "profile_label.txt", out)
	if got := s.labels("gpu", "m5a", "m5b", "nuc"); got != "aws-g5-4xlarge,aws-m5-xlarge,theirs," {
		t.Error(got)
	}
	if p := s.profiles["aws-g5-4xlarge"]; len(s.profiles) != 2 || p.Spec.GPUMaxWatts != 300 ||
		p.Spec.Quality != "estimated" {
		t.Errorf("%+v", s.profiles)
	}

	// A second run has nothing to do. Profiles modified by others are preserved.
	s.owners["aws-m5-xlarge"] = "kubectl-edit"
	code, out, _ = s.run(t, "--create", "--label-nodes")
	if code != 1 || !strings.Contains(out, "aws-m5-xlarge: unchanged: modified by others") ||
		!strings.Contains(out, "label is up to date") || strings.Contains(out, "labelled\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestProfileRemovesItsOwnLabels(t *testing.T) {
	s := newHardwareServer(t)
	s.setLabel("m5b", "theirs")
	must := func(want string, args ...string) {
		t.Helper()
		code, out, stderr := s.run(t, args...)
		if got := s.labels("gpu", "m5a", "m5b", "nuc"); code != 0 || got != want {
			t.Errorf("%v: exit code %d, labels %s, want %s: %s%s", args, code, got, want, out, stderr)
		}
	}
	must("aws-g5-4xlarge,aws-m5-xlarge,theirs,", "--create", "--label-nodes")
	must(",,theirs,", "--remove")
	must("aws-g5-4xlarge,aws-m5-xlarge,aws-m5-xlarge,", "--label-nodes", "--overwrite")
	s.setLabel("m5a", "theirs") // a user who overwrites the label owns it afterwards
	must(",theirs,,", "--remove")
	must(",,,", "--remove", "--overwrite")
}

// Nodes are not labelled with a profile that does not exist, because they would have no profile then.
func TestProfileLabelsOnlyWhatExists(t *testing.T) {
	s := newHardwareServer(t)
	code, out, stderr := s.run(t, "--label-nodes")
	if code != 1 || s.label("m5a") != "" || !strings.Contains(out,
		"PowerProfile aws-m5-xlarge does not exist, use --create") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	s.noKind = true
	if code, _, stderr = s.run(t, "--create"); code != 1 ||
		!strings.Contains(stderr, "install the chart of KubEnergy first") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, _, stderr = s.run(t); code != 0 {
		t.Errorf("unexpected error of listing without PowerProfiles: %s", stderr)
	}
}

// A node is not reported as labelled if the request was canceled.
func TestProfileTellsWhatWasGivenUp(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	p := &profiler{profileFlags: &profileFlags{label: true}, existing: map[string]bool{"p": true}}
	p.client = kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://127.0.0.1:1"})
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	row := profileRow{Known: true, Profile: &energy.Profile{Name: "p"}, node: node}
	if p.change(ctx, &row); p.failures != 1 || !strings.HasPrefix(row.Change, "failed: ") {
		t.Errorf("%+v", row)
	}
}

func TestProfileTakesAUsersCatalogue(t *testing.T) {
	s := newHardwareServer(t)
	file := filepath.Join(t.TempDir(), "hw.yaml")
	if err := os.WriteFile(file, []byte(`
cpuProfiles: {NUC: {idlePower: 6, maxPower: 28}}
cloudInstanceMapping: {aws: {m5.xlarge: {cpuModel: NUC, totalMemory: 1024, memChannels: 2}}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := s.run(t, "--hardware-profiles", file)
	if code != 0 || !strings.Contains(out, "aws-m5-xlarge") || !strings.Contains(out, "28.4") ||
		!strings.Contains(stderr, "memChannels") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	if code, _, stderr = s.run(t, "--hardware-profiles", file+"x"); code != 2 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// Scoring does not access a cluster. Profiles of the user's file are used and marked.
func TestProfileScores(t *testing.T) {
	folder := t.TempDir()
	hw, results := filepath.Join(folder, "hw.yaml"), filepath.Join(folder, "results.csv")
	for file, text := range map[string]string{
		hw: "cpuProfiles: {Made 8: {idlePower: 10, maxPower: 60, numCores: 8}}\n",
		results: `cpu,sockets,cores,memoryGB,idleWatts,fullWatts,date
Made 8,1,8,10,23,127.8,2024-01
Made 8,2,16,10,20,127.8,2024-01
Made 9,2,16,10,20,127.8,2024-01
Made 9,2,16,10,20,127.8,2023-12
`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	score := func(args ...string) (int, string, string) {
		s := &hardwareServer{kubeconfig: "nowhere"}
		return s.run(t, append([]string{"--hardware-profiles", hw, "--score", results, "--since", "2024-01"}, args...)...)
	}
	code, out, stderr := score()
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	golden(t, "profile_score.txt", out)
	code, out, _ = score("-o", "csv")
	if want := `cpu,basis,sockets,threads,memoryGB,idleWatts,profileIdleWatts,idleErrorRatio,fullWatts,profileFullWatts,` +
		`fullErrorRatio
Made 8,file,1,16,10,23,11.5,-0.5,127.8,63.9,-0.5
`; code != 0 || !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "Made 9,,2,32,10,20,,,127.8,,\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
	for _, args := range [][]string{{"--create"}, {"-l", "a=b"}, {"--since", "yesterday"}, {"--score", hw}} {
		if code, out, stderr := score(args...); code != 2 || out != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d, %s%s", args, code, out, stderr)
		}
	}
	if code, _, stderr := score("--since", "2025-01"); code != 1 || !strings.Contains(stderr, "no results since") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestProfileRefusesFlags(t *testing.T) {
	s := newHardwareServer(t)
	for _, args := range [][]string{
		{"-o", "csv"},
		{"--remove", "--label-nodes"},
		{"--since", "2024-01"},
		{"--overwrite"},
		{"--dry-run"},
		{"node"},
		{"--kubeconfig", "nowhere"},
	} {
		if code, out, stderr := s.run(t, args...); code != 2 || out != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d, %s%s", args, code, out, stderr)
		}
	}
}
