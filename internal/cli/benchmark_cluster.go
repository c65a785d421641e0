package cli

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/benchmark"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

const (
	watchEvery = 5 * time.Second
	// fromReading is the maximum interval that a reading of a node covers. A reading that starts after the load does
	// not include earlier power.
	fromReading = 15 * time.Second
)

//go:embed benchmarkjob.yaml
var benchmarkJob string

// job returns the Job that measures a node.
func (f *benchmarkFlags) job(n *v1.Node) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, benchmarkJob, n.Name, f.image), job); err != nil {
		return nil, err
	}
	// also limits Jobs with an image that cannot be pulled
	job.Spec.ActiveDeadlineSeconds = new(int64(f.timeout.Seconds()))
	works, pod := slices.Clone(f.works), &job.Spec.Template.Spec
	if gpus := n.Status.Allocatable[policy.NvidiaGPU]; gpus.IsZero() {
		works = slices.DeleteFunc(works, func(w string) bool { return w == benchmark.GPU })
	}
	if slices.Contains(works, benchmark.GPU) {
		pod.Containers[0].Resources.Limits = v1.ResourceList{policy.NvidiaGPU: resource.MustParse("1")}
		if f.runtimeClass != "" {
			pod.RuntimeClassName = &f.runtimeClass
		}
	}
	pod.Containers[0].Args = []string{
		"--workloads=" + strings.Join(works, ","), fmt.Sprint("--runs=", f.rules.Runs),
		fmt.Sprint("--at-least=", f.rules.AtLeast),
	}
	return job, nil
}

// fleet measures the nodes of a cluster.
type fleet struct {
	cluster    *cmdutil.Cluster
	controller *cmdutil.ControllerClient // nil if the controller is unavailable
	drawn      map[string][]cmdutil.PowerReading
}

// measureCluster returns the results of the measured nodes and the number of nodes that could not be measured.
func (f *benchmarkFlags) measureCluster(ctx context.Context, t cmdutil.Terminal,
) (all []*benchmark.Result, failed int, err error) {
	fl := &fleet{drawn: map[string][]cmdutil.PowerReading{}}
	if fl.cluster, err = f.Open(t); err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	nodes, err := fl.cluster.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: f.selector})
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("listing nodes: %s", cmdutil.Because(err))
	case len(nodes.Items) == 0:
		return nil, 0, fmt.Errorf("no node matches the selector %q", f.selector)
	}
	if fl.controller, err = f.Connect(ctx, t); err != nil {
		fmt.Fprintf(t.Err, "Using the power measured by the nodes themselves: %s\n", cmdutil.OneLine(err))
	}
	f.plan(t.Err, humanize.Count(len(nodes.Items), "node")+" in parallel")
	fail := func(node string, err error) {
		failed++
		fmt.Fprintf(t.Err, "node %s: %s\n", node, cmdutil.OneLine(err))
	}
	jobs := map[string]string{} // by node
	for i := range nodes.Items {
		job, err := f.job(&nodes.Items[i])
		if err == nil {
			job, err = fl.cluster.BatchV1().Jobs(fl.cluster.Namespace).Create(ctx, job, metav1.CreateOptions{})
		}
		if err != nil {
			fail(nodes.Items[i].Name, fmt.Errorf("creating the Job: %s", cmdutil.Because(err)))
			continue
		}
		jobs[nodes.Items[i].Name] = job.Name
	}
	for len(jobs) > 0 {
		fl.look(ctx)
		for _, pod := range fl.ended(ctx, jobs) {
			node := pod.Spec.NodeName
			result, err := fl.collect(ctx, &pod)
			if err != nil {
				fail(node, fmt.Errorf("Job %s failed: %w", jobs[node], err))
			} else {
				all = append(all, result)
			}
			delete(jobs, node)
		}
		if len(jobs) > 0 && !kube.Pause(ctx, watchEvery) {
			for node, name := range jobs {
				fail(node, fmt.Errorf("Job %s did not finish in time: delete it in namespace %s", name,
					fl.cluster.Namespace))
			}
			break
		}
	}
	slices.SortFunc(all, func(a, b *benchmark.Result) int { return strings.Compare(a.Node, b.Node) })
	return all, failed, nil
}

// look records the current power of the nodes.
func (fl *fleet) look(ctx context.Context) {
	if fl.controller == nil {
		return
	}
	nodes, err := fl.controller.Nodes(ctx)
	if err != nil {
		return // best effort: missing readings are omitted from the means
	}
	for _, d := range nodes {
		seen := fl.drawn[d.Name]
		if !d.Stale && !d.Implausible && (len(seen) == 0 || seen[len(seen)-1].AsOf.Before(d.AsOf)) {
			fl.drawn[d.Name] = append(seen, d)
		}
	}
}

// ended returns the pods of finished Jobs.
func (fl *fleet) ended(ctx context.Context, jobs map[string]string) []v1.Pod {
	pods, err := fl.cluster.CoreV1().Pods(fl.cluster.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + ",app.kubernetes.io/name=kubenergy-benchmark"})
	if err != nil {
		return nil // the caller retries
	}
	return slices.DeleteFunc(pods.Items, func(p v1.Pod) bool {
		return p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed ||
			jobs[p.Spec.NodeName] != p.Labels[batchv1.JobNameLabel]
	})
}

// collect returns the result of a finished pod.
func (fl *fleet) collect(ctx context.Context, pod *v1.Pod) (*benchmark.Result, error) {
	const limit = 1 << 20 // output of a node is not trusted
	log, err := fl.cluster.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &v1.PodLogOptions{}).Stream(ctx)
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(log, limit))
		_ = log.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the log: %s", cmdutil.Because(err))
	}
	var doc benchmarks
	begin := max(0, bytes.Index(text, []byte("{\n"))) // progress messages precede the result in the same stream
	if err := json.Unmarshal(text[begin:], &doc); err != nil || len(doc.Results) != 1 ||
		doc.Results[0].Node != pod.Spec.NodeName {
		return nil, errors.New(cmdutil.Printable(string(bytes.TrimSpace(text))))
	}
	fl.meter(doc.Results[0])
	return doc.Results[0], nil
}

// meter replaces the watts measured by the pod by readings of the controller if there are any.
func (fl *fleet) meter(r *benchmark.Result) {
	seen := fl.drawn[r.Node]
	if len(seen) == 0 {
		return
	}
	r.Source, r.Quality = seen[len(seen)-1].Source, energy.Measured
	for i := range r.Runs {
		run := &r.Runs[i]
		run.Watts = nil
		sum, count := 0.0, 0
		for _, d := range seen {
			if d.AsOf.Add(-fromReading).Before(run.Start) || d.AsOf.After(run.End) {
				continue
			}
			sum, count, r.Quality = sum+d.Watts, count+1, min(r.Quality, d.Quality)
		}
		if count > 0 {
			run.Watts = &benchmark.Mean{Value: sum / float64(count), Count: count}
		}
	}
}
