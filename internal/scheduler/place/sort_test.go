package place

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// queued is a pod in the queue of kube-scheduler.
type queued struct {
	fwk.QueuedPodInfo
	pod *v1.Pod
	at  time.Time
}

func (q queued) GetPodInfo() fwk.PodInfo { return runningPod{pod: q.pod} }
func (q queued) GetTimestamp() time.Time { return q.at }

// stockLess is Less of PrioritySort in kube-scheduler 1.36.
func stockLess(a, b queued) bool {
	p, q := ptr.Deref(a.pod.Spec.Priority, 0), ptr.Deref(b.pod.Spec.Priority, 0)
	return p > q || p == q && a.at.Before(b.at)
}

// newQueue returns the plugins Sort and Hold of a process with the given view.
func newQueue(t testing.TB, view func() *kube.View, h fwk.Handle) (*Sort, *Hold) {
	t.Helper()
	factories := New(Deps{View: view})
	sort, errSort := factories[SortName](t.Context(), nil, h)
	hold, errHold := factories[HoldName](t.Context(), nil, h)
	if errSort != nil || errHold != nil {
		t.Fatal(errSort, errHold)
	}
	return sort.(*Sort), hold.(*Hold)
}

// agingPod returns a pod with the order "aging" and an expected run time.
func agingPod(uid string, expected time.Duration) *v1.Pod {
	pod := newPod(v1alpha1.AnnotationStrategy, "carbon+now/aging", v1alpha1.AnnotationExpectedDuration, expected.String())
	pod.UID, pod.Name = types.UID(uid), uid
	return pod
}

func constant(v *kube.View) func() *kube.View { return func() *kube.View { return v } }

// TestSortIsATotalOrder checks with random pods that Less is a strict weak order, that pods that have not opted in are
// sorted among each other as by PrioritySort and never lose a place to others, and that an opted-in pod precedes pods
// that arrive later than the bound after it.
func TestSortIsATotalOrder(t *testing.T) {
	view := knowledge(t, noon)
	rapid.Check(t, func(rt *rapid.T) {
		start := time.Now()
		sort, hold := newQueue(t, constant(view), &handle{})
		pods := make([]queued, rapid.IntRange(3, 12).Draw(rt, "pods"))
		aging := make([]bool, len(pods))
		for i := range pods {
			aging[i] = rapid.Bool().Draw(rt, "aging")
			pod := newPod()
			if aging[i] {
				pod = agingPod("", time.Duration(rapid.IntRange(1, 10).Draw(rt, "expected"))*10*time.Minute)
			}
			pod.UID = types.UID(fmt.Sprint(i))
			pod.Spec.Priority = rapid.SampledFrom([]*int32{nil, new(int32), ptr.To[int32](7)}).Draw(rt, "priority")
			pods[i] = queued{pod: pod, at: start.Add(time.Duration(rapid.IntRange(-3, 12).Draw(rt, "at")) * 10 * time.Minute)}
			hold.PreEnqueue(t.Context(), pod)
		}
		entered := time.Now()
		less := func(i, j int) bool { return sort.Less(pods[i], pods[j]) }
		equal := func(i, j int) bool { return !less(i, j) && !less(j, i) }
		for i := range pods {
			for j := range pods {
				if less(i, j) && less(j, i) {
					rt.Fatalf("pods %d and %d precede each other", i, j)
				}
				stock := stockLess(pods[i], pods[j])
				if !aging[i] && stock && !less(i, j) || !aging[j] && less(i, j) && !stock {
					rt.Fatalf("pod %d (aging %v) and %d (aging %v): got %v, PrioritySort %v", i, aging[i], j, aging[j],
						less(i, j), stock)
				}
				samePriority := !stockLess(queued{pod: pods[i].pod}, queued{pod: pods[j].pod}) &&
					!stockLess(queued{pod: pods[j].pod}, queued{pod: pods[i].pod})
				if samePriority && pods[j].at.After(pods[i].at) && pods[j].at.After(entered.Add(sched.MaxShift)) && !less(i, j) {
					rt.Fatalf("pod %d does not precede pod %d, which arrived later by more than the bound", i, j)
				}
				for k := range pods {
					if less(i, j) && less(j, k) && !less(i, k) || equal(i, j) && equal(j, k) && !equal(i, k) {
						rt.Fatalf("not transitive: pods %d, %d and %d", i, j, k)
					}
				}
			}
		}
	})
}

