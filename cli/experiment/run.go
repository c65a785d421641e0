package experiment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/report"
)

// Where an experiment runs: in a lab that it starts, or in a cluster that there is.
const (
	TargetLab     = "lab"
	TargetCluster = "cluster"
)

const (
	labProgram = "kubenergy-lab"
	patience   = 5 * time.Minute
)

// WorkDir is where the lab and the contestants write, below the folder of results.
func WorkDir(out string) string { return filepath.Join(out, "work") }

// Runner runs an experiment.
type Runner struct {
	File       *File
	Target     string
	Work       string // its own folder
	Kubeconfig string // of the cluster; the lab's is found when it has started
	Told       func(done, all int)
	// Meter returns what all nodes draw by meters, and what they are; nil: there is none, and energy is modelled.
	Meter func(context.Context) (watts float64, what string, err error)

	Manifest report.ExperimentManifest // filled in

	run     string
	client  kubernetes.Interface
	objects *kube.Objects
}

// Run carries the experiment out and returns what was measured. It leaves nothing in the cluster.
func (r *Runner) Run(ctx context.Context) (trials []report.ExperimentTrial, err error) {
	m := &r.Manifest
	r.run, m.Programs = time.Now().UTC().Format("20060102-150405"), map[string]string{}
	m.APIVersion, m.Kind, m.Go, m.Platform = "kubenergy.io/v1alpha1", "ExperimentManifest", runtime.Version(),
		runtime.GOOS+"/"+runtime.GOARCH
	m.Kernel, m.CPUs, m.Target, m.Seed = proc("sys/kernel/osrelease"), runtime.NumCPU(), r.Target, r.File.Seed
	m.Began, m.LoadBefore, m.File = time.Now().UTC(), proc("loadavg"), digest(r.File.path)
	if r.Target == TargetLab {
		stop, err := r.startLab(ctx)
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	config, err := clientcmd.BuildConfigFromFlags("", r.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // requests must not wait for each other
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if _, err := Clean(ctx, r.client); err != nil { // of a run that was killed
		return nil, err
	}
	if err := r.addNodes(ctx); err != nil {
		return nil, err
	}
	if r.objects, err = kube.NewObjects(config, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	go func() { _ = r.objects.Run(ctx) }() // what it does not know is no opinion
	for end := time.Now().Add(10 * time.Second); !r.objects.View().Settled() && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond) // where our kinds are not installed, it never settles
	}
	version, err := r.client.Discovery().ServerVersion()
	if err != nil {
		return nil, err
	}
	m.Kubernetes = version.GitVersion
	trials, err = r.arms(ctx)
	// What is removed must be gone even where the experiment was interrupted.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_, failed := Clean(clean, r.client)
	m.Ended, m.LoadAfter = time.Now().UTC(), proc("loadavg")
	return trials, cmp.Or(err, failed)
}

// proc is the first line of a file below /proc; "" where there is none.
func proc(name string) string {
	text, _ := os.ReadFile("/proc/" + name)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

func digest(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func (r *Runner) arms(ctx context.Context) (trials []report.ExperimentTrial, err error) {
	order := r.File.order()
	for i, k := range order {
		r.Told(i, len(order))
		c := &r.File.Contestants[k]
		r.Manifest.Order = append(r.Manifest.Order, c.Name)
		a := &arm{
			Runner: r, round: 1 + i/len(r.File.Contestants), namespace: fmt.Sprintf("experiment-%s-%d", r.run, i+1),
		}
		trial, err := a.run(ctx, c)
		if err == nil {
			_, err = Clean(ctx, r.client)
		}
		if err != nil {
			return nil, fmt.Errorf("arm %d, %s: %w", i+1, c.Name, err)
		}
		trial.Contestant, trial.Round, trial.Arm = c.Name, a.round, i+1
		trials = append(trials, *trial)
	}
	r.Told(len(order), len(order))
	return trials, nil
}

// startLab starts a control plane without nodes and without a scheduler as a child that dies with us.
func (r *Runner) startLab(ctx context.Context) (stop func(), err error) {
	path, err := program(labProgram)
	if err != nil {
		return nil, err
	}
	lab, err := start(filepath.Join(r.Work, "lab.log"), "", path, "up", "--bare", "--dir", r.Work)
	if err != nil {
		return nil, err
	}
	home := filepath.Join(r.Work, "cluster")
	r.Kubeconfig = filepath.Join(home, "kubeconfig")
	err = eventually(ctx, "the lab is ready", func() (bool, error) {
		_, err := os.Stat(filepath.Join(home, "ready"))
		return err == nil, lab.lives()
	})
	for _, flags := range [][]string{nil, {"--subresource=status"}} {
		if r.File.Objects == "" || err != nil {
			break
		}
		var text []byte
		if text, err = os.ReadFile(r.File.beside(r.File.Objects)); err != nil {
			break
		}
		now := time.Now().UTC().Truncate(time.Hour).Format(time.RFC3339)
		flags = append([]string{"kubectl", "apply", "--server-side", "-f-"}, flags...)
		apply := exec.CommandContext(ctx, path, flags...)
		apply.Env = append(os.Environ(), "KUBECONFIG="+r.Kubeconfig)
		apply.Stdin = strings.NewReader(strings.ReplaceAll(string(text), "${NOW}", now))
		if said, failed := apply.CombinedOutput(); failed != nil {
			err = fmt.Errorf("objects: %w: %s", failed, said)
		}
	}
	if err != nil {
		lab.stop()
	}
	return lab.stop, err
}

// addNodes adds the lab's nodes, and returns when it has taken charge of them.
func (r *Runner) addNodes(ctx context.Context) error {
	waiting := map[string]bool{}
	for _, group := range r.File.Nodes {
		for i := range group.Count {
			if r.Target != TargetLab {
				return nil
			}
			name := app(group.Name, i)
			labels := map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			}
			maps.Copy(labels, group.Labels)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: labels, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
			}}
			node.Status.Capacity = corev1.ResourceList{
				corev1.ResourceCPU: group.CPU, corev1.ResourceMemory: group.Memory,
				corev1.ResourcePods: *resource.NewQuantity(250, resource.DecimalSI),
			}
			node.Status.Allocatable = node.Status.Capacity
			if _, err := r.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("adding nodes: %w", err)
			}
			waiting[name] = true
		}
	}
	return eventually(ctx, "the lab has taken charge of its nodes", func() (bool, error) {
		leases, err := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range leases.Items {
			delete(waiting, leases.Items[i].Name)
		}
		return len(waiting) == 0, nil
	})
}

