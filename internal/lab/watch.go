package lab

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// watch records when the jobs of a replay were released, bound and finished. It uses its own clock, because
// timestamps in objects have a resolution of a second, which is many minutes of a compressed trace.
type watch struct {
	replay  *Replay
	factory informers.SharedInformerFactory
	cancel  context.CancelFunc

	mu       sync.Mutex
	trials   map[string]map[int]*observed // by namespace and job
	overhead time.Duration                // moving average of the time by which pods run longer than requested
}

type observed struct {
	held     bool // whether it is or was suspended
	planned  bool // held until a window, not just until the loop processed it
	released time.Time
	node     string
	bound    time.Time
	finished time.Time
	lost     bool // a pod failed or was evicted
}

func newWatch(ctx context.Context, r *Replay) (*watch, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{
		replay: r, cancel: cancel, factory: informers.NewSharedInformerFactory(r.client, 0),
		trials: map[string]map[int]*observed{},
	}
	for _, t := range r.Trials {
		w.trials[t.namespace] = map[int]*observed{}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: w.see, UpdateFunc: func(_, o any) { w.see(o) }}
	for _, informer := range []cache.SharedIndexInformer{
		w.factory.Core().V1().Pods().Informer(), w.factory.Batch().V1().Jobs().Informer(),
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			cancel()
			return nil, err
		}
	}
	w.factory.Start(ctx.Done())
	for _, synced := range w.factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			w.stop()
			return nil, errors.New("watching pods and jobs: the caches did not sync")
		}
	}
	return w, nil
}

func (w *watch) stop() {
	w.cancel()
	w.factory.Shutdown()
}

func (w *watch) see(object any) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o := object.(type) {
	case *batchv1.Job:
		if seen := w.entry(o.Namespace, o.Annotations); seen != nil {
			seen.job(o, now)
		}
	case *corev1.Pod:
		if seen := w.entry(o.Namespace, o.Annotations); seen != nil && o.Spec.NodeName != "" {
			run, err := strconv.ParseFloat(o.Annotations[v1alpha1.AnnotationLabRunSeconds], 64)
			if seen.pod(o, now) && err == nil {
				requested := time.Duration(run * float64(time.Second))
				w.overhead += (now.Sub(seen.bound) - requested - w.overhead) / 16
			}
		}
	}
}

// request returns the run time to request for a pod that should run for the given time, including the latencies of
// its start and its end.
func (w *watch) request(run time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, run-w.overhead)
}

func (seen *observed) job(o *batchv1.Job, now time.Time) {
	seen.lost = seen.lost || o.Status.Failed > 0
	if _, ok := o.Annotations[v1alpha1.AnnotationHeldUntil]; ok {
		seen.planned = true
	}
	switch suspended := o.Spec.Suspend != nil && *o.Spec.Suspend; {
	case suspended:
		seen.held = true
	case seen.held && seen.released.IsZero():
		seen.released = now
	}
	// A Job that was held and released between two events is recognised by the annotation of its release.
	if _, ok := o.Annotations[v1alpha1.AnnotationReleasedAt]; ok && !seen.held {
		seen.held, seen.released = true, now
	}
}

// pod reports whether the pod has just finished.
func (seen *observed) pod(o *corev1.Pod, now time.Time) bool {
	if seen.node == "" {
		seen.node, seen.bound = o.Spec.NodeName, now
	}
	if o.Status.Phase != corev1.PodSucceeded || !seen.finished.IsZero() {
		return false
	}
	seen.finished = now
	return true
}

// entry returns the record of an object of the replay, or nil for other objects.
func (w *watch) entry(namespace string, annotations map[string]string) *observed {
	jobs := w.trials[namespace]
	i, err := strconv.Atoi(annotations[annotationJob])
	if jobs == nil || err != nil {
		return nil
	}
	if jobs[i] == nil {
		jobs[i] = &observed{}
	}
	return jobs[i]
}

func (w *watch) progress() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := Progress{Trace: w.replay.clock.ToTrace(time.Now()), Done: true}
	for _, t := range w.replay.Trials {
		tp := TrialProgress{Strategy: t.String()}
		for _, seen := range w.trials[t.namespace] {
			switch {
			case !seen.finished.IsZero():
				tp.Finished++
			case seen.node != "":
				tp.Running++
			case seen.held && seen.released.IsZero():
				tp.Held++
			default:
				tp.Pending++
			}
		}
		p.Done = p.Done && tp.Finished == len(w.replay.Scenario.Jobs)
		p.Trials = append(p.Trials, tp)
	}
	return p
}