// TestTurns checks the order of pods over time. A retry changes the time of a pod in the queue, but not its turn.
func TestTurns(t *testing.T) {
	view := knowledge(t, noon)
	synctest.Test(t, func(t *testing.T) {
		sort, hold := newQueue(t, constant(view), &handle{})
		start := time.Now()
		enter := func(pod *v1.Pod) queued {
			hold.PreEnqueue(t.Context(), pod)
			return queued{pod: pod, at: time.Now()}
		}
		long, short := enter(agingPod("long", 10*time.Hour)), enter(agingPod("short", 5*time.Minute))
		plain := enter(newPod())
		order := func(pods ...queued) (names []string) {
			slices.SortStableFunc(pods, func(a, b queued) int {
				switch {
				case sort.Less(a, b):
					return -1
				case sort.Less(b, a):
					return 1
				}
				return 0
			})
			for _, p := range pods {
				names = append(names, p.pod.Name)
			}
			return names
		}
		check := func(when string, got []string, want ...string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%s: order is %v, want %v", when, got, want)
			}
		}
		check("at the start", order(long, short, plain), "p", "short", "long")

		bubble.Advance(54 * time.Minute)
		late := enter(agingPod("late", 5*time.Minute)) // its turn is a minute before that of the pod that may wait longest
		check("after 54 minutes", order(long, late), "late", "long")
		long = enter(long.pod) // a failed attempt
		check("after a failed attempt", order(long, late), "late", "long")

		bubble.Advance(2 * time.Minute)
		later := enter(agingPod("later", 5*time.Minute))
		check("after 56 minutes", order(later, long, late), "late", "long", "later")
		if turn := sort.turns.at["long"].at; !turn.Equal(start.Add(sched.MaxShift)) {
			t.Errorf("turn is %v after the first arrival, want %v", turn.Sub(start), sched.MaxShift)
		}

		bubble.Advance(10 * time.Minute)
		long = enter(long.pod)
		fresh := enter(newPod())
		check("once the turn has come, as PrioritySort", order(fresh, long), "p", "long")
		bubble.Advance(time.Second)
		check("and before later pods", order(enter(newPod()), long), "long", "p")
	})
}

// TestWhoAges checks which pods have a turn: those with the order "aging" from an annotation or a policy, if decisions
// are enforced.
func TestWhoAges(t *testing.T) {
	ordered := func(order string, mode v1alpha1.Mode) *kube.View {
		c := kube.Contents{Defaults: policy.BuiltIn(), Policies: []*v1alpha1.EnergyPolicy{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: v1alpha1.PolicyName},
			Spec: v1alpha1.EnergyPolicySpec{
				Mode: mode, WorkloadSettings: v1alpha1.WorkloadSettings{Order: order},
			},
		}}}
		view, err := c.View()
		if err != nil {
			t.Fatal(err)
		}
		return view
	}
	strategy := func(name string) *v1.Pod { return newPod(v1alpha1.AnnotationStrategy, name) }
	enforced := ordered("", v1alpha1.ModeEnforce)
	for _, tc := range []struct {
		name string
		view *kube.View
		pod  *v1.Pod
		want bool
	}{
		{"annotation", enforced, strategy("carbon+now/aging"), true},
		{"annotation without policies", knowledge(t, noon), strategy("carbon+now/aging"), true},
		{"another order", enforced, strategy("carbon+now/shortest"), false},
		{"no order", enforced, strategy("carbon"), false},
		{"invalid annotation", enforced, strategy("carbon+now/agin"), false},
		{"shadow", ordered("", v1alpha1.ModeShadow), strategy("carbon+now/aging"), false},
		{"unsettled", kube.Unsettled(), strategy("carbon+now/aging"), false},
		{"policy", ordered("Aging", v1alpha1.ModeEnforce), newPod(), true},
		{"policy in shadow mode", ordered("Aging", v1alpha1.ModeShadow), newPod(), false},
		{"policy with the order of arrival", ordered("FIFO", v1alpha1.ModeEnforce), newPod(), false},
		{"annotation before policy", ordered("Aging", v1alpha1.ModeEnforce), strategy("carbon+now/fifo"), false},
		{"skip", ordered("Aging", v1alpha1.ModeEnforce), newPod(v1alpha1.AnnotationSkip, "true"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sort, hold := newQueue(t, constant(tc.view), &handle{})
			if !hold.PreEnqueue(t.Context(), tc.pod).IsSuccess() {
				t.Fatal("pod is held")
			}
			if _, got := sort.turns.at[tc.pod.UID]; got != tc.want {
				t.Errorf("pod has a turn: %v, want %v", got, tc.want)
			}
		})
	}
}

