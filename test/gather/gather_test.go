package gather

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

const (
	nodes   = 6
	podsOf  = 24 // pods of each Job
	rounds  = 3
	timeout = 2 * time.Minute
	// Pods that arrive within half of the default window, as seen by the test, also arrive within the window as seen
	// by the scheduler, unless the machine is very slow.
	together = 400 * time.Millisecond
)

// TestJobsArePlannedTogether verifies that two Jobs of 24 marked pods on six nodes are planned together and follow
// their plan, three times. A round in which the controller manager takes too long to create the pods is repeated.
func TestJobsArePlannedTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	c := cluster.Start(t, lab.Options{ControllerManagerArgs: []string{"--kube-api-qps=1000", "--kube-api-burst=1000"}})
	if err := c.AddNodes(t.Context(), cluster.Nodes(nodes)); err != nil {
		t.Fatal(err)
	}
	scheduling := &lab.Scheduling{
		Dir: c.Dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Profiles: []*energy.Profile{{Name: "p", Idle: 50, Max: 150, Sleep: 50}},
	}
	stop, err := scheduling.Start(t.Context(), c.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	for planned, attempt := 0, 0; planned < rounds; attempt++ {
		if attempt == 10*rounds {
			t.Fatalf("in %d rounds, the pods arrived within %v only %d times", attempt, together, planned)
		}
		before := counters(t)
		took := runJobs(t, c.Client, attempt)
		after := counters(t)
		got := counts{
			after.plans - before.plans, after.planned - before.planned, after.followed - before.followed,
		}
		t.Logf("attempt %d: pods arrived within %v: %+v", attempt, took.Round(time.Millisecond), got)
		if took > together {
			continue
		}
		planned++
		if want := (counts{1, 2 * podsOf, 2 * podsOf}); got != want {
			t.Errorf("attempt %d: got %+v, want %+v", attempt, got, want)
		}
	}
}

// runJobs creates two Jobs, waits until all their pods are bound, and deletes them. It returns the time between the
// arrivals of the first and the last pod.
func runJobs(t *testing.T, client kubernetes.Interface, attempt int) time.Duration {
	t.Helper()
	ctx := t.Context()
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	label := fmt.Sprint("round-", attempt)
	selected := metav1.ListOptions{LabelSelector: "round=" + label}
	watched, err := pods.Watch(ctx, selected)
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	for i := range 2 {
		job := newJob(fmt.Sprintf("%s-%d", label, i), label)
		if _, err := client.BatchV1().Jobs(metav1.NamespaceDefault).Create(ctx, job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var first, last time.Time
	seen, bound := map[string]bool{}, map[string]bool{}
	limit := time.After(timeout)
	for len(bound) < 2*podsOf {
		select {
		case event := <-watched.ResultChan():
			pod, ok := event.Object.(*v1.Pod)
			if !ok {
				t.Fatalf("unexpected event %+v", event)
			}
			if !seen[pod.Name] {
				if last = time.Now(); len(seen) == 0 {
					first = last
				}
				seen[pod.Name] = true
			}
			if pod.Spec.NodeName != "" {
				bound[pod.Name] = true
			}
		case <-limit:
			t.Fatalf("%d of %d pods are bound", len(bound), 2*podsOf)
		}
	}
	for i := range 2 {
		if err := client.BatchV1().Jobs(metav1.NamespaceDefault).Delete(ctx, fmt.Sprintf("%s-%d", label, i),
			metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
			t.Fatal(err)
		}
	}
	kit.Await(t, timeout, "the pods are deleted", func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, selected)
		return err == nil && len(list.Items) == 0, err
	})
	return last.Sub(first)
}

func newJob(name, label string) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}}
	job.Spec.Parallelism, job.Spec.Completions = ptr.To[int32](podsOf), ptr.To[int32](podsOf)
	template := &job.Spec.Template
	template.Labels = map[string]string{"round": label}
	template.Annotations = map[string]string{
		v1alpha1.AnnotationStrategy: "ecsched-dp", v1alpha1.AnnotationLabRunSeconds: "600",
	}
	template.Spec = v1.PodSpec{
		SchedulerName: "kubenergy", RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64),
		Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
		}}},
	}
	return job
}

// counts contains the counters of the planner.
type counts struct{ plans, planned, followed float64 }

func counters(t *testing.T) (c counts) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			value := m.GetCounter().GetValue()
			switch f.GetName() {
			case "kubenergy_batch_plans_total":
				c.plans += value
			case "kubenergy_batch_planned_pods_total":
				c.planned += value
			case "kubenergy_batch_pods_total":
				for _, l := range m.GetLabel() {
					if l.GetValue() == "followed" {
						c.followed += value
					}
				}
			}
		}
	}
	return c
}
