package central

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/lab"
)

const root = "../.."

// world is a real control plane with what we ship installed in it. All tests of the package share one.
type world struct {
	cluster *lab.Cluster
	client  kubernetes.Interface
	dir     string
}

var shared *world

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	// The name of a test's own folder would make the path of etcd's socket too long on some systems.
	dir, err := os.MkdirTemp("", "central")
	if err == nil {
		defer os.RemoveAll(dir)
		err = setUp(context.Background(), dir)
	}
	if shared != nil {
		defer func() { _ = shared.cluster.Stop() }()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "setting up:", err)
		return 1
	}
	return m.Run()
}

// Two kinds of machines at two sites: one that is clean and hungry, one that is dirty and frugal.
const knowledge = `
apiVersion: kubenergy.io/v1alpha1
kind: GridZone
metadata: {name: clean}
spec:
  zone: SE
  pue: 1.1
  carbon: {sources: [{static: {value: 50}}]}
  price: {currency: EUR, sources: [{static: {value: 0.10}}]}
---
apiVersion: kubenergy.io/v1alpha1
kind: GridZone
metadata: {name: dirty}
spec:
  zone: PL
  pue: 1.5
  carbon: {sources: [{static: {value: 700}}]}
  price: {currency: EUR, sources: [{static: {value: 0.20}}]}
---
apiVersion: kubenergy.io/v1alpha1
kind: PowerProfile
metadata: {name: frugal}
spec: {idleWatts: 40, maxWatts: 120, sleepWatts: 5}
---
apiVersion: kubenergy.io/v1alpha1
kind: PowerProfile
metadata: {name: hungry}
spec: {idleWatts: 100, maxWatts: 400, sleepWatts: 10}
`

func setUp(ctx context.Context, dir string) error {
	cluster, err := lab.Start(ctx, lab.Options{Dir: filepath.Join(dir, "c")})
	if err != nil {
		return err
	}
	shared = &world{cluster: cluster, dir: dir}
	if shared.client, err = kubernetes.NewForConfig(cluster.Config()); err != nil {
		return err
	}
	var nodes []lab.NodeSpec
	for i := range 6 {
		site, profile := "clean", "hungry"
		if i%2 == 1 {
			site, profile = "dirty", "frugal"
		}
		nodes = append(nodes, lab.NodeSpec{
			Name: fmt.Sprintf("node-%d", i), Capacity: lab.Capacity(16, 64),
			Labels: map[string]string{v1alpha1.LabelSite: site, v1alpha1.LabelPowerProfile: profile},
		})
	}
	if err := cluster.AddNodes(ctx, nodes); err != nil {
		return err
	}
	if err := cluster.AdmitHolds(ctx); err != nil {
		return err
	}
	// Processes of this machine take the place of pods.
	workloads := func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" || o.GetKind() == "PersistentVolumeClaim" || o.GetKind() == "GridZone"
	}
	if err := cluster.Apply(ctx, deploy.Everything, workloads); err != nil {
		return err
	}
	if err := cluster.Apply(ctx, deploy.Agent, func(o *unstructured.Unstructured) bool {
		return o.GetKind() != "ServiceAccount"
	}); err != nil {
		return err
	}
	return cluster.Apply(ctx, []byte(knowledge), nil)
}

// programs are what tests start, by name; each is built when one does for the first time.
var programs = map[string]func() (string, error){
	"kubenergy": built("cmd/kubenergy"), "kubenergy-scheduler": built("cmd/kubenergy-scheduler"),
	"kubenergy-controller": built("cmd/kubenergy-controller"),
	"kubenergy-agent":      built("cmd/kubenergy-agent"), "feeder": built("test/central/feed/feeder"),
}

// built returns what builds a main package of ours, once, and returns the program's path.
func built(folder string, args ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp(shared.dir, "bin")
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, filepath.Base(folder))
		cmd := exec.Command("go", slices.Concat([]string{"build", "-p", "2", "-o", path}, args,
			[]string{"./" + folder})...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s: %w\n%s", folder, err, out)
		}
		return path, nil
	})
}

