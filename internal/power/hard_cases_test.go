package power

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

func unschedulable(p *v1.Pod) {
	p.Status.Conditions = []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable},
	}
}

// allAsleep returns a world in which all machines except the fixed one are asleep.
func allAsleep(t *testing.T, machines int) (*world, *replica) {
	t.Helper()
	w, r := one(t, machines)
	w.live(t, r, 5*time.Minute)
	for _, name := range w.names {
		if w.state(name) != sleep.Asleep {
			t.Fatal(name, w.state(name))
		}
	}
	return w, r
}

// full fills the fixed node and adds a pending pod.
func full(w *world) {
	w.addPod("works", "fixed", 8, nil)
	w.addPod("needs", "", 8, nil)
}

// wantPlaced verifies that the pending pod is bound within the given time.
func (w *world) wantPlaced(t *testing.T, r *replica, within time.Duration) {
	t.Helper()
	w.live(t, r, within)
	if w.pods["needs"].Spec.NodeName == "" {
		t.Errorf("the pod is still pending after %v; machines were woken %v times", within, w.wakes)
	}
}

const soon = 90 * time.Second // a boot, 30 s, and delays of the test

func TestAPodThatFitsOnNoMachineWakesNone(t *testing.T) {
	w, r := allAsleep(t, 5)
	r.Policy.Headroom = 0.1
	w.addPod("typo", "", 1000, nil)
	w.live(t, r, 20*time.Minute)
	if w.wakes > 0 {
		t.Errorf("%d machines were woken", w.wakes)
	}
}

func TestStalePodsStopNoWaking(t *testing.T) {
	w, r := allAsleep(t, 3)
	for i := range 300 {
		w.addPod(fmt.Sprintf("stale%03d", i), "", 1, func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{"gone": "true"}
			p.CreationTimestamp = metav1.NewTime(w.now.Add(-time.Hour))
			unschedulable(p)
		})
	}
	full(w)
	w.wantPlaced(t, r, soon)
}

func TestAMachineThatNothingSwitchesIsNotReliedOn(t *testing.T) {
	w, r := allAsleep(t, 3)
	delete(r.switches, "m0") // its entry was removed
	full(w)
	w.wantPlaced(t, r, soon)
}

func TestTaintsOfSleepersDoNotKeepThemAsleep(t *testing.T) {
	w, r := allAsleep(t, 1)
	w.written("m0", func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints,
			v1.Taint{Key: v1.TaintNodeNetworkUnavailable, Effect: v1.TaintEffectNoSchedule})
	})
	full(w)
	w.live(t, r, soon)
	if w.wakes != 1 {
		t.Errorf("%d machines were woken, want 1", w.wakes)
	}
}

func TestAPodThatIsBoundToASleeperWakesIt(t *testing.T) {
	w, r := allAsleep(t, 2)
	w.addPod("bound", "m0", 1, nil)
	w.live(t, r, soon)
	if w.state("m0") != sleep.Awake || w.state("m1") != sleep.Asleep {
		t.Error(w.state("m0"), w.state("m1"))
	}
}

func TestANominatedNodeDoesNotSleep(t *testing.T) {
	w, r := one(t, 2)
	w.addPod("provisions", "", 1, func(p *v1.Pod) { p.Status.NominatedNodeName = "m0" })
	r.list = func() *cluster { // and is not bound
		c := *w.seen(0)
		for _, p := range c.pods {
			p.Spec.NodeName = ""
		}
		return &c
	}
	for range 60 {
		w.renewed = w.now
		r.round(t.Context())
		w.pass(5 * time.Second)
	}
	if w.state("m0") != sleep.Awake || w.state("m1") == sleep.Awake {
		t.Error(w.state("m0"), w.state("m1"))
	}
}

// TestWhatTheSchedulerRefusesIsNotTriedAgain verifies that each machine is woken only once for a pod that the
// scheduler does not bind.
func TestWhatTheSchedulerRefusesIsNotTriedAgain(t *testing.T) {
	w, r := allAsleep(t, 5)
	r.Policy.MaxCycles, w.policy.MaxCycles = 0, 1000
	ghost := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "ghost", UID: "ghost", CreationTimestamp: metav1.NewTime(w.now),
	}}
	unschedulable(ghost)
	r.list = func() *cluster {
		c := *w.seen(0)
		c.pods = append(slices.Clone(c.pods), ghost)
		return &c
	}
	w.live(t, r, 40*time.Minute)
	if w.wakes != 5 {
		t.Errorf("%d boots within 40 minutes, want one for each of 5 machines", w.wakes)
	}
}

