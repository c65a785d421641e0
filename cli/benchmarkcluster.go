package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/benchmark"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/kube"
)

const (
	benchmarkName = "kubenergy-benchmark"
	nvidiaGPU     = "nvidia.com/gpu"
	watchEvery    = 5 * time.Second
	// fromReading is what a reading of a node covers at most: one that is younger than the load is of the load alone.
	fromReading = 15 * time.Second
	keptFor     = 3600 // seconds, Jobs that have ended
	nobody      = 65532
)

// fleet measures the nodes of a cluster.
type fleet struct {
	*benchmarkFlags
	cluster *cluster
	central *centralUnit // nil: the controller is not there
	drawn   map[string][]drawn
}

func (f *benchmarkFlags) measureCluster(ctx context.Context, t terminal) ([]*benchmark.Result, error) {
	c, err := f.open(t)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: f.selector})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %s", because(err))
	}
	fl := &fleet{benchmarkFlags: f, cluster: c, drawn: map[string][]drawn{}}
	if fl.central, err = f.connect(ctx, t); err != nil {
		fmt.Fprintf(t.err, "watts are those that nodes can tell themselves: %s\n", oneLine(err))
	}
	fmt.Fprintf(t.err, "measuring %s at once: at least %v\n", count(len(nodes.Items), "node"), f.estimate())
	jobs := map[string]string{} // by node
	for i := range nodes.Items {
		job, err := c.BatchV1().Jobs(c.namespace).Create(ctx, f.job(&nodes.Items[i]), metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("creating a Job for node %s: %s", nodes.Items[i].Name, because(err))
		}
		jobs[nodes.Items[i].Name] = job.Name
	}
	var all []*benchmark.Result
	for len(jobs) > 0 {
		fl.look(ctx)
		for node, name := range jobs {
			result, ended, err := fl.collect(ctx, node, name)
			if err != nil {
				fmt.Fprintf(t.err, "node %s: %s\n", node, oneLine(err))
			}
			if result != nil {
				all = append(all, result)
			}
			if ended {
				delete(jobs, node)
			}
		}
		if len(jobs) > 0 && !kube.Pause(ctx, watchEvery) {
			return nil, fmt.Errorf("%s did not end in time; they go on in namespace %s", count(len(jobs), "Job"),
				c.namespace)
		}
	}
	slices.SortFunc(all, func(a, b *benchmark.Result) int { return strings.Compare(a.Node, b.Node) })
	return all, nil
}

// job is one that measures a node. It names the node, so that no scheduler chooses, and no taint keeps it away.
func (f *benchmarkFlags) job(n *v1.Node) *batchv1.Job {
	works := slices.Clone(f.works)
	gpus := n.Status.Allocatable[nvidiaGPU]
	if gpus.IsZero() {
		works = slices.DeleteFunc(works, func(w string) bool { return w == benchmark.GPU })
	}
	container := v1.Container{
		Name: "benchmark", Image: f.image, Command: []string{"/kubenergy"},
		Args: []string{
			"benchmark", "--local", "-o=json", "--node=" + n.Name, "--workloads=" + strings.Join(works, ","),
			fmt.Sprint("--runs=", f.rules.Runs), fmt.Sprint("--at-least=", f.rules.AtLeast),
			"--gpu-program=/kubenergy-gpu",
		},
		SecurityContext: &v1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
		},
	}
	pod := v1.PodSpec{
		NodeName: n.Name, RestartPolicy: v1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
		Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
		SecurityContext: &v1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(nobody)),
			SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
		},
	}
	if slices.Contains(works, benchmark.GPU) {
		container.Resources.Limits = v1.ResourceList{nvidiaGPU: resource.MustParse("1")}
		container.Env = []v1.EnvVar{{Name: "NVIDIA_DRIVER_CAPABILITIES", Value: "compute,utility"}}
		if f.runtimeClass != "" {
			pod.RuntimeClassName = &f.runtimeClass
		}
	}
	pod.Containers = []v1.Container{container}
	labels := map[string]string{"app.kubernetes.io/name": benchmarkName}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: benchmarkName + "-", Labels: labels},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)), TTLSecondsAfterFinished: new(int32(keptFor)),
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
}

