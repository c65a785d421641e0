package power

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

func annotated(text string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationPower: text}}}
}

// TestImplausibleMemoryIsIgnored verifies that annotations that we cannot have written are ignored, and that our
// own can be read.
func TestImplausibleMemoryIsIgnored(t *testing.T) {
	now := time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)
	times := strings.Repeat(`"2026-06-01T05:00:00Z",`, maxSleeps)
	for text, plausible := range map[string]bool{
		`{"failed":1,"since":"2026-06-01T05:00:00Z"}`:                 true,
		`{"failed":1,"since":"2026-06-01T06:59:00Z"}`:                 true, // from another replica's clock
		`{"failed":1000,"sleeps":[` + times[:23*10-1] + `]}`:          true,
		`{"failed":1,"sleeps":[` + times + `"2026-06-01T05:00:00Z"]}`: false,
		`{"failed":-1}`: false,
		`{"failed":-1000000000,"since":"2026-06-01T05:00:00Z"}`: false,
		`{"failed":1001}`:                                             false,
		`{"failed":9223372036854775807}`:                              false,
		`{"failed":9223372036854775808}`:                              false,
		`{"failed":1,"since":"9999-12-31T23:59:59Z"}`:                 false,
		`{"failed":1,"off":"2026-06-01T07:00:01Z"}`:                   false,
		`{"failed":1,"wake":"2027-06-01T07:00:01Z"}`:                  false,
		`{"failed":1,"sleeps":["2026-06-02T07:00:01Z"]}`:              false,
		`{"failed":1,"why":"` + strings.Repeat("x", maxMemory) + `"}`: false,
		`{"failed":1`: false,
		`[]`:          false,
	} {
		if got := remembered(annotated(text), now).Failed > 0; got != plausible {
			t.Errorf("%.80s: plausible = %v, want %v", text, got, plausible)
		}
	}
	s := step{state: sleep.Asleep, memory: memory{
		Since: now, Failed: maxFailed, Why: strings.Repeat("\x01", 2*maxWhy), Off: now, Wake: now, For: "team",
		Sleeps: slices.Repeat([]time.Time{now}, 2*maxSleeps),
	}}
	patch, err := s.patch(&v1.Node{})
	var written struct{ Metadata metav1.ObjectMeta }
	if err != nil || json.Unmarshal(patch, &written) != nil {
		t.Fatal(err)
	}
	text := written.Metadata.Annotations[v1alpha1.AnnotationPower]
	if m := remembered(annotated(text), now); m.Failed != maxFailed || len(m.Sleeps) != maxSleeps || m.For != "team" {
		t.Errorf("ignored our own annotation of %d bytes: %.200s", len(text), text)
	}
	f := facts{limits: &usual, now: now, state: sleep.Booting, memory: memory{Failed: maxFailed}}
	if s := f.failed(sleep.Asleep, "", ""); s.Failed != maxFailed {
		t.Errorf("Failed after %d failed boots and another one = %d", maxFailed, s.Failed)
	}
}

// TestAForgedAnnotationCostsNothing verifies that an annotation written by a kubelet prevents no machine from being
// woken.
func TestAForgedAnnotationCostsNothing(t *testing.T) {
	for _, text := range []string{
		`{"failed":-1}`, `{"failed":9223372036854775807}`, `{"since":"9999-12-31T23:59:59Z"}`,
		`{"failed":1,"since":"9999-12-31T23:59:59Z"}`, `{"wake":"9999-12-31T23:59:59Z"}`,
	} {
		w, r := allAsleep(t, 3)
		w.written("m1", func(n *v1.Node) { n.Annotations = map[string]string{v1alpha1.AnnotationPower: text} })
		full(w)
		w.wantPlaced(t, r, soon)
		if w.wakes != 1 {
			t.Errorf("%s: %d machines were woken, want 1", text, w.wakes)
		}
	}
}