func TestHeadroomIsWhereWorkMayGo(t *testing.T) {
	w, r := one(t, 4)
	r.Policy.Headroom, r.Policy.MinAwake = 0.1, 1
	w.written("fixed", func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: v1.TaintEffectNoSchedule}}
	})
	w.remember()
	w.live(t, r, 6*time.Minute)
	awake := 0
	for _, name := range w.names {
		if w.state(name) == sleep.Awake {
			awake++
		}
	}
	if awake != 1 {
		t.Errorf("%d machines are awake in addition to the control plane, want 1", awake)
	}

	w, r = allAsleep(t, 3)
	r.Policy.Headroom = 0.5
	w.written("m0", func(n *v1.Node) { n.Spec.Unschedulable = true })
	w.addPod("works", "fixed", 6, nil)
	w.live(t, r, soon)
	if w.state("m0") != sleep.Asleep || w.wakes != 1 {
		t.Errorf("the cordoned machine is %s, and %d were woken", w.state("m0"), w.wakes)
	}
}

// unsureBox is a switch that cannot determine the power state before the machine has booted, as with Wake-on-LAN.
type unsureBox struct {
	Switch

	up func() bool
}

func (b unsureBox) State(ctx context.Context) (bool, string, error) {
	on, uuid, err := b.Switch.State(ctx)
	if err == nil && !b.up() {
		return false, "", errUnsure
	}
	return on, uuid, err
}

func TestWhatCannotKnowIsNotAFailedBoot(t *testing.T) {
	w, r := allAsleep(t, 3)
	for _, name := range w.names {
		r.switches[name] = unsureBox{r.switches[name], func() bool { return isReady(w.nodes[name]) }}
	}
	full(w)
	w.wantPlaced(t, r, soon)
	if w.wakes != 1 {
		t.Errorf("%d machines were woken, want 1", w.wakes)
	}
}

// TestClocksThatDiffer covers clocks of replicas that differ by a minute, and by more than the timeout of a
// shutdown.
func TestClocksThatDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{time.Minute, 4 * time.Minute} {
		w, r := one(t, 5)
		other := w.start("other")
		other.list = r.list
		other.Clock = func() time.Time { return w.now.Add(ahead) }
		both := func(d time.Duration) {
			for range int(d / (2 * time.Second)) {
				w.renewed = w.now
				for _, one := range []*replica{r, other} {
					one.round(t.Context())
				}
				w.pass(2 * time.Second)
			}
		}
		both(5 * time.Minute)
		for _, name := range w.names {
			if w.state(name) != sleep.Asleep {
				t.Errorf("%v ahead: %s is %s", ahead, name, w.state(name))
			}
		}
		full(w)
		both(soon)
		if w.pods["needs"].Spec.NodeName == "" || w.wakes != 1 {
			t.Errorf("%v ahead: the pod is on %q, and %d machines were woken", ahead, w.pods["needs"].Spec.NodeName,
				w.wakes)
		}
	}
}

// TestAReleasedJobFindsItsMachine verifies that a machine that was kept awake for a held Job stays awake for its
// pod.
func TestAReleasedJobFindsItsMachine(t *testing.T) {
	w, r := one(t, 1)
	w.addPod("works", "fixed", 8, nil)
	at := w.now.Add(5 * time.Minute).Truncate(time.Second)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "j", Labels: map[string]string{v1alpha1.LabelHeld: "true"},
		Annotations: map[string]string{v1alpha1.AnnotationHeldUntil: at.Format(time.RFC3339)},
	}}
	job.Spec.Template.Spec.Containers = w.pods["works"].Spec.Containers
	jobs := []*batchv1.Job{job}
	r.Policy.Lead = 5 * time.Minute
	r.list = func() *cluster { c := *w.seen(0); c.jobs = jobs; return &c }
	for w.now.Before(at.Add(-5 * time.Second)) {
		w.live(t, r, 5*time.Second)
	}
	jobs = nil
	w.renewed = w.now
	if r.round(t.Context()); w.state("m0") != sleep.Awake {
		t.Error(w.state("m0"))
	}
	w.addPod("needs", "", 8, nil)
	w.wantPlaced(t, r, 30*time.Second)
}