// TestTurnsAreConstant checks that a new view does not affect queued pods until they enter the queue again.
func TestTurnsAreConstant(t *testing.T) {
	view := knowledge(t, noon)
	sort, hold := newQueue(t, func() *kube.View { return view }, &handle{})
	long, now := agingPod("long", time.Hour), time.Now()
	hold.PreEnqueue(t.Context(), long)
	turn := sort.turns.later("long", now)
	if !turn.After(now) {
		t.Fatal("pod has no turn")
	}
	view = kube.Unsettled()
	if got := sort.turns.later("long", now); !got.Equal(turn) {
		t.Errorf("turn has changed from %v to %v", turn, got)
	}
	hold.PreEnqueue(t.Context(), long)
	if got := sort.turns.later("long", now); !got.Equal(now) {
		t.Errorf("time in the queue is %v, want %v", got, now)
	}
}

// TestTurnsAreForgotten checks that turns of pods that have left the queue are removed, and no others.
func TestTurnsAreForgotten(t *testing.T) {
	waiting, bound := agingPod("waiting", time.Minute), agingPod("bound", time.Minute)
	placed := bound.DeepCopy()
	placed.Spec.NodeName = "n"
	replaced := agingPod("old", time.Minute)
	replaced.Name = "waiting"
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	pods := factory.Core().V1().Pods().Informer().GetStore()
	for _, pod := range []*v1.Pod{waiting, placed} {
		if err := pods.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	sort, hold := newQueue(t, constant(knowledge(t, noon)), &factoryHandle{factory: factory})
	for _, pod := range []*v1.Pod{waiting, bound, replaced, agingPod("deleted", time.Minute)} {
		hold.PreEnqueue(t.Context(), pod)
	}
	sort.turns.tidyAt = len(sort.turns.at)
	hold.PreEnqueue(t.Context(), agingPod("new", time.Minute))
	if got := sort.turns.at; len(got) != 2 || got["waiting"].pod == nil || got["new"].pod == nil {
		t.Errorf("turns after removal: %v", got)
	}
}

func TestSortHasNoArgs(t *testing.T) {
	if _, err := New(Deps{})[SortName](t.Context(), &runtime.Unknown{Raw: []byte("{}")}, &handle{}); err == nil {
		t.Error("arguments are accepted")
	}
}

// TestLessAllocates checks that sorting does not allocate memory.
func TestLessAllocates(t *testing.T) {
	sort, hold := newQueue(t, constant(knowledge(t, noon)), &handle{})
	var a, b fwk.QueuedPodInfo = &queued{pod: newPod(), at: noon}, &queued{pod: agingPod("a", time.Hour), at: noon}
	hold.PreEnqueue(t.Context(), b.(*queued).pod)
	if n := testing.AllocsPerRun(100, func() { sort.turns.later("a", noon) }); n != 0 {
		t.Errorf("later() performs %v allocations, want none", n)
	}
	if !sort.Less(a, b) {
		t.Error("pod does not precede an aging one")
	}
}
