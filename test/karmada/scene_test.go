package karmada

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kubenergy/kubenergy/test/kit"
)

// scene is a namespace of the federation used by one test.
type scene struct {
	*stage
	*testing.T
	ns string
}

// in creates a namespace. The objects in it are deleted when the test ends.
func (s *stage) in(t *testing.T, ns, labels string) *scene {
	t.Helper()
	manifest := fmt.Appendf(nil, "{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}", ns, labels)
	s.apply(t, manifest)
	for _, m := range s.members {
		m.apply(t, manifest)
	}
	c := &scene{s, t, ns}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(c.bindings().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
			c.pods().DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{})); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *scene) bindings() dynamic.ResourceInterface {
	return c.dynamic.Resource(bindings).Namespace(c.ns)
}

// pods returns the client for pods in the north.
func (c *scene) pods() corev1.PodInterface { return c.members["north"].client.CoreV1().Pods(c.ns) }

// work is a workload that a user propagates with Karmada.
type work struct {
	cpu         string // CPU request of a replica, by default 2
	replicas    int32  // by default 1
	kind        string // by default Job
	annotations map[string]string
	labels      map[string]string
	stock       bool   // use karmada-scheduler
	placement   string // fields of the placement, by default Divided
	node        string // fields of nodeClaim
}

// sends creates a Job and the binding that the detector of Karmada would create.
func (c *scene) sends(name string, w work) {
	c.Helper()
	if w.cpu == "" {
		w.cpu = "2"
	}
	version, uid := "apps/v1", "none"
	if w.kind == "" {
		w.kind, version = "Job", "batch/v1"
		j, err := c.client.BatchV1().Jobs(c.ns).Create(c.Context(), w.job(name), metav1.CreateOptions{})
		if err != nil {
			c.Fatal(err)
		}
		uid = string(j.UID)
	}
	if w.placement == "" {
		w.placement = divided
	}
	scheduler := "kubenergy"
	if w.stock {
		scheduler = "default-scheduler"
	}
	text := fmt.Sprintf(`
apiVersion: work.karmada.io/v1alpha2
kind: ResourceBinding
metadata: {name: %s-job, namespace: %s}
spec:
  resource: {apiVersion: %s, kind: %s, namespace: %[2]s, name: %[1]s, uid: %[5]s}
  replicas: %d
  replicaRequirements: {resourceRequest: {cpu: %q}, nodeClaim: {%s}}
  schedulerName: %s
  placement: {%s}
`, name, c.ns, version, w.kind, uid, max(1, w.replicas), w.cpu, w.node, scheduler, w.placement)
	if _, err := c.bindings().Create(c.Context(), object(c.T, text), metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

const divided = "replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}"

func (w *work) job(name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: w.labels, Annotations: w.annotations},
		Spec: batchv1.JobSpec{
			Parallelism: new(max(1, w.replicas)), Completions: new(max(1, w.replicas)),
			Template: v1.PodTemplateSpec{Spec: podSpec(w.cpu)},
		},
	}
}

func podSpec(cpu string) v1.PodSpec {
	return v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{
		Name: "c", Image: "busybox", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)},
		},
	}}}
}

// said is the scheduling result of a binding.
type said struct {
	to       string // list of cluster=replicas
	reason   string // of the condition Scheduled
	message  string
	object   *unstructured.Unstructured
	observed bool // the result applies to the current generation
}

func (c *scene) said(name string) (s said) {
	c.Helper()
	o, err := c.get(c.Context(), bindings, c.ns, name+"-job")
	if err != nil {
		c.Fatal(err)
	}
	var b struct {
		Spec struct {
			Clusters []struct {
				Name     string `json:"name"`
				Replicas int64  `json:"replicas"`
			} `json:"clusters"`
		} `json:"spec"`
		Status struct {
			Observed   int64              `json:"schedulerObservedGeneration"`
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &b); err != nil {
		c.Fatal(err)
	}
	var to []string
	for _, t := range b.Spec.Clusters {
		to = append(to, fmt.Sprintf("%s=%d", t.Name, t.Replicas))
	}
	s = said{to: strings.Join(to, " "), object: o, observed: b.Status.Observed == o.GetGeneration()}
	for _, condition := range b.Status.Conditions {
		if condition.Type == "Scheduled" {
			s.reason, s.message = condition.Reason, condition.Message
		}
	}
	return s
}

// placed waits until a binding has a scheduling result and returns it.
func (c *scene) placed(name string) (s said) {
	c.Helper()
	kit.Eventually(c, 10*time.Second, name+" has a scheduling result", func() bool {
		s = c.said(name)
		return s.reason == "Success" && s.observed || s.reason != "" && s.reason != "Success"
	})
	return s
}

// await hides the method of federation so that the current test fails instead of the parent test.
func (c *scene) await(within time.Duration, what string, done func() bool) {
	c.Helper()
	kit.Eventually(c, within, what, done)
}

// turn sets the carbon intensities and waits until the driver has received them.
func (c *scene) turn(north, south float64) {
	c.Helper()
	for name, grams := range map[string]float64{"north": north, "south": south} {
		c.grids(map[string]float64{name: grams})
		c.await(10*time.Second, "the new carbon intensity is received", func() bool {
			site := c.objects.View().Site(name)
			return site != nil && site.Carbon.Series != nil && site.Carbon.Series.At(time.Now()) == grams
		})
	}
}

// gone deletes a Job and its binding.
func (c *scene) gone(name string) {
	c.Helper()
	err := c.client.BatchV1().Jobs(c.ns).Delete(c.Context(), name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	if err != nil && !apierrors.IsNotFound(err) {
		c.Fatal(err)
	}
	if err := c.bindings().Delete(c.Context(), name+"-job", metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

// tries returns the scheduling result of a temporary workload.
func (c *scene) tries(w work) said {
	c.Helper()
	c.sends("try", w)
	defer c.gone("try")
	return c.placed("try")
}

// goes verifies the current placement of a workload.
func (c *scene) goes(what string, w work, want string) {
	c.Helper()
	if s := c.tries(w); s.to != want {
		c.Errorf("%s: target = %q (%s: %s), want %q", what, s.to, s.reason, s.message, want)
	}
}

// comes waits until a workload would be placed as expected.
func (c *scene) comes(what string, w work, want string) {
	c.Helper()
	kit.Await(c, 10*time.Second, what, func(ctx context.Context) (bool, error) {
		s := c.tries(w)
		return s.to == want, fmt.Errorf("unexpected target %q (%s: %s)", s.to, s.reason, s.message)
	})
}

// tells sets the status of a Job in a member that Karmada has collected.
func (c *scene) tells(name, cluster, status string) {
	c.Helper()
	patch := fmt.Appendf(nil, `{"status":{"aggregatedStatus":[{"clusterName":%q,"status":%s}]}}`, cluster, status)
	if _, err := c.bindings().Patch(c.Context(), name+"-job", types.MergePatchType, patch, metav1.PatchOptions{},
		"status"); err != nil {
		c.Fatal(err)
	}
}

// pod creates a pod in the north. If node is "", the pod is unschedulable with the given message.
func (c *scene) pod(name, node, message string, since time.Time, labels map[string]string) {
	c.Helper()
	spec := podSpec("2")
	spec.NodeName = node
	p, err := c.pods().Create(c.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: spec,
	}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	if message == "" {
		return
	}
	p.Status.Conditions = []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: message,
		LastTransitionTime: metav1.NewTime(since),
	}}
	if _, err := c.pods().UpdateStatus(c.Context(), p, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}
