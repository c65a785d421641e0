package grafana

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

const knowledge = `
apiVersion: kubenergy.io/v1alpha1
kind: GridZone
metadata: {name: site}
spec:
  zone: SE
  pue: 1.2
  carbon: {sources: [{file: {path: grid.csv}}]}
  price: {currency: EUR, sources: [{static: {value: 0.10}}]}
---
apiVersion: kubenergy.io/v1alpha1
kind: PowerProfile
metadata: {name: box}
spec: {idleWatts: 40, maxWatts: 120, sleepWatts: 5, bootSeconds: 60}
---
apiVersion: kubenergy.io/v1alpha1
kind: EnergyBudget
metadata: {name: lasting, namespace: team-a}
spec: {limits: {energyKWh: 0.0001}, period: {type: Day}, actions: [{at: 1, do: Event}, {do: Event}]}
---
apiVersion: kubenergy.io/v1alpha1
kind: EnergyBudget
metadata: {name: strict, namespace: team-c}
spec: {limits: {energyKWh: 0.00001}, period: {type: Day}, actions: [{do: Suspend}]}
`

// Half of the nodes have an agent. The energy of the other nodes is estimated.
const withAgent, allNodes = 2, 4

// world is a real control plane with the KubEnergy scheduler, controller and agents in separate processes.
type world struct {
	*cluster.Cluster
	jobs int
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{Cluster: cluster.Start(t, lab.Options{})}
	ctx := t.Context()
	var nodes []lab.NodeSpec
	for i := range allNodes {
		nodes = append(nodes, lab.NodeSpec{
			Name: fmt.Sprintf("node-%d", i), Capacity: lab.Capacity(16, 64), Labels: map[string]string{
				v1alpha1.LabelSite: "site", v1alpha1.LabelPowerProfile: "box", v1alpha1.LabelMaySleep: "true",
			},
		})
	}
	// Local processes replace the pods of these workloads.
	skip := func(kinds ...string) func(*unstructured.Unstructured) bool {
		return func(o *unstructured.Unstructured) bool {
			return strings.Contains(strings.Join(kinds, " "), o.GetKind())
		}
	}
	for _, err := range []error{
		w.AddNodes(ctx, nodes), w.AdmitHolds(ctx),
		w.Apply(ctx, deploy.Everything, skip("Deployment", "PersistentVolumeClaim", "GridZone")),
		w.Apply(ctx, deploy.Agent, skip("DaemonSet")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]string{"team-a": "enforce", "team-b": "shadow", "team-c": "enforce"} {
		w.Namespace(t, name, map[string]string{v1alpha1.LabelMode: mode})
	}
	if err := w.Apply(ctx, []byte(knowledge), nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// gridOf returns carbon intensities that alternate between high and low every minute, so that holds save carbon and
// end soon.
func gridOf(now time.Time) string {
	var b strings.Builder
	b.WriteString("datetime,ci_lifecycle_g_per_kwh\n")
	for i := range 120 {
		intensity := 500
		if i%2 == 1 {
			intensity = 100
		}
		fmt.Fprintf(&b, "%s,%d\n", now.Truncate(time.Minute).Add(time.Duration(i)*time.Minute).UTC().Format(time.RFC3339),
			intensity)
	}
	return b.String()
}

// scraper returns the token of a service account that can read metrics.
func (w *world) scraper(t *testing.T) string {
	t.Helper()
	w.Namespace(t, "monitoring", nil)
	_, err := w.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus-kubenergy"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubenergy-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "monitoring", Name: "default"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := w.Client.CoreV1().ServiceAccounts("monitoring").CreateToken(t.Context(), "default",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// programs starts the scheduler, the controller and the agents and returns their metrics addresses.
func (w *world) programs(t *testing.T) (controller, scheduler string, agents map[string]string) {
	t.Helper()
	state, api := t.TempDir(), kit.Address(t)
	_, port, _ := strings.Cut(api, ":")
	url, ca := "https://localhost:"+port, filepath.Join(state, "api.crt")
	controller = kit.Address(t)
	data := t.TempDir()
	kit.Write(t, filepath.Join(data, "grid.csv"), gridOf(time.Now()))
	kubeconfig, _ := w.Account(t, "kubenergy-controller")
	kit.Start(t, w.Dir, "controller", exec.Command(kit.Build(t, "./cmd/kubenergy-controller"),
		"--kubeconfig="+kubeconfig, "--state-dir="+state, "--api-bind-address="+api, "--api-name=localhost",
		"--metrics-bind-address="+controller, "--health-probe-bind-address=0", "--log-format=text",
		"--data-dir="+data, "--agent-namespace="+cluster.AgentNamespace))
	kit.Eventually(t, time.Minute, "the controller has created its certificate", func() bool {
		client, err := kit.Trusting(ca)
		if err != nil {
			return false
		}
		status, _ := kit.Get(t.Context(), client, url+"/api/v1/nodes/power", "")
		return status == 401
	})
	kubeconfig, _ = w.Account(t, "kubenergy-scheduler")
	token := kit.Write(t, filepath.Join(t.TempDir(), "token"), w.Token(t, "kubenergy-scheduler", nil))
	scheduler = kit.Address(t)
	_, port, _ = strings.Cut(scheduler, ":")
	s := cluster.StartScheduler(t, w.Dir, "scheduler", kubeconfig, nil, "--kubenergy-live-url="+url,
		"--kubenergy-live-token-file="+token, "--kubenergy-live-ca-file="+ca, "--secure-port="+port)
	w.Leads(t, s)
	agents = map[string]string{}
	for i := range withAgent {
		node := fmt.Sprintf("node-%d", i)
		agents[node] = w.agent(t, node, url, ca)
	}
	return controller, scheduler, agents
}

// agent starts the agent of a node with simulated kernel files that reflect the usage of the pods on the node.
func (w *world) agent(t *testing.T, node, url, ca string) (address string) {
	t.Helper()
	m := newMachine(t, w, node)
	address = kit.Address(t)
	token := kit.Write(t, filepath.Join(t.TempDir(), "token"), w.Token(t, "kubenergy-agent", w.agentPod(t, node)))
	kit.Start(t, w.Dir, "agent-"+node, exec.Command(kit.Build(t, "./cmd/kubenergy-agent"),
		"--node-name="+node, "--listen="+address, "--state-dir="+t.TempDir(), "--batch-interval=2s",
		"--cgroup-root="+m.groups, "--proc-root="+m.proc, "--powercap-root="+m.powercap, "--hwmon-root="+m.proc,
		"--meters=rapl", "--push-url="+url+"/api/v1/batches", "--push-ca-file="+ca, "--push-token-file="+token,
		"--guests-dir="+t.TempDir(), "--log-format=text"))
	return address
}

// agentPod creates the pod to which the token of an agent is bound, as for pods of the DaemonSet.
func (w *world) agentPod(t *testing.T, node string) *corev1.Pod {
	t.Helper()
	pod, err := w.Client.CoreV1().Pods(cluster.AgentNamespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubenergy-agent-" + node, Labels: map[string]string{"app.kubernetes.io/name": "kubenergy-agent"},
		},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "kubenergy-agent",
			Containers: []corev1.Container{{Name: "agent", Image: "simulated"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// machine simulates the kernel files of a node: an energy counter and the control groups of its pods.
type machine struct {
	groups, proc, powercap string
	joules                 float64
	busy                   time.Duration
	used                   map[string]time.Duration // by pod
}

func newMachine(t *testing.T, w *world, node string) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{
		groups: filepath.Join(dir, "cgroup"), proc: filepath.Join(dir, "proc"), powercap: filepath.Join(dir, "powercap"),
		used: map[string]time.Duration{},
	}
	zone := filepath.Join(m.powercap, "intel-rapl:0")
	for _, folder := range []string{m.groups, m.proc, zone, filepath.Join(m.groups, "kubepods")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	kit.Write(t, filepath.Join(zone, "name"), "package-0\n")
	kit.Write(t, filepath.Join(zone, "max_energy_range_uj"), "9000000000000000\n")
	kit.Write(t, filepath.Join(m.groups, "cgroup.controllers"), "cpu memory\n")
	kit.Write(t, filepath.Join(m.proc, "stat"), "cpu  1 2 3 4 5 6 7 0 0 0\ncpu0 1 2 3 4 5 6 7 0 0 0\nintr 1\n")
	if err := m.step(nil, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	go func() {
		const every = 500 * time.Millisecond
		for {
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-time.After(every):
			}
			pods, err := w.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
			if err == nil {
				err = m.step(pods.Items, every)
			}
			if err != nil && ctx.Err() == nil {
				ended <- err
				return
			}
		}
	}()
	return m
}

// step advances the counters by d. Each running pod uses one core.
func (m *machine) step(pods []corev1.Pod, d time.Duration) error {
	const idle, ofCore, systems = 40.0, 5.0, 0.1 // watts, and cores
	runs := map[string]time.Duration{}
	for i := range pods {
		if p := &pods[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			runs[string(p.UID)] = m.used[string(p.UID)] + d
		}
	}
	for uid := range m.used {
		if _, ok := runs[uid]; !ok {
			// Move the directory instead of removing it. File systems reuse the inode of a removed directory, but
			// the kernel does not reuse the IDs of control groups.
			if err := os.Rename(filepath.Join(m.groups, "kubepods", "pod"+uid), m.proc+"-"+uid); err != nil {
				return err
			}
		}
	}
	cores := systems + float64(len(runs))
	m.busy += time.Duration(cores * float64(d))
	m.joules += (idle + ofCore*cores) * d.Seconds()
	m.used = runs
	all := time.Duration(0)
	for uid, used := range runs {
		all += used
		folder := filepath.Join("kubepods", "pod"+uid)
		container := filepath.Join(folder, fmt.Sprintf("%064s", strings.ReplaceAll(uid, "-", "")))
		for _, group := range []string{container, folder} {
			if err := m.count(group, used); err != nil {
				return err
			}
		}
	}
	if err := m.count("kubepods", max(all, m.busy/2)); err != nil {
		return err
	}
	if err := m.count("", m.busy); err != nil {
		return err
	}
	return write(filepath.Join(m.powercap, "intel-rapl:0", "energy_uj"),
		fmt.Sprintf("%d\n", 4_000_000_000_000_000+int64(m.joules*1e6)))
}

func (m *machine) count(group string, used time.Duration) error {
	if err := os.MkdirAll(filepath.Join(m.groups, group), 0o755); err != nil {
		return err
	}
	return write(filepath.Join(m.groups, group, "cpu.stat"),
		fmt.Sprintf("usage_usec %016d\nuser_usec %016d\nsystem_usec 0\n", used.Microseconds(), used.Microseconds()))
}

// write overwrites a file in a single write, so that readers never read a partial number.
func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// submit creates one Job of each kind that the panels require.
func (w *world) submit(t *testing.T) {
	t.Helper()
	w.jobs++
	const runs = 8 * time.Second
	for name, job := range map[string]struct {
		namespace string
		marks     map[string]string
	}{
		"now":     {"team-a", map[string]string{v1alpha1.AnnotationStrategy: "energy"}},
		"exec":    {"team-a", map[string]string{v1alpha1.AnnotationStrategy: "exec", v1alpha1.AnnotationMaxPower: "500"}},
		"picky":   {"team-a", map[string]string{v1alpha1.AnnotationMaxPower: "1"}}, // no node has such a low power
		"shadow":  {"team-b", map[string]string{v1alpha1.AnnotationAllowedDelay: "1h"}},
		"greedy":  {"team-c", nil},
		"held":    {"team-a", map[string]string{v1alpha1.AnnotationAllowedDelay: "5m"}},
		"doubted": {"team-a", map[string]string{v1alpha1.AnnotationAllowedDelay: "soon"}},
	} {
		marks := map[string]string{v1alpha1.AnnotationExpectedDuration: runs.String()}
		maps.Copy(marks, job.marks)
		pod := maps.Clone(marks)
		pod[v1alpha1.AnnotationLabRunSeconds] = lab.RunSeconds(runs)
		_, err := w.Client.BatchV1().Jobs(job.namespace).Create(t.Context(), &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, w.jobs), Annotations: marks},
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: pod},
				Spec: corev1.PodSpec{
					SchedulerName: policy.SchedulerName, RestartPolicy: corev1.RestartPolicyNever,
					Containers: []corev1.Container{{
						Name: "job", Image: "simulated", Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")},
						},
					}},
				},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}
