package hold

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// gate answers the PreEnqueue plugin. It is called under the lock of the scheduler's queue, so it waits for nothing:
// what takes time is left to the loop, which [Loop.Hold] tells of every newly held pod.
type gate struct {
	clock *kube.ServerClock
	view  func() *kube.View
	max   int64

	tickets sync.Map // types.UID → *ticket
	held    atomic.Int64
}

// ticket is what the gate remembers of a pod that it has held, until the pod is bound or gone.
type ticket struct {
	pod      *v1.Pod
	latest   atomic.Int64 // deadline, Unix nanoseconds
	released atomic.Bool  // final
}

// A refusal is why the annotations of a pod have no effect. The zero refusal is none.
type refusal struct{ reason, text string }

// ask reports whether the pod is to be kept from the queue, and until when at the latest. first is true when that is
// decided; no is why marks have no effect, once per pod.
func (g *gate) ask(pod *v1.Pod) (until time.Time, held, first bool, no refusal) {
	// What was decided stands, whatever is known by now.
	if t, ok := g.ticket(pod.UID); ok {
		latest := t.latest.Load()
		return time.Unix(0, latest), !t.released.Load() && g.clock.Now().UnixNano() < latest, false, no
	}
	view := g.view()
	// Scheduling gates of others keep it: kube-scheduler asks again when they are gone.
	if len(pod.Spec.SchedulingGates) > 0 || !view.Concerns(pod) {
		return time.Time{}, false, false, no
	}
	if _, never := policy.NeverHeldPod(pod); never {
		return time.Time{}, false, false, no
	}
	work, err := policy.ReadPod(pod)
	job, settings := view.Settle(&work)
	latest := job.LatestStart()
	mode, _ := view.Mode(pod.Namespace)
	if !view.Settled() || mode != v1alpha1.ModeEnforce ||
		err == nil && (!settings.Ours || job.Released || !g.clock.Now().Before(latest)) {
		return time.Time{}, false, false, no
	}
	t := &ticket{pod: pod}
	t.latest.Store(latest.UnixNano())
	switch {
	case err != nil:
		// it may be no hold that it asks for
		no = refusal{reasonNoEffect, "all energy annotations here are ignored: " + err.Error()}
	case g.held.Add(1) > g.max:
		g.held.Add(-1)
		no = refusal{
			reasonNotHeld,
			fmt.Sprintf("not held: %d pods are held already, and each is kept in memory and written to the API server",
				g.max),
		}
	}
	t.released.Store(no != refusal{}) // final, whatever is true when the scheduler looks at it again
	g.tickets.Store(pod.UID, t)
	return latest, no == refusal{}, true, no
}

func (g *gate) ticket(uid types.UID) (*ticket, bool) {
	t, ok := g.tickets.Load(uid)
	if !ok {
		return nil, false
	}
	return t.(*ticket), true
}

// release lets a held pod pass from now on. It reports whether it was held.
func (g *gate) release(uid types.UID) bool {
	t, ok := g.ticket(uid)
	if !ok || t.released.Swap(true) {
		return false
	}
	g.held.Add(-1)
	return true
}

// forget drops what is remembered of a pod that is bound or gone.
func (g *gate) forget(uid types.UID) {
	g.release(uid)
	g.tickets.Delete(uid)
}
