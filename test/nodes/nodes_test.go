//go:build linux

package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

const timeout = 4 * time.Minute // allows for a busy machine

// inside runs the tests inside the namespaces.
func inside(t *testing.T) {
	w := start(t)
	t.Run("install", w.testInstall)
	if t.Failed() {
		w.notify(t)
		return
	}
	t.Run("security contexts", w.testSecurityContexts)
	t.Run("a Job is placed, metered and recorded", w.testJob)
	t.Run("experiment", w.testExperiment)
	t.Run("other architectures", w.testArchitectures)
	if t.Failed() {
		w.notify(t)
	}
}

// run runs a KubEnergy program as a user of the cluster and returns its standard output.
func (w *world) run(program string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(kit.Root, "out", "test", program), args...)
	cmd.Dir, cmd.Env = kit.Root, append(os.Environ(), "KUBECONFIG="+w.Kubeconfig())
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}

// shell runs the commands of a document with kubectl in the PATH.
func (w *world) shell(t *testing.T, commands string) {
	t.Helper()
	programs := filepath.Join(w.Dir, "bin")
	if err := os.MkdirAll(programs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(kit.Root, "out/test/kubenergy-lab"),
		filepath.Join(programs, "kubectl")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-euc", commands)
	cmd.Dir = kit.Root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig(), "PATH="+programs+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil || commands == "" {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
}

func (w *world) kubectl(t *testing.T, args ...string) {
	t.Helper()
	if _, err := w.run("kubenergy-lab", append([]string{"kubectl"}, args...)...); err != nil {
		t.Fatal(err)
	}
}

// volume is the PersistentVolume for the ledger, a directory on one node that is owned by root.
const volume = `{apiVersion: v1, kind: PersistentVolume, metadata: {name: ledger}, spec: {
capacity: {storage: 20Gi}, accessModes: [ReadWriteOnce], local: {path: DIR}, nodeAffinity: {required: {nodeSelectorTerms: [
{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [real1]}]}]}}}}`

// testInstall follows deploy/hold/README.md and docs/reference/agent.md, using images of the registry.
func (w *world) testInstall(t *testing.T) {
	dir := filepath.Join(w.nodes[0].Dir, "ledger")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	apply := func(file string, change *strings.Replacer) {
		text, err := os.ReadFile(filepath.Join(kit.Root, file))
		if err != nil {
			t.Fatal(err)
		}
		w.kubectl(t, "apply", "-f", kit.Write(t, filepath.Join(w.Dir, "manifest.yaml"), change.Replace(string(text))))
	}
	pulled := strings.NewReplacer("image: kubenergy", "image: "+registry+"/kubenergy")
	w.kubectl(t, "apply", "-f", kit.Write(t, filepath.Join(w.Dir, "volume.yaml"), strings.Replace(volume, "DIR", dir, 1)))
	w.kubectl(t, "apply", "--server-side", "-f", "charts/kubenergy/crds")
	apply("deploy/agent/daemonset.yaml", pulled)
	page, err := os.ReadFile(filepath.Join(kit.Root, "docs/reference/agent.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, commands, _ := strings.Cut(string(page), "## Install it")
	_, commands, _ = strings.Cut(commands, "```sh test=TestNodes\n")
	commands, _, _ = strings.Cut(commands, "```")
	w.shell(t, commands)
	w.kubectl(t, "-n", v1alpha1.SystemNamespace, "rollout", "status", "deployment/kubenergy-scheduler", "--timeout=10m")
	w.kubectl(t, "-n", v1alpha1.SystemNamespace, "rollout", "status", "deployment/kubenergy-controller", "--timeout=10m")
	w.kubectl(t, "-n", cluster.AgentNamespace, "rollout", "status", "daemonset/kubenergy-agent", "--timeout=10m")
	apply("deploy/hold/admission.yaml", pulled)
	for program, want := range map[string]int{"scheduler": 2, "controller": 1, "agent": 2} {
		if got := len(w.pods(t, program)); got != want {
			t.Errorf("got %d ready pods of %s, want %d", got, program, want)
		}
	}
}

// pods returns the ready pods of a KubEnergy program.
func (w *world) pods(t *testing.T, program string) (ready []corev1.Pod) {
	t.Helper()
	all, err := w.Client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=kubenergy-" + program,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all.Items {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				ready = append(ready, p)
			}
		}
	}
	return ready
}

// notify logs the logs of all pods, which pass through the API server and the kubelets, and warning events.
func (w *world) notify(t *testing.T) {
	t.Helper()
	all, err := w.Client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all.Items {
		status, _ := json.Marshal(p.Status.ContainerStatuses)
		log, err := w.Client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		t.Logf("%s on %s, %s: %s\n%s%v", p.Name, p.Spec.NodeName, p.Status.Phase, status, log[max(0, len(log)-3000):], err)
	}
	events, err := w.Client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Type == corev1.EventTypeWarning {
			t.Logf("%s %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

// contained contains the security attributes of a container's first process according to the kernel.
type contained struct {
	User, Group, Capabilities, Bounding, NoNewPrivileges, Seccomp, Root, Program string
}

// process returns the attributes of the first process of a container. All processes are visible to the test.
func process(t *testing.T, container string) (c contained) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		read := func(name string) string {
			text, _ := os.ReadFile(filepath.Join(p, name)) // the process may have exited
			return string(text)
		}
		if !strings.Contains(read("cgroup"), container) {
			continue
		}
		status := map[string]string{}
		for line := range strings.Lines(read("status")) {
			key, value, _ := strings.Cut(line, ":")
			value, _, _ = strings.Cut(strings.TrimSpace(value), "\t")
			status[key] = value
		}
		for line := range strings.Lines(read("mountinfo")) {
			if f := strings.Fields(line); len(f) > 5 && f[4] == "/" {
				c.Root, _, _ = strings.Cut(f[5], ",")
			}
		}
		c.Program, _, _ = strings.Cut(read("cmdline"), "\x00")
		c.User, c.Group, c.Capabilities, c.Bounding = status["Uid"], status["Gid"], status["CapEff"], status["CapBnd"]
		c.NoNewPrivileges, c.Seccomp = status["NoNewPrivs"], status["Seccomp"]
		return c
	}
	t.Fatalf("no process found for container %s", container)
	return c
}

func (w *world) testSecurityContexts(t *testing.T) {
	const none, filtered = "0000000000000000", "2"
	for program, user := range map[string]string{"scheduler": "65532", "controller": "65532", "agent": "0"} {
		for _, p := range w.pods(t, program) {
			_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
			want := contained{user, user, none, none, "1", filtered, "ro", "/kubenergy-" + program}
			if diff := cmp.Diff(want, process(t, id)); diff != "" {
				t.Errorf("unexpected security attributes of pod %s on node %s (-want,+got):\n%s",
					p.Name, p.Spec.NodeName, diff)
			}
			if log, err := w.Client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).
				DoRaw(t.Context()); err != nil || len(log) == 0 {
				t.Errorf("reading the log of pod %s from its kubelet: %q, error %v", p.Name, log, err)
			}
		}
	}
}

// job has one pod that uses half a core and is placed by the KubEnergy scheduler.
const job = `{apiVersion: batch/v1, kind: Job, metadata: {name: burn, namespace: default}, spec: {template: {spec: {
schedulerName: kubenergy, restartPolicy: Never, securityContext: {runAsNonRoot: true}, containers: [{name: burn,
image: "IMAGE", args: [stress, --cpu=500m, --duration=20s], resources: {requests: {cpu: 500m, memory: 64Mi}}}]}}}}`

func (w *world) testJob(t *testing.T) {
	// Agents deliver batches after the kubelet has mounted the certificate of the controller, which takes about a
	// minute.
	kit.Await(t, timeout, "kubenergy top reports the power of both nodes", func(context.Context) (bool, error) {
		nodes, err := w.top("nodes")
		return len(nodes) == 2 && metered(nodes), fmt.Errorf("%+v: %w", nodes, err)
	})
	var burn batchv1.Job
	if err := yaml.UnmarshalStrict([]byte(strings.Replace(job, "IMAGE", w.image(t), 1)), &burn); err != nil {
		t.Fatal(err)
	}
	before := w.drawn()
	if _, err := w.Client.BatchV1().Jobs("default").Create(t.Context(), &burn, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kit.Await(t, timeout, "kubenergy top reports the power of the Job's pod", func(context.Context) (bool, error) {
		pods, err := w.top("pods", "-n", "default")
		return len(pods) == 1 && pods[0].Owner == "Job/burn" && metered(pods), fmt.Errorf("%+v: %w", pods, err)
	})
	kit.Await(t, timeout, "the Job has completed", func(ctx context.Context) (bool, error) {
		j, err := w.Client.BatchV1().Jobs("default").Get(ctx, "burn", metav1.GetOptions{})
		return err == nil && j.Status.Succeeded == 1, fmt.Errorf("%+v: %w", j, err)
	})
	kit.Await(t, timeout, "kubenergy report contains the energy of the Job", func(context.Context) (bool, error) {
		out, err := w.run("kubenergy", "report", "--group-by", "owner", "--owner", "Job/burn", "-o", "json")
		var r struct {
			Total struct {
				EnergyKWh, CPUHours, EstimatedShare float64
			}
		}
		if err == nil {
			err = json.Unmarshal([]byte(out), &r)
		}
		cpu, joules := 3600*r.Total.CPUHours, 3.6e6*r.Total.EnergyKWh
		if cpu < 9 { // half of 20 s, with a margin for a busy machine
			return false, fmt.Errorf("%s: %w", out, err)
		}
		t.Logf("Job/burn: %.0f J for %.1f s of CPU time; all nodes used %.0f J", joules, cpu, w.drawn()-before)
		if joules < cpu || joules > w.drawn()-before || r.Total.EstimatedShare > 0 {
			t.Errorf("unexpected report: %s", out)
		}
		return true, nil
	})
}

// power is an entry in the output of kubenergy top.
type power struct {
	Name, Node, Owner, Source, Quality string
	Watts                              float64
	Stale                              bool
}

// metered reports whether all values are current and come from the energy counters of the nodes.
func metered(all []power) bool {
	return !slices.ContainsFunc(all, func(p power) bool {
		return !strings.Contains(p.Source, "rapl") || p.Quality == "estimated" || p.Stale || p.Watts <= 0
	})
}

func (w *world) top(what string, args ...string) ([]power, error) {
	var list struct{ Items []power }
	out, err := w.run("kubenergy", append([]string{"top", what, "-o", "json"}, args...)...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &list)
	}
	return list.Items, err
}

// drawn returns the total energy of all nodes.
func (w *world) drawn() (joules float64) {
	for _, n := range w.nodes {
		joules += float64(n.energy.Load()) / 1e6
	}
	return joules
}

// image returns the reference of the image with the command line.
func (w *world) image(t *testing.T) string {
	t.Helper()
	p := w.pods(t, "controller")
	return strings.Replace(p[0].Spec.Containers[0].Image, "kubenergy-controller", "kubenergy", 1)
}
