package lab

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/internal/lab/kubelet"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestCluster is a single test because a process can only have one Cluster.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	ctx := t.Context()
	before := listeners(t)
	dir := kit.Dir(t, "lab")

	buildProcess(t, dir)
	lap := stopwatch(t)
	c, err := Start(ctx, Options{Dir: filepath.Join(dir, "c"), Processes: kubelet.Programs{Binaries: dir, Images: testImages}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Stop() })
	lap("start of the control plane")

	client := kubernetes.NewForConfigOrDie(c.Config())
	t.Run("version", func(t *testing.T) {
		v, err := client.Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		if v.GitVersion != KubernetesVersion || v.Major+"."+v.Minor != "1.36" {
			t.Errorf("unexpected version of the server: %s (%s.%s)", v.GitVersion, v.Major, v.Minor)
		}
	})
	t.Run("kubeconfig", func(t *testing.T) { checkKubeconfig(t, c) })

	lap = stopwatch(t)
	var nodes []NodeSpec
	for _, name := range []string{"node-0000", "node-0001", "node-0002"} {
		nodes = append(nodes, NodeSpec{Name: name, Capacity: Capacity(4, 16), Labels: map[string]string{"zone": "a"}})
	}
	if err := c.AddNodes(ctx, nodes); err != nil {
		t.Fatal(err)
	}
	lap("3 nodes")

	ready := 0
	stop, err := c.StartScheduler(ctx, Scheduler{OnReady: func(s *scheduler.Scheduler) { ready++ }})
	if err != nil {
		t.Fatal(err)
	}
	lap("start of a scheduler")
	if ready != 1 {
		t.Errorf("OnReady was called %d times, want 1", ready)
	}
	machine := kit.WatchMachine(t)
	ran := runJob(ctx, t, client, job("first", "1", ""))
	lap("Job of 1 s")
	if ran < time.Second {
		t.Errorf("Job of 1 s completed after %s", ran)
	}
	if ran > 4*time.Second { // the status has a resolution of seconds
		machine.TooSlow("Job of 1 s completed after %s", ran)
	}
	stop()
	stop() // stop is idempotent
	lap("stop of the scheduler")

	t.Run("no scheduler", func(t *testing.T) {
		pod := job("orphan", "1", "").Spec.Template
		p := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
		p.Name = "orphan"
		if _, err := client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond) // no binding must follow
		if got := getPod(ctx, t, client, "orphan"); got.Spec.NodeName != "" {
			t.Errorf("pod was bound to %s after the scheduler was stopped", got.Spec.NodeName)
		}
	})

	t.Run("machines", func(t *testing.T) { checkMachines(t, c) })

	config := filepath.Join(dir, "profile.yaml")
	const profile = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n" +
		"- schedulerName: default-scheduler\n" +
		"- schedulerName: other\n  plugins: {filter: {enabled: [{name: OnlyNode1}]}}\n"
	if err := os.WriteFile(config, []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	lap = stopwatch(t)
	if _, err := c.StartScheduler(ctx, Scheduler{
		Name: "second", ConfigFile: config, Plugins: []app.Option{app.WithPlugin(onlyNode1{}.Name(), newOnlyNode1)},
	}); err != nil {
		t.Fatal(err)
	}
	lap("start of a second scheduler")
	runJob(ctx, t, client, job("second", "0.25", "other"))
	lap("Job of 0.25 s")
	for _, p := range podsOf(ctx, t, client, "second") {
		if p.Spec.NodeName != "node-0001" {
			t.Errorf("pod of the profile with our plugin ran on %s, want node-0001", p.Spec.NodeName)
		}
	}
	eventually(t, "the pod without a scheduler ends", func() bool {
		return getPod(ctx, t, client, "orphan").Status.Phase == corev1.PodSucceeded
	})
	if _, err := c.StartScheduler(ctx, Scheduler{Name: "bad", ConfigFile: "no-such-file"}); err == nil {
		t.Error("StartScheduler() without its configuration = nil, want an error")
	}

	t.Run("pods without a time run until deleted", func(t *testing.T) { checkDeletion(ctx, t, client) })
	t.Run("processes", func(t *testing.T) { checkProcesses(t, c, client) })
	t.Run("second start", func(t *testing.T) {
		if _, err := Start(ctx, Options{Dir: filepath.Join(dir, "d")}); !errors.Is(err, ErrStarted) {
			t.Errorf("second Start() = %v, want ErrStarted", err)
		}
	})

	// A client with an open watch must not delay the shutdown.
	watch, err := client.CoreV1().Pods("").Watch(context.WithoutCancel(ctx), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	noProcessIsLeft := endWithCluster(ctx, t, c, client)
	lap = stopwatch(t)
	if err := c.Stop(); err != nil {
		t.Errorf("Stop() = %v", err)
	}
	lap("stop of all")
	noProcessIsLeft()
	select {
	case <-c.Done():
	default:
		t.Error("Done() is not closed after Stop()")
	}
	if _, err := c.StartScheduler(ctx, Scheduler{}); err == nil {
		t.Error("StartScheduler() on a stopped cluster = nil, want an error")
	}
	host, err := url.Parse(c.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", host.Host); err == nil {
		conn.Close()
		t.Errorf("%s still accepts connections after Stop", host.Host)
	}
	for l := range listeners(t) {
		if !before[l] {
			t.Errorf("%s is still listening after Stop", l)
		}
	}
}

// onlyNode1 is an out-of-tree plugin.
type onlyNode1 struct{}

func (onlyNode1) Name() string { return "OnlyNode1" }

func (onlyNode1) Filter(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, n fwk.NodeInfo) *fwk.Status {
	if n.Node().Name == "node-0001" {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, "not node-0001")
}

func newOnlyNode1(context.Context, apiruntime.Object, fwk.Handle) (fwk.Plugin, error) {
	return onlyNode1{}, nil
}

func checkKubeconfig(t *testing.T, c *Cluster) {
	info, err := os.Stat(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the kubeconfig = %v, want 0600", info.Mode())
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Get(t.Context(), "default",
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	config.BearerToken = ""
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("unexpected error without a token: %v", err)
	}
}

// checkDeletion deletes the pod of a Job like a suspension does. Without a final phase of the pod, the Job
// controller would wait for it forever.
func checkDeletion(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	j := job("endless", "", "")
	j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
	jobs := client.BatchV1().Jobs("default")
	if _, err := jobs.Create(ctx, j, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	status := func() batchv1.JobStatus {
		j, err := jobs.Get(ctx, "endless", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return j.Status
	}
	eventually(t, "the endless Job runs", func() bool { return ptr.Deref(status().Ready, 0) == 1 })
	suspend := []byte(`{"spec":{"suspend":true}}`)
	lap := stopwatch(t)
	if _, err := jobs.Patch(ctx, "endless", "application/strategic-merge-patch+json", suspend,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the suspended Job's pod is deleted", func() bool {
		s := status()
		return len(podsOf(ctx, t, client, "endless")) == 0 && s.Active == 0 && ptr.Deref(s.Terminating, 0) == 0
	})
	lap("end of a suspended Job's pod")
}

func TestKubernetesVersionIsTheOneLinked(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("../..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mod), "k8s.io/kubernetes "+KubernetesVersion+"\n") {
		t.Errorf("go.mod does not require k8s.io/kubernetes %s", KubernetesVersion)
	}
}

// TestStartFails runs each case in its own process, because a failed Start counts as a start.
func TestStartFails(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	cases := map[string]struct {
		o    Options
		want string
	}{
		"apiserver flag": {
			Options{APIServerArgs: []string{"--no-such-flag"}},
			"starting kube-apiserver: unknown flag",
		},
		"apiserver option": {Options{APIServerArgs: []string{"--authorization-mode=None"}}, "running kube-apiserver"},
		"manager flag": {
			Options{ControllerManagerArgs: []string{"--no-such-flag"}},
			"starting kube-controller-manager: unknown flag",
		},
		"long path": {Options{Dir: strings.Repeat("long", 30)}, "shorter directory"},
	}
	if name := os.Getenv("LAB_TEST_START_FAILS"); name != "" {
		o := cases[name].o
		dir, err := os.MkdirTemp("", "lab")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		o.Dir = filepath.Join(dir, o.Dir)
		before := listeners(t)
		if _, err = Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), cases[name].want) {
			t.Errorf("expected an error that contains %[2]q, got %[1]v", err, cases[name].want)
		}
		for l := range listeners(t) {
			if !before[l] {
				t.Errorf("%s is still listening after a failed Start", l)
			}
		}
		return
	}
	for name := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStartFails$", "-test.v")
			cmd.Env = append(os.Environ(), "LAB_TEST_START_FAILS="+name)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestStartRefusesAnEarlierCluster(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etcd"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), "previous cluster") {
		t.Errorf("unexpected error: %v", err)
	}
}
