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

// gate decides on behalf of the PreEnqueue plugin. It is called under the lock of the scheduling queue, so it never
// blocks. Anything that takes longer is done by the loop, which [Loop.Hold] notifies of every newly held pod.
type gate struct {
	clock *kube.ServerClock
	view  func() *kube.View
	max   int64

	tickets sync.Map // types.UID → *ticket
	held    atomic.Int64
}

// ticket is the gate's record of a pod that it has held or refused to hold. It exists until the pod is bound or
// deleted.
type ticket struct {
	pod      *v1.Pod
	latest   atomic.Int64 // deadline, Unix nanoseconds
	released atomic.Bool  // final
}

// refusal is the reason why the annotations of a pod have no effect. The zero value means that there is none.
type refusal struct{ reason, text string }

// ask reports whether the pod must be kept out of the queue, and until when at most. first is true if the decision
// was made by this call. no is set if the annotations have no effect, at most once per pod.
func (g *gate) ask(pod *v1.Pod) (until time.Time, held, first bool, no refusal) {
	// Decisions are final, even if the view has changed.
	if t, ok := g.ticket(pod.UID); ok {
		latest := t.latest.Load()
		return time.Unix(0, latest), !t.released.Load() && g.clock.Now().UnixNano() < latest, false, no
	}
	view := g.view()
	// A pod with scheduling gates is not schedulable. kube-scheduler calls the plugin again when they have been
	// removed.
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
		// hold the pod only if its annotations are valid
		no = refusal{reasonNoEffect, "all energy annotations are ignored: " + err.Error()}
	case g.held.Add(1) > g.max:
		g.held.Add(-1)
		no = refusal{
			reasonNotHeld,
			fmt.Sprintf("not held: the maximum number of %d held pods has been reached", g.max),
		}
	}
	t.released.Store(no != refusal{}) // final, even if the conditions have changed when the scheduler calls again
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

// release admits a held pod from now on. It reports whether the pod was held.
func (g *gate) release(uid types.UID) bool {
	t, ok := g.ticket(uid)
	if !ok || t.released.Swap(true) {
		return false
	}
	g.held.Add(-1)
	return true
}

// forget deletes the ticket of a pod that has been bound or deleted.
func (g *gate) forget(uid types.UID) {
	g.release(uid)
	g.tickets.Delete(uid)
}
