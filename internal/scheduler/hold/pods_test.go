package hold

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// bind creates a pod of a Job that is bound to a node.
func (w *world) bind(job string) {
	w.t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: job + "-0", UID: types.UID(job + "-0"),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "Job", Name: job, UID: types.UID(job), Controller: new(true),
			}},
		},
		Spec: v1.PodSpec{NodeName: "n"},
	}
	if _, err := w.client.CoreV1().Pods("default").Create(w.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// wantAwaited verifies whether the start of an object is awaited.
func (w *world) wantAwaited(name string, want bool) {
	w.t.Helper()
	if _, awaited := w.loop.starts.Load(types.UID(name)); awaited != want {
		w.t.Errorf("the start of %s is awaited: %v, want %v", name, awaited, want)
	}
}

// TestPodsAreFollowedAfterARestart verifies that the start of a Job from the initial list is observed if WatchPods is
// called after the list was read, even if another Job is created at the same time.
func TestPodsAreFollowedAfterARestart(t *testing.T) {
	for name, another := range map[string]bool{"initial list": false, "another Job": true} {
		t.Run(name, func(t *testing.T) {
			prepare := func(w *world, _ *Config) {
				w.late = true
				w.green(10 * time.Minute)
				w.job("j", marked(3*time.Hour))
			}
			during(t, prepare, func(w *world) {
				if another {
					w.job("another", marked(3*time.Hour))
				}
				w.watchPods()
				w.wantJob("j", 9*time.Minute, 10*time.Minute)
				w.wantAwaited("j", true)
				w.bind("j")
				bubble.Advance(time.Second)
				w.wantAwaited("j", false)
			})
		})
	}
}

// TestStartsBeforePodsAreFollowed verifies that a start is not a measurement of the start latency if the pod was bound
// before WatchPods was called, because the time of the bind is unknown.
func TestStartsBeforePodsAreFollowed(t *testing.T) {
	prepare := func(w *world, _ *Config) {
		w.late = true
		w.green(10 * time.Minute)
		w.job("j", marked(3*time.Hour))
	}
	during(t, prepare, func(w *world) {
		alone := w.loop.jobs.congestion.alone
		w.wantJob("j", 9*time.Minute, 10*time.Minute)
		w.bind("j")
		bubble.Advance(3 * time.Second)
		w.wantAwaited("j", true)
		w.watchPods()
		bubble.Advance(time.Second)
		w.wantAwaited("j", false)
		if got := w.loop.jobs.congestion.alone; got != alone {
			t.Errorf("the start latency on an idle cluster is %v, want it to remain %v", got, alone)
		}
	})
}