// program returns the path of a program.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := programs[name]()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// process is one of our programs.
type process struct {
	cmd  *exec.Cmd
	name string
	log  string
	done chan struct{}
}

func (w *world) start(t *testing.T, name, binary string, env []string, args ...string) *process {
	t.Helper()
	p, err := w.launch(name, program(t, binary), env, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end(t) })
	return p
}

// launch starts a program; what it says is added to the log of its name.
func (w *world) launch(name, path string, env []string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(w.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{name: name, log: log.Name(), done: make(chan struct{}), cmd: exec.Command(path, args...)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() { _ = p.cmd.Wait(); log.Close(); close(p.done) }()
	return p, nil
}

// end kills the process, and shows the end of its log if the test has failed.
func (p *process) end(t *testing.T) {
	p.kill()
	if t.Failed() {
		const tail = 12_000
		text, _ := os.ReadFile(p.log)
		t.Logf("log of %s:\n%s", p.name, text[max(0, len(text)-tail):])
	}
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// central is a controller in a process of its own, and what is needed to ask it.
type central struct {
	*process
	world  *world
	url    string
	caFile string
	state  string
	client *http.Client
	path   string // of the program
	args   []string
	env    []string
	token  string
}

// controller starts the released controller with its own rights. Its ledger is in a folder of its own, or in the
// database of env.
func (w *world) controller(t *testing.T, env []string, args ...string) *central {
	t.Helper()
	return w.controllerIn(t, t.TempDir(), env, args...)
}

func (w *world) controllerIn(t *testing.T, state string, env []string, args ...string) *central {
	t.Helper()
	kubeconfig := filepath.Join(w.dir, "controller.kubeconfig")
	if err := w.cluster.KubeconfigOf(t.Context(), v1alpha1.SystemNamespace, "kubenergy-controller",
		kubeconfig); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	c := &central{
		world: w, path: program(t, "kubenergy-controller"), url: fmt.Sprintf("https://localhost:%d", port),
		state: state, caFile: filepath.Join(state, "api.crt"), env: env,
	}
	c.args = append([]string{
		"--kubeconfig=" + kubeconfig, "--state-dir=" + state, fmt.Sprintf("--api-bind-address=127.0.0.1:%d", port),
		"--metrics-bind-address=0",
		"--health-probe-bind-address=0", "--leader-elect=false", "--log-format=text", "--api-name=localhost",
	}, args...)
	t.Cleanup(func() {
		if c.process != nil {
			c.end(t)
		}
	})
	c.begin(t)
	c.token = w.token(t, "kubenergy-viewer", nil)
	return c
}

// begin starts the process, for the first time or again, and waits until it answers.
func (c *central) begin(t *testing.T) {
	t.Helper()
	c.launch(t)
	eventually(t, time.Minute, "the controller answers", func() bool {
		select {
		case <-c.done:
			text, _ := os.ReadFile(c.log)
			t.Fatalf("the controller has ended by itself:\n%s", text[max(0, len(text)-2000):])
		default:
		}
		return c.answers(t)
	})
}

// launch starts the process.
func (c *central) launch(t *testing.T) {
	t.Helper()
	p, err := c.world.launch("controller", c.path, c.env, c.args...)
	if err != nil {
		t.Fatal(err)
	}
	c.process, c.client = p, nil
}

func (c *central) answers(t *testing.T) bool {
	if c.client == nil {
		authority, err := os.ReadFile(c.caFile)
		if err != nil {
			return false
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority)
		c.client = &http.Client{
			Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
		}
	}
	status, _ := c.get(t, "/api/v1/nodes/power", "")
	return status == http.StatusUnauthorized
}

// get asks with a token.
func (c *central) get(t *testing.T, path, token string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// ask returns what the viewer is told.
func (c *central) ask(t *testing.T, path string, into any) error {
	t.Helper()
	status, body := c.get(t, path, c.token)
	if status != http.StatusOK {
		return fmt.Errorf("%s: %d: %s", path, status, body)
	}
	return json.Unmarshal([]byte(body), into)
}

// scheduler starts the released scheduler with the shipped configuration and waits until it is ready.
func (w *world) scheduler(t *testing.T, c *central) *process {
	t.Helper()
	kubeconfig := filepath.Join(w.dir, "scheduler.kubeconfig")
	if err := w.cluster.KubeconfigOf(t.Context(), v1alpha1.SystemNamespace, "kubenergy-scheduler",
		kubeconfig); err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(deploy.SchedulerConfig, &config); err != nil {
		t.Fatal(err)
	}
	config["clientConnection"].(map[string]any)["kubeconfig"] = kubeconfig
	config["leaderElection"] = map[string]any{"leaderElect": false}
	raw, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	path, token := filepath.Join(t.TempDir(), "scheduler.yaml"), filepath.Join(t.TempDir(), "token")
	for name, content := range map[string][]byte{path: raw, token: []byte(w.token(t, "kubenergy-scheduler", nil))} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := freePort(t)
	p := w.start(t, "scheduler", "kubenergy-scheduler", nil, "--config="+path, "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir="+t.TempDir(), "--authorization-always-allow-paths=/readyz,/metrics",
		"--authentication-skip-lookup",
		"--kubenergy-live-url="+c.url, "--kubenergy-live-token-file="+token, "--kubenergy-live-ca-file="+c.caFile)
	client := &http.Client{
		Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	eventually(t, time.Minute, "the scheduler is ready", func() bool {
		answer, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return p
}

// token asks for a token of an account of ours, bound to a pod if there is one.
func (w *world) token(t *testing.T, account string, pod *corev1.Pod) string {
	t.Helper()
	text, err := w.requestToken(t.Context(), account, pod)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (w *world) requestToken(ctx context.Context, account string, pod *corev1.Pod) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{"kubenergy"}, ExpirationSeconds: new(int64(3600)),
	}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
		}
	}
	got, err := w.client.CoreV1().ServiceAccounts(v1alpha1.SystemNamespace).CreateToken(ctx, account, request,
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return got.Status.Token, nil
}

// agents meters the nodes until stop is called. Each has the token of a pod of the agent on its node, as the
// DaemonSet's have.
func (w *world) agents(t *testing.T, c *central) (metered *meters, stop func()) {
	t.Helper()
	nodes, err := w.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tokens := t.TempDir()
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		token := w.token(t, "kubenergy-agent", w.agentPod(t, name))
		if err := os.WriteFile(filepath.Join(tokens, name), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := kube.NewObjects(w.cluster.Config(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 2)
	go func() { ended <- objects.Run(ctx) }()
	eventually(t, time.Minute, "power profiles are known",
		func() bool { return objects.View().Profile("hungry") != nil })
	metered = &meters{
		client: w.client, url: c.url + "/api/v1/batches", caFile: c.caFile, view: objects.View, push: 2 * time.Second,
		tokenFile: func(node string) string { return filepath.Join(tokens, node) },
	}
	go func() { ended <- metered.run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return metered, stop
}

// agentPod returns the pod whose token a node's agent shows.
func (w *world) agentPod(t *testing.T, node string) *corev1.Pod {
	t.Helper()
	pods := w.client.CoreV1().Pods(v1alpha1.SystemNamespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubenergy-agent-" + node, Labels: map[string]string{"app.kubernetes.io/name": "kubenergy-agent"},
		},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "kubenergy-agent",
			Containers: []corev1.Container{{Name: "agent", Image: "simulated"}},
		},
	}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil &&
		!strings.Contains(err.Error(), "already exists") {
		t.Fatal(err)
	}
	got, err := pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func eventually(t *testing.T, within time.Duration, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v it is not true that %s", within, what)
		}
	}
}