// TestAPanicCostsWhatCausesIt verifies that a machine or need that causes a panic affects no others. If it could be
// either, the machine is woken.
func TestAPanicCostsWhatCausesIt(t *testing.T) {
	has := func(s *sleep.Snapshot, machine string) bool {
		return slices.ContainsFunc(s.Machines, func(m sleep.Machine) bool { return m.Name == machine })
	}
	needs := func(s *sleep.Snapshot, job string) bool {
		return slices.ContainsFunc(s.Needs, func(n sleep.Need) bool { return n.Job == job })
	}
	for name, c := range map[string]struct {
		panics func(*sleep.Snapshot) bool
		woken  []string // in addition to the machine for the pending pod
	}{
		"a machine":    {func(s *sleep.Snapshot) bool { return has(s, "m3") }, []string{"m3"}},
		"two machines": {func(s *sleep.Snapshot) bool { return has(s, "m3") || has(s, "m4") }, []string{"m3", "m4"}},
		"a machine while something waits": {
			func(s *sleep.Snapshot) bool { return has(s, "m3") && len(s.Needs) > 0 }, []string{"m3"},
		},
		"a pod":                          {func(s *sleep.Snapshot) bool { return needs(s, "team/bad") }, nil},
		"a pod while any machine sleeps": {func(s *sleep.Snapshot) bool { return needs(s, "team/bad") && has(s, "m0") }, []string{"m0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := allAsleep(t, 5)
			r.decider = func(s *sleep.Snapshot) sleep.Plan {
				if c.panics(s) {
					panic("planted")
				}
				return sleep.Decide(s)
			}
			full(w)
			w.addPod("bad", "", 1, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"class": "a"} })
			w.pass(5 * time.Second)
			r.round(t.Context())
			woken := 0
			for _, box := range w.names {
				if wakes := w.state(box) == sleep.Booting; wakes && !slices.Contains(c.woken, box) {
					woken++
				} else if !wakes && slices.Contains(c.woken, box) {
					t.Errorf("%s is %s, want machines without a verdict to be woken", box, w.state(box))
				}
			}
			if woken == 0 || woken > 2 {
				t.Errorf("%d other machines were woken, want those for the pending pods", woken)
			}
		})
	}
}

// park returns a cluster of sleeping machines and its loop.
func park(t *testing.T, machines int, change func(*v1.Node)) (*loop, *cluster) {
	t.Helper()
	view, err := kube.NewView(nil, []*energy.Profile{server}, server.Name)
	if err != nil {
		t.Fatal(err)
	}
	c, switches := &cluster{}, map[string]Switch{}
	for i := range machines {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%04d", i), Labels: map[string]string{
			v1alpha1.LabelMaySleep: "true", v1alpha1.LabelPowerState: string(sleep.Asleep),
		}}}
		n.Status.Allocatable = v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("256Gi"),
		}
		n.Spec.Taints = []v1.Taint{{Key: v1alpha1.TaintAsleep, Effect: v1.TaintEffectNoSchedule}}
		if change != nil {
			change(n)
		}
		c.nodes, switches[n.Name] = append(c.nodes, n), &control{}
	}
	now := time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)
	l := newLoop(Options{
		View: func() *kube.View { return view }, Policy: sleep.DefaultPolicy(), Mode: ModeEnforce,
		Clock: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
	}, switches)
	l.leads = func() bool { return true }
	l.event = func(*v1.Node, string, string, string) {}
	return l, c
}

// pod adds a pod that requests one core.
func (c *cluster) pod(namespace, name string, change func(*v1.Pod)) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}}
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
	}}}
	change(p)
	c.pods = append(c.pods, p)
}

func terms(n int, value string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		unschedulable(p)
		all := make([]v1.NodeSelectorTerm, n)
		for i := range all {
			all[i].MatchExpressions = []v1.NodeSelectorRequirement{
				{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{"a", "b", value}},
			}
		}
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: all},
		}}
	}
}

// TestManyPodsCostALimitedAmountOfWork verifies that the work per round is limited regardless of the number of
// pending pods, that a pod of another namespace is handled in the first round, and that every pod is handled
// eventually.
func TestManyPodsCostALimitedAmountOfWork(t *testing.T) {
	const machines, pods, work = 20, 200, 20_000
	for name, c := range map[string]struct {
		change func(i int) func(*v1.Pod)
		spent  int // maximum in the first round
		rounds int // rounds until all pods have been handled
	}{
		"no node has the label": {func(int) func(*v1.Pod) {
			return func(p *v1.Pod) { unschedulable(p); p.Spec.NodeSelector = map[string]string{"none": "such"} }
		}, 2*machines*perFit + (pods+1)*perPod + machines, 1},
		"the same affinity of 10 terms": {func(int) func(*v1.Pod) { return terms(10, "c") }, 5000, 1},
		// The specs have 480 bytes, so each costs 16 + 3 + 20*(8+3) units.
		"an affinity of 10 terms each": {func(i int) func(*v1.Pod) { return terms(10, fmt.Sprint("c", 100+i)) }, work + 300, 3},
		"larger than is looked at":     {func(i int) func(*v1.Pod) { return terms(2000, "c") }, work + 1000, 7},
	} {
		l, all := park(t, machines, nil)
		l.limits.work = work
		for i := range pods {
			all.pod("tenant", fmt.Sprint("p", i), c.change(i))
		}
		all.pod("other", "p", unschedulable)
		rounds := 0
		for first := true; first || len(l.looked) > 0 && len(l.looked) <= pods && rounds < 2*c.rounds; first = false {
			rounds++
			s := l.snapshot(all, l.Clock())
			if first && (len(s.Needs) != 1 || s.Needs[0].Job != "other/p" || len(s.Needs[0].Machines) != machines) {
				t.Errorf("%s: got %d needs, want that of the other namespace", name, len(s.Needs))
			}
			if spent := work - l.left; spent > c.spent {
				t.Errorf("%s: %d units of work in round %d, want at most %d", name, spent, rounds, c.spent)
			}
		}
		if rounds != c.rounds {
			t.Errorf("%s: all pods were handled after %d rounds, want %d", name, rounds, c.rounds)
		}
	}
}