// look notes what nodes draw now.
func (fl *fleet) look(ctx context.Context) {
	if fl.central == nil {
		return
	}
	nodes, err := fl.central.nodes(ctx)
	if err != nil {
		return // what is not seen is not in the means
	}
	for _, d := range nodes {
		seen := fl.drawn[d.Name]
		if !d.Stale && !d.Implausible && (len(seen) == 0 || seen[len(seen)-1].AsOf.Before(d.AsOf)) {
			fl.drawn[d.Name] = append(seen, d)
		}
	}
}

// collect returns what a Job has measured, once it has ended.
func (fl *fleet) collect(ctx context.Context, node, name string) (r *benchmark.Result, ended bool, err error) {
	c := fl.cluster
	job, err := c.BatchV1().Jobs(c.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, true, fmt.Errorf("its Job %s is gone", name)
	case err != nil || job.Status.Succeeded+job.Status.Failed == 0:
		return nil, false, nil // a request that failed is repeated
	}
	pods, err := c.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + name})
	if err != nil || len(pods.Items) == 0 {
		return nil, true, fmt.Errorf("the pod of its Job %s is gone", name)
	}
	text, err := c.CoreV1().Pods(c.namespace).GetLogs(pods.Items[0].Name, &v1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return nil, true, fmt.Errorf("reading what its Job %s wrote: %s", name, because(err))
	}
	var doc benchmarks
	if err := json.Unmarshal(text, &doc); err != nil || len(doc.Results) != 1 || doc.Results[0].Node != node {
		return nil, true, fmt.Errorf("its Job %s failed: %s", name, printable(string(bytes.TrimSpace(text))))
	}
	fl.meter(doc.Results[0])
	return doc.Results[0], true, nil
}

// meter puts the watts of the controller in place of those that a pod can know, where it told any.
func (fl *fleet) meter(r *benchmark.Result) {
	seen := fl.drawn[r.Node]
	if len(seen) == 0 {
		return
	}
	r.Source, r.Quality = seen[len(seen)-1].Source, energy.Measured
	for i := range r.Runs {
		run := &r.Runs[i]
		var sum, count float64
		for _, d := range seen {
			if d.AsOf.Add(-fromReading).Before(run.Start) || d.AsOf.After(run.End) {
				continue
			}
			sum, count, r.Quality = sum+d.Watts, count+1, min(r.Quality, d.Quality)
		}
		if run.Watts = nil; count > 0 {
			run.Watts = &benchmark.Mean{Value: sum / count, Count: int(math.Round(count))}
		}
	}
}

// applyTo writes the knowledge base and PowerProfiles to the cluster.
func (f *benchmarkFlags) applyTo(ctx context.Context, t terminal, doc *benchmarks) error {
	c, err := f.open(t)
	if err != nil {
		return err
	}
	maps := c.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	wanted, err := f.knowledgeBase(doc, "")
	if err != nil {
		return err
	}
	held, err := maps.Get(ctx, wanted.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = maps.Create(ctx, wanted, metav1.CreateOptions{})
	case err == nil:
		if wanted, err = f.knowledgeBase(doc, held.Data["profiles.yaml"]); err != nil {
			return err
		}
		held.Data = wanted.Data
		_, err = maps.Update(ctx, held, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %s", metav1.NamespaceSystem, wanted.Name, because(err))
	}
	p := &profiler{client: c, profileFlags: &profileFlags{}}
	for _, r := range doc.Results {
		object := r.PowerProfile(f.classes)
		if object == nil {
			continue
		}
		if err := p.apply(ctx, object); err != nil {
			return fmt.Errorf("writing PowerProfile %s: %s", object.Name, because(err))
		}
	}
	return nil
}
