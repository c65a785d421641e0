package experiment

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/report"
)

// The targets of an experiment: a new lab, or an existing cluster.
const (
	TargetLab     = "lab"
	TargetCluster = "cluster"
)

const timeout = 5 * time.Minute

// Meter returns the measured power of all nodes and its sources.
type Meter func(context.Context) (watts float64, what string, err error)

// Runner runs an experiment.
type Runner struct {
	File       *File
	Work       string // directory for the files of the lab and the contestants
	Kubeconfig string // of the cluster; set after the start of the lab
	Progress   func(done, all int)
	Meter      Meter // energy is modelled if it is nil

	run    string
	client kubernetes.Interface
	config *rest.Config
	meter  string // source of the power
}

// Run runs the experiment and returns its arms and the manifest. It removes everything that it created in the
// cluster.
func (r *Runner) Run(ctx context.Context) (trials []report.ExperimentTrial, manifest map[string]any, err error) {
	began, load := time.Now().UTC(), proc("loadavg")
	r.run = began.Format("20060102-150405")
	if r.File.target == TargetLab {
		stop, err := r.startLab(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer stop()
	}
	if r.config, err = clientcmd.BuildConfigFromFlags("", r.Kubeconfig); err != nil {
		return nil, nil, err
	}
	r.config.QPS = -1 // no client-side rate limit
	if r.client, err = kubernetes.NewForConfig(r.config); err != nil {
		return nil, nil, err
	}
	if err := Clean(ctx, r.client); err != nil { // of an experiment that was killed
		return nil, nil, err
	}
	if err := r.addNodes(ctx); err != nil {
		return nil, nil, err
	}
	version, err := r.client.Discovery().ServerVersion()
	if err != nil {
		return nil, nil, err
	}
	order := r.File.order()
	for i, c := range order {
		r.Progress(i, len(order))
		a := &arm{
			Runner: r, Contestant: c, number: i + 1, round: 1 + i/len(r.File.Contestants),
			namespace: fmt.Sprintf("experiment-%s-%d", r.run, i+1),
		}
		var trial *report.ExperimentTrial
		if trial, err = a.run(ctx); err == nil {
			err = Clean(ctx, r.client)
		}
		if err != nil {
			err = fmt.Errorf("arm %d, %s: %w", i+1, c.Name, err)
			break
		}
		trials = append(trials, *trial)
	}
	// Clean up even if the experiment was interrupted.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	err = cmp.Or(err, Clean(clean, r.client))
	return trials, map[string]any{
		"apiVersion": "kubenergy.io/v1alpha1", "kind": "ExperimentManifest", "target": r.File.target,
		"kubernetes": version.GitVersion, "meter": r.meter, "experiment": r.File,
		"go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "cpus": runtime.NumCPU(),
		"kernel": proc("sys/kernel/osrelease"), "loadAverageBefore": load, "loadAverageAfter": proc("loadavg"),
		"began": began, "ended": time.Now().UTC(),
	}, err
}

// proc returns the first line of a file in /proc, or an empty string.
func proc(name string) string {
	text, _ := os.ReadFile("/proc/" + name)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// startLab starts a control plane without nodes and scheduler. The process exits with this program.
func (r *Runner) startLab(ctx context.Context) (stop func(), err error) {
	path, err := program("kubenergy-lab")
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
	for _, part := range []string{"", "status"} {
		if err == nil && r.File.Objects != "" {
			err = r.apply(ctx, path, part)
		}
	}
	if err != nil {
		lab.stop()
	}
	return lab.stop, err
}

// apply applies the experiment's objects, or one of their subresources.
func (r *Runner) apply(ctx context.Context, lab, part string) error {
	text, err := os.ReadFile(r.File.beside(r.File.Objects))
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Hour).Format(time.RFC3339)
	cmd := exec.CommandContext(ctx, lab, "kubectl", "apply", "--server-side", "--subresource="+part, "-f-")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.Kubeconfig)
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(string(text), "${NOW}", now))
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("objects: %w: %s", err, said)
	}
	return nil
}

// addNodes creates the nodes of the lab and waits until the lab simulates them.
func (r *Runner) addNodes(ctx context.Context) error {
	if r.File.target != TargetLab {
		return nil
	}
	all := 0
	for _, group := range r.File.Nodes {
		capacity := corev1.ResourceList{
			corev1.ResourceCPU: group.CPU, corev1.ResourceMemory: group.Memory,
			corev1.ResourcePods: *resource.NewQuantity(250, resource.DecimalSI),
		}
		for i := range group.Count {
			name := app(group.Name, i)
			labels := map[string]string{corev1.LabelHostname: name}
			maps.Copy(labels, group.Labels)
			_, err := r.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Name: name, Labels: labels, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
				},
				Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("adding nodes: %w", err)
			}
		}
		all += group.Count
	}
	return eventually(ctx, "the lab simulates its nodes", func() (bool, error) {
		leases, err := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
		return err == nil && len(leases.Items) >= all, err
	})
}