// TestManyHeldJobsCostALimitedAmountOfWork verifies that held Jobs share the limits with pods, that namespaces take
// turns, and that further pods of a Job come last.
func TestManyHeldJobsCostALimitedAmountOfWork(t *testing.T) {
	l, all := park(t, 100, nil)
	l.limits.work = 50_000
	for i := range 5000 {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenant", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)),
			Labels: map[string]string{v1alpha1.LabelHeld: "true"}, Annotations: map[string]string{
				v1alpha1.AnnotationHeldUntil: l.Clock().Add(time.Minute).Format(time.RFC3339),
			},
		}}
		j.Spec.Parallelism = new(int32(1000))
		if i == 4999 {
			j.Namespace = "other"
		}
		all.jobs = append(all.jobs, j)
	}
	s := l.snapshot(all, l.Clock())
	if len(s.Needs) != maxNeeds || l.left < -200 {
		t.Fatalf("got %d needs, %d units of work remaining", len(s.Needs), l.left)
	}
	if i := slices.IndexFunc(s.Needs, func(n sleep.Need) bool { return n.Owner == "other" }); i < 0 || i > 1 {
		t.Errorf("the Job of another namespace is at index %d", i)
	}
}

// TestHeldJobsShareTheHorizon verifies that a round computes the horizon of each machine only once, regardless of
// the number of held Jobs, and that Jobs that start before the longest horizon are included.
func TestHeldJobsShareTheHorizon(t *testing.T) {
	l, all := park(t, 100, nil)
	start := l.Clock().Add(l.horizon(&sleep.Machine{Profile: server}, &l.Policy))
	for i := range 1000 {
		if i == 999 {
			start = start.Add(-time.Second)
		}
		all.jobs = append(all.jobs, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenant", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)),
			Labels:      map[string]string{v1alpha1.LabelHeld: "true"},
			Annotations: map[string]string{v1alpha1.AnnotationHeldUntil: start.Format(time.RFC3339)},
		}})
	}
	computed := 0
	l.horizon = func(m *sleep.Machine, p *sleep.Policy) time.Duration {
		computed++
		return m.Horizon(p)
	}
	s := l.snapshot(all, l.Clock())
	if computed != len(all.nodes) {
		t.Errorf("computed %d horizons, want %d", computed, len(all.nodes))
	}
	if len(s.Needs) != 1 || s.Needs[0].Job != "tenant/999" {
		t.Errorf("needs %+v, want that of the Job that starts soon", s.Needs)
	}
}

// TestVainPodsTakeLimitedMemory verifies that the memory for unschedulable pods is bounded.
func TestVainPodsTakeLimitedMemory(t *testing.T) {
	l, all := park(t, 200, func(n *v1.Node) { // awake, just woken, with free capacity
		delete(n.Labels, v1alpha1.LabelPowerState)
		n.Spec.Taints = nil
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		n.Annotations = map[string]string{v1alpha1.AnnotationPower: `{"wake":"2026-06-01T05:59:00Z"}`}
	})
	for i := range 1000 {
		all.pod("tenant", fmt.Sprint("p", i), unschedulable)
	}
	for range 10 {
		l.snapshot(all, l.Clock())
	}
	if len(l.vain) > maxVain {
		t.Errorf("got %d entries, want at most %d", len(l.vain), maxVain)
	}
}

func waking(transitions []*transition) (all []string) {
	for _, t := range transitions {
		if t.want == sleep.Wake && t.state == sleep.Asleep {
			all = append(all, t.node.Name)
		}
	}
	return all
}

// TestATenantDoesNotWakeAllMachinesAtOnce verifies that a tenant that binds a pod to each machine cannot wake more
// of them than permitted, nor before the machine for another tenant's pod.
func TestATenantDoesNotWakeAllMachinesAtOnce(t *testing.T) {
	l, all := park(t, 1000, nil)
	for _, n := range all.nodes[:999] {
		all.pod("tenant", n.Name, func(p *v1.Pod) { p.Spec.NodeName = n.Name })
	}
	all.pod("other", "waits", func(p *v1.Pod) {
		unschedulable(p)
		p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("64")
	})
	woken := waking(l.decide(all, l.Clock()))
	if limit := l.Policy.WakesPerMinute; len(woken) != limit {
		t.Errorf("%d machines are woken in one round, want %d", len(woken), limit)
	}
	s := l.snapshot(all, l.Clock())
	plan := sleep.Decide(&s)
	if !slices.ContainsFunc(plan.Verdicts, func(v sleep.Verdict) bool {
		return v.Do == sleep.Wake && v.For == "other/waits"
	}) {
		t.Error("no machine is woken for the pending pod")
	}
}

