package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/lab"
)

const (
	root          = "../.."
	schedulerName = "kubenergy"
	account       = "kubenergy-scheduler"
)

// world is a real control plane with what we ship installed in it. All tests of the package share one.
type world struct {
	cluster *lab.Cluster
	config  *rest.Config
	client  kubernetes.Interface
	dir     string
	binary  string
}

var shared *world

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	for _, arg := range os.Args[1:] {
		if arg == "-test.short" || arg == "-test.short=true" {
			return m.Run()
		}
	}
	// The name of a test's own folder would make the path of etcd's socket too long on some systems.
	dir, err := os.MkdirTemp("", "hold")
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

func setUp(ctx context.Context, dir string) error {
	binary := filepath.Join(dir, "kubenergy-scheduler")
	if out, err := exec.Command("go", "build", "-p", "2", "-o", binary,
		root+"/cmd/kubenergy-scheduler").CombinedOutput(); err != nil {
		return fmt.Errorf("building the scheduler: %w\n%s", err, out)
	}
	cluster, err := lab.Start(ctx, lab.Options{Dir: filepath.Join(dir, "c")})
	if err != nil {
		return err
	}
	shared = &world{cluster: cluster, config: cluster.Config(), dir: dir, binary: binary}
	if shared.client, err = kubernetes.NewForConfig(shared.config); err != nil {
		return err
	}
	if err := cluster.AddNodes(ctx, lab.Nodes("node", 10, lab.Capacity(64, 256), nil)); err != nil {
		return err
	}
	if err := cluster.AdmitHolds(ctx); err != nil {
		return err
	}
	for _, file := range []string{"scheduler/rbac.yaml", "hold/guard.yaml"} {
		if err := shared.apply(ctx, filepath.Join(root, "deploy", file)); err != nil {
			return fmt.Errorf("applying %s: %w", file, err)
		}
	}
	return shared.admissionWorks(ctx)
}

// apply creates the objects of a file.
func (w *world) apply(ctx context.Context, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	client, err := dynamic.NewForConfig(w.config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(w.client.Discovery()))
	decoder := utilyaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(object.Object) == 0 {
			continue
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		_, err = client.Resource(mapping.Resource).Namespace(object.GetNamespace()).Create(ctx, object,
			metav1.CreateOptions{FieldValidation: "Strict"})
		if err != nil {
			return fmt.Errorf("%s %s: %w", kind.Kind, object.GetName(), err)
		}
	}
}

// admissionWorks waits for the policies, which the API server picks up a few seconds after they were created.
func (w *world) admissionWorks(ctx context.Context) error {
	for range 300 {
		job := newJob("probe", "1h", nil)
		created, err := w.client.BatchV1().Jobs("default").Create(ctx, job,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && created.Labels[v1alpha1.LabelHeld] == "true" && *created.Spec.Suspend {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("the admission policy does not suspend Jobs")
}

// kubeconfig writes one for an account of our namespace: what it may is part of what is tested.
func (w *world) kubeconfig(ctx context.Context, account string) (string, error) {
	seconds := int64(3600)
	token, err := w.client.CoreV1().ServiceAccounts(v1alpha1.SystemNamespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}},
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{
		Server: w.config.Host, CertificateAuthority: w.config.CAFile, CertificateAuthorityData: w.config.CAData,
		TLSServerName: w.config.ServerName, InsecureSkipTLSVerify: w.config.Insecure,
	}
	config.AuthInfos["us"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "us"}
	config.CurrentContext = "lab"
	path := filepath.Join(w.dir, account+".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// process is a kubenergy-scheduler in a process of its own.
type process struct {
	cmd  *exec.Cmd
	name string
	url  string
	done chan struct{}
}

// scheduler starts a replica with the shipped configuration, but for shorter leases, and waits until its caches have
// synced. signals may not exist.
func (w *world) scheduler(t *testing.T, name, signals string, args ...string) *process {
	t.Helper()
	return w.schedulerAs(t, account, name, signals, args...)
}

func (w *world) schedulerAs(t *testing.T, account, name, signals string, args ...string) *process {
	t.Helper()
	kubeconfig, err := w.kubeconfig(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(root, "deploy/scheduler/config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	config["clientConnection"].(map[string]any)["kubeconfig"] = kubeconfig
	election := config["leaderElection"].(map[string]any)
	election["leaseDuration"], election["renewDeadline"], election["retryPeriod"] = "6s", "4s", "500ms"
	if raw, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.dir, name+".yaml")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	log, err := os.Create(filepath.Join(w.dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{name: name, url: fmt.Sprintf("https://127.0.0.1:%d", port), done: make(chan struct{})}
	p.cmd = exec.Command(w.binary, append([]string{
		"--config=" + path, "--kubenergy-signals=" + signals, "--kubenergy-min-saving=0",
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir=" + filepath.Join(w.dir, name),
		"--authorization-always-allow-paths=/readyz,/metrics", "--authentication-skip-lookup",
	}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); log.Close(); close(p.done) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("log of %s:\n%s", name, text[max(0, len(text)-8000):])
		}
	})
	eventually(t, time.Minute, name+" is ready", func() bool {
		code, _ := p.get("/readyz")
		return code == http.StatusOK
	})
	return p
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) get(path string) (code int, body string) {
	client := &http.Client{Timeout: 2 * time.Second, Transport: insecure}
	r, err := client.Get(p.url + path)
	if err != nil {
		return 0, ""
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(text)
}

// metric returns a line of the process's /metrics page.
func (p *process) metric(series string) string {
	_, page := p.get("/metrics")
	for line := range strings.Lines(page) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// leads waits until the process holds both Leases.
func (w *world) leads(t *testing.T, p *process) {
	t.Helper()
	eventually(t, time.Minute, p.name+" keeps windows", func() bool {
		lease, err := w.client.CoordinationV1().Leases(v1alpha1.SystemNamespace).Get(t.Context(), "kubenergy-hold",
			metav1.GetOptions{})
		if err != nil {
			return false
		}
		log, _ := os.ReadFile(filepath.Join(w.dir, p.name+".log"))
		return lease.Spec.HolderIdentity != nil && strings.Contains(string(log), *lease.Spec.HolderIdentity) &&
			strings.Contains(string(log), "Keeping windows from now on")
	})
}

// forgetLeases lets the next process lead at once: the last one was killed and gave nothing back.
func (w *world) forgetLeases(t *testing.T) {
	for _, name := range []string{"kubenergy-hold", "kubenergy-scheduler"} {
		err := w.client.CoordinationV1().Leases(v1alpha1.SystemNamespace).Delete(t.Context(), name,
			metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

// declining writes signals of a grid that gets a little cleaner every second for half an hour: whatever may wait waits
// until its deadline.
func (w *world) declining(t *testing.T) (path string) {
	values := make([]float64, 1800)
	for i := range values {
		values[i] = 1000 - float64(i)/2
	}
	file := map[string]any{"apiVersion": "kubenergy.io/v1alpha1", "kind": "Signals", "sites": []any{map[string]any{
		"name": "here", "carbon": map[string]any{
			"start": time.Now().UTC().Add(-time.Minute), "step": "1s", "values": values, "quality": "estimated",
		},
	}}}
	raw, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "signals.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func eventually(t *testing.T, within time.Duration, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v it is not true that %s", within, what)
		}
	}
}