// startScheduler starts a contestant and returns when it binds pods. The process is nil where it is none of ours.
func (a *arm) startScheduler(ctx context.Context, c *Contestant) (p *process, err error) {
	a.scheduler = cmp.Or(c.SchedulerName, corev1.DefaultSchedulerName)
	var args []string
	switch {
	case c.Binary != "":
		args = []string{a.File.beside(c.Binary)}
		for _, arg := range c.Args {
			args = append(args, strings.ReplaceAll(arg, "$(KUBECONFIG)", a.Kubeconfig))
		}
	case c.Strategy != "" || a.Target == TargetLab:
		a.scheduler = "experiment-" + c.Name
		args, err = a.ours(c)
	}
	if err == nil && args != nil {
		a.Manifest.Programs[c.Name] = digest(args[0])
		p, err = start(filepath.Join(a.Work, c.Name+".log"), "KUBECONFIG="+a.Kubeconfig, args...)
	}
	if err != nil {
		return nil, err
	}
	pods := a.client.CoreV1().Pods(a.namespace)
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: a.podSpec(&Load{})}
	err = eventually(ctx, c.Name+" binds a pod", func() (bool, error) {
		_, err := pods.Create(ctx, probe, metav1.CreateOptions{})
		err = unless(apierrors.IsForbidden, unless(apierrors.IsAlreadyExists, err)) // there may be no account yet
		if p != nil {
			err = cmp.Or(p.lives(), err)
		}
		seen, failed := pods.Get(ctx, probe.Name, metav1.GetOptions{})
		return failed == nil && seen.Spec.NodeName != "", cmp.Or(err, unless(apierrors.IsNotFound, failed))
	})
	if err = errors.Join(err, pods.Delete(ctx, probe.Name, *metav1.NewDeleteOptions(0))); err != nil && p != nil {
		p.stop()
	}
	return p, err
}

// ours writes a configuration of kube-scheduler's own profile, or of the shipped one with a strategy that scores every
// pod, and returns what runs our scheduler with it.
func (a *arm) ours(c *Contestant) ([]string, error) {
	path, err := program("kubenergy-scheduler")
	if err != nil {
		return nil, err
	}
	var config struct {
		APIVersion string           `json:"apiVersion"`
		Kind       string           `json:"kind"`
		Election   map[string]any   `json:"leaderElection"`
		Connection map[string]any   `json:"clientConnection"`
		Profiles   []map[string]any `json:"profiles"`
	}
	if err := yaml.Unmarshal(deploy.SchedulerConfig, &config); err != nil {
		return nil, fmt.Errorf("reading the shipped scheduler configuration: %w", err)
	}
	config.Election = map[string]any{"leaderElect": false}
	config.Connection["kubeconfig"] = a.Kubeconfig
	config.Profiles = config.Profiles[:1]
	if c.Strategy == "" {
		config.Profiles[0], config.Connection = map[string]any{}, map[string]any{"kubeconfig": a.Kubeconfig}
	}
	config.Profiles[0]["schedulerName"] = a.scheduler
	plugins, _ := config.Profiles[0]["pluginConfig"].([]any)
	for _, plugin := range plugins {
		if args, ok := plugin.(map[string]any)["args"].(map[string]any); ok {
			args["strategy"], _, _ = strings.Cut(c.Strategy, "+") // what waits is not compared here
			args["scope"] = "All"
		}
	}
	text, err := yaml.Marshal(&config)
	file := filepath.Join(a.Work, c.Name+".yaml")
	return []string{path, "--config=" + file, "--secure-port=0"}, errors.Join(err, os.WriteFile(file, text, 0o600))
}

// Clean removes what experiments have made in a cluster, and returns the names of the namespaces.
func Clean(ctx context.Context, client kubernetes.Interface) (removed []string, err error) {
	gone := map[string]bool{}
	err = eventually(ctx, "what is removed is gone", func() (bool, error) {
		all, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelExperiment})
		if err != nil {
			return false, err
		}
		for i := range all.Items {
			name := all.Items[i].Name
			if gone[name] {
				continue
			}
			err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
			if unless(apierrors.IsNotFound, err) != nil {
				return false, err
			}
			gone[name], removed = true, append(removed, name)
		}
		return len(all.Items) == 0, nil
	})
	return removed, err
}

// unless is an error, but not one of a kind.
func unless(is func(error) bool, err error) error {
	if is(err) {
		return nil
	}
	return err
}

// eventually waits until done reports true. It fails at the first error.
func eventually(ctx context.Context, what string, done func() (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return done() })
	if err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}