// TestPodsThatCannotRunWakeNothing verifies that pods created with spec.nodeName that the kubelet would reject
// neither wake a machine nor use its capacity.
func TestPodsThatCannotRunWakeNothing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.Pod)
		wakes  int
	}{
		"it fits": {func(*v1.Pod) {}, 1},
		"it is larger than the machine": {func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("65")
		}, 0},
		"it claims to belong to a DaemonSet": {func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("60")
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
		}, 0},
	} {
		l, all := park(t, 1, nil)
		all.pod("tenant", "p", func(p *v1.Pod) { p.Spec.NodeName = "n0000"; c.change(p) })
		if woken := waking(l.decide(all, l.Clock())); len(woken) != c.wakes {
			t.Errorf("%s: %d machines are woken, want %d", name, len(woken), c.wakes)
		}
		if s := l.snapshot(all, l.Clock()); s.Machines[0].Capacity.MilliCPU != 64000 {
			t.Errorf("%s: capacity of the machine = %d mCPU", name, s.Machines[0].Capacity.MilliCPU)
		}
	}
}

// TestEveryWakeUpIsLimited verifies that the wake rate also applies to machines that may no longer sleep, to
// machines without a verdict, and to manual wakeups.
func TestEveryWakeUpIsLimited(t *testing.T) {
	for name, change := range map[string]func(*loop){
		"in shadow mode":  func(l *loop) { l.Mode = ModeShadow },
		"deciding panics": func(l *loop) { l.View = func() *kube.View { panic("planted") } },
	} {
		l, all := park(t, 100, nil)
		l.Policy.WakesPerMinute = 7
		all.nodes[99].Annotations = map[string]string{v1alpha1.AnnotationPower: `{"wake":"2026-06-01T05:59:30Z"}`}
		change(l)
		if woken := waking(l.decide(all, l.Clock())); len(woken) != 6 {
			t.Errorf("%s: %d machines are woken, want 7 within a minute, including the previous one", name, len(woken))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		_, all := park(t, 5, nil)
		client, orders, switches := fake.NewClientset(), &atomic.Int32{}, map[string]Switch{}
		for _, n := range all.nodes {
			if err := client.Tracker().Add(n); err != nil {
				t.Fatal(err)
			}
			switches[n.Name] = counter{orders: orders}
		}
		by := &Waker{
			Client: client, Switches: switches, Clock: time.Now, Say: func(string, string) {},
			Limit: WakeLimit(&sleep.Policy{WakesPerMinute: 2}),
		}
		began := time.Now()
		if _, err := by.pass(t.Context(), ""); err != nil || orders.Load() != 5 {
			t.Errorf("%d machines were ordered to start: %v", orders.Load(), err)
		}
		if took := time.Since(began); took != 2*time.Minute {
			t.Errorf("5 machines were ordered to start within %v, want 2 a minute", took)
		}
	})
}

// counter is a switch that counts wake orders. Its machine is always off.
type counter struct {
	Switch

	orders *atomic.Int32
}

func (c counter) State(context.Context) (bool, string, error) { return false, "", nil }

func (c counter) On(context.Context) error {
	c.orders.Add(1)
	return nil
}

// stuck is a switch with an On method that blocks until it is released, regardless of its context.
type stuck struct {
	Switch

	release chan struct{}
}

func (s stuck) On(context.Context) error {
	<-s.release
	return nil
}

// TestAStuckStepFailsTheProbe verifies that a blocked step fails the liveness probe until it returns, unlike a
// pause between rounds.
func TestAStuckStepFailsTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, all := park(t, 1, nil)
		all.pod("tenant", "p", unschedulable)
		l.list = func() *cluster { return all }
		release := make(chan struct{})
		l.Client, l.switches = fake.NewClientset(all.nodes[0]), map[string]Switch{"n0000": stuck{release: release}}
		l.Every = 24 * time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = l.run(l.Beats.Loop(ctx, Name), nil) }()
		check := func(when string, want int) {
			t.Helper()
			w := httptest.NewRecorder()
			l.Beats.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/healthz", nil))
			if w.Code != want {
				t.Errorf("%s: status %d, want %d", when, w.Code, want)
			}
		}
		bubble.Advance(daemon.MaxRound)
		check("at the limit", http.StatusOK)
		bubble.Advance(time.Second)
		check("stuck", http.StatusServiceUnavailable)
		close(release)
		synctest.Wait()
		check("after it went on", http.StatusOK)
		bubble.Advance(time.Hour)
		check("between two rounds", http.StatusOK)
		cancel()
	})
}