// startScheduler starts the contestant unless it is already running.
func (a *arm) startScheduler(ctx context.Context) (err error) {
	c := a.Contestant
	a.scheduler = cmp.Or(c.SchedulerName, corev1.DefaultSchedulerName)
	var args []string
	switch {
	case c.Image != "":
		return a.startImage(ctx)
	case c.Binary != "":
		args = []string{a.File.beside(c.Binary)}
		for _, arg := range c.Args {
			args = append(args, strings.ReplaceAll(arg, "$(KUBECONFIG)", a.Kubeconfig))
		}
	case c.Strategy != "" || a.File.target == TargetLab:
		args, err = a.ours()
	}
	if err != nil || args == nil {
		return err
	}
	a.process, err = start(filepath.Join(a.Work, c.Name+".log"), a.Kubeconfig, args...)
	return err
}

// ours returns the command line of kubenergy-scheduler with the shipped profile and a strategy that scores every
// pod. Without a strategy, it behaves like kube-scheduler.
func (a *arm) ours() ([]string, error) {
	path, err := program("kubenergy-scheduler")
	args := []string{path, "--secure-port=0", "--leader-elect=false"}
	if err != nil || a.Strategy == "" {
		return append(args, "--kubeconfig="+a.Kubeconfig), err
	}
	a.scheduler = "experiment-" + a.Name
	file := filepath.Join(a.Work, a.scheduler+".yaml")
	text := schedulerConfig(a.scheduler, a.Kubeconfig, a.Strategy)
	return append(args, "--config="+file), os.WriteFile(file, text, 0o600)
}

// schedulerConfig returns the shipped configuration with only its first profile.
func schedulerConfig(name, kubeconfig, strategy string) []byte {
	profile, _, _ := strings.Cut(string(deploy.SchedulerConfig), "\n- schedulerName: compute-gardener-scheduler\n")
	return []byte(strings.NewReplacer("schedulerName: kubenergy\n", "schedulerName: "+name+"\n",
		"clientConnection:\n", fmt.Sprintf("clientConnection:\n  kubeconfig: %q\n", kubeconfig),
		"strategy: carbon\n", "strategy: "+strategy+"\n", "scope: Marked\n", "scope: All\n").Replace(profile))
}

// Clean removes all objects of experiments from a cluster and waits until they are deleted.
func Clean(ctx context.Context, client kubernetes.Interface) error {
	return eventually(ctx, "the objects of experiments are deleted", func() (bool, error) {
		all, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelExperiment})
		if err != nil {
			return false, err
		}
		for _, n := range all.Items {
			if n.DeletionTimestamp == nil {
				err = cmp.Or(err, client.CoreV1().Namespaces().Delete(ctx, n.Name, metav1.DeleteOptions{}))
			}
		}
		err = cmp.Or(err, client.RbacV1().ClusterRoleBindings().DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: v1alpha1.LabelExperiment}))
		return len(all.Items) == 0, cmdutil.IgnoreNotFound(err)
	})
}

// eventually waits until done returns true. It stops at the first error.
func eventually(ctx context.Context, what string, done func() (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, timeout, true,
		func(context.Context) (bool, error) { return done() })
	if err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}

//go:embed contestant.yaml
var contestantText string

var contestantTemplate = template.Must(template.New("contestant").Parse(contestantText))

// startImage runs the image of a contestant in the cluster, in a separate namespace and with cluster-admin
// permissions. With a strategy, the image is kubenergy-scheduler and uses the shipped profile.
func (a *arm) startImage(ctx context.Context) error {
	config, args := "", a.Args
	if a.Strategy != "" {
		a.scheduler = "experiment-" + a.Name
		config = string(schedulerConfig(a.scheduler, "", a.Strategy))
		args = []string{"--config=/etc/scheduler/config.yaml", "--secure-port=0", "--leader-elect=false"}
	}
	var text bytes.Buffer
	err := contestantTemplate.Execute(&text, map[string]any{
		"Namespace": a.namespace + "-scheduler", "Label": v1alpha1.LabelExperiment, "Run": a.Runner.run,
		"Image": a.Image, "Args": args, "Config": config,
	})
	var o struct {
		Namespace  *corev1.Namespace
		Rights     *rbacv1.ClusterRoleBinding
		Config     *corev1.ConfigMap
		Deployment *appsv1.Deployment
	}
	if err = cmp.Or(err, yaml.UnmarshalStrict(text.Bytes(), &o)); err != nil {
		return err
	}
	create := metav1.CreateOptions{}
	if _, err = a.client.CoreV1().Namespaces().Create(ctx, o.Namespace, create); err == nil {
		_, err = a.client.RbacV1().ClusterRoleBindings().Create(ctx, o.Rights, create)
	}
	if err == nil {
		_, err = a.client.CoreV1().ConfigMaps(o.Namespace.Name).Create(ctx, o.Config, create)
	}
	if err == nil {
		_, err = a.client.AppsV1().Deployments(o.Namespace.Name).Create(ctx, o.Deployment, create)
	}
	return err
}
