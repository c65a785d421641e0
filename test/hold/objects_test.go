package hold

import (
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

func marks(delay string) map[string]string {
	return map[string]string{
		v1alpha1.AnnotationAllowedDelay: delay, v1alpha1.AnnotationExpectedDuration: "1s",
		v1alpha1.AnnotationLabRunSeconds: "1",
	}
}

func newPod(name, delay string, change func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: marks(delay)},
		Spec:       podSpec(),
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func podSpec() v1.PodSpec {
	return v1.PodSpec{
		SchedulerName: schedulerName,
		RestartPolicy: v1.RestartPolicyNever,
		Containers: []v1.Container{{Name: "c", Image: "none", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")},
		}}},
	}
}

func newJob(name, delay string, change func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: marks(delay)},
		Spec: batchv1.JobSpec{Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationLabRunSeconds: "1"}},
			Spec:       podSpec(),
		}},
	}
	if change != nil {
		change(job)
	}
	return job
}

// diary records the times at which events in a namespace were observed.
type diary struct {
	mu      sync.Mutex
	created map[string]time.Time // creation timestamp of the API server
	resumed map[string]time.Time // Jobs
	bound   map[string]time.Time // pods; for a Job, its first pod under the name of the Job
}

func (w *world) watch(t *testing.T, namespace string) *diary {
	d := &diary{created: map[string]time.Time{}, resumed: map[string]time.Time{}, bound: map[string]time.Time{}}
	factory := informers.NewSharedInformerFactoryWithOptions(w.Client, 0, informers.WithNamespace(namespace))
	see := func(obj any) {
		now := time.Now()
		d.mu.Lock()
		defer d.mu.Unlock()
		switch o := obj.(type) {
		case *batchv1.Job:
			d.created[o.Name] = o.CreationTimestamp.Time
			if o.Spec.Suspend != nil && !*o.Spec.Suspend {
				note(d.resumed, o.Name, now)
			}
		case *v1.Pod:
			name := o.Name
			if owner := metav1.GetControllerOf(o); owner != nil {
				name = owner.Name
			} else {
				d.created[name] = o.CreationTimestamp.Time
			}
			if o.Spec.NodeName != "" {
				note(d.bound, name, now)
			}
		}
	}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Batch().V1().Jobs().Informer(), factory.Core().V1().Pods().Informer(),
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) },
		}); err != nil {
			t.Fatal(err)
		}
	}
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSyncWithContext(t.Context())
	t.Cleanup(factory.Shutdown)
	return d
}

func note(m map[string]time.Time, name string, at time.Time) {
	if _, ok := m[name]; !ok {
		m[name] = at
	}
}

// late returns the time of each event relative to the creation plus delay. Negative values are early events.
func (d *diary) late(when map[string]time.Time, delay time.Duration,
	names []string,
) (late []time.Duration, missing int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		at, ok := when[name]
		if !ok {
			missing++
			continue
		}
		late = append(late, at.Sub(d.created[name].Add(delay)))
	}
	return late, missing
}
