package power

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// one returns a world with the given number of machines, and the leading replica.
func one(t *testing.T, machines int) (*world, *replica) {
	t.Helper()
	w := newWorld(1, machines)
	w.meanwhile, w.sound = w.pass, true
	w.lease = "replica"
	r := w.start("replica")
	r.list = func() *cluster {
		c := *w.seen(0)
		return &c
	}
	return w, r
}

// live runs a round of the replica every 5 s.
func (w *world) live(t *testing.T, r *replica, d time.Duration) {
	t.Helper()
	for end := w.now.Add(d); w.now.Before(end); w.pass(5 * time.Second) {
		w.renewed = w.now
		r.round(t.Context())
	}
	if len(w.wrong) > 0 {
		t.Fatal(strings.Join(w.wrong, "\n"))
	}
}

func (w *world) state(node string) sleep.State { return kube.PowerState(w.nodes[node]) }

// TestSleepAndWake covers the whole cycle of a machine: it stays awake until the break-even time of a boot, is
// tainted, shut down, and woken for a pod that fits nowhere else. Afterwards, only the annotation remains on its
// node.
func TestSleepAndWake(t *testing.T) {
	w, r := one(t, 1)
	w.live(t, r, 20*time.Second)
	if w.state("m0") != sleep.Awake {
		t.Fatal("the machine was put to sleep before the break-even time")
	}
	w.live(t, r, 20*time.Second)
	n := w.nodes["m0"]
	if w.state("m0") != sleep.Stopping || !isTainted(n) || n.Labels[excludeDisruption] != "true" || w.sleep != 0 {
		t.Fatalf("%s, %v, %d orders", w.state("m0"), n.Labels, w.sleep)
	}
	w.live(t, r, 3*time.Minute)
	if w.state("m0") != sleep.Asleep || w.boxes["m0"].on || len(remembered(w.nodes["m0"], w.now).Sleeps) != 1 {
		t.Fatalf("%s\n%s", w.state("m0"), strings.Join(w.log, "\n"))
	}
	w.addPod("big", "", 8, nil)
	w.addPod("other", "", 8, nil)
	w.live(t, r, 90*time.Second)
	n = w.nodes["m0"]
	if _, excluded := n.Labels[excludeDisruption]; w.state("m0") != sleep.Awake || isTainted(n) || excluded ||
		w.workOn("m0") == "" {
		t.Errorf("%s, %v, %v\n%s", w.state("m0"), n.Labels, n.Spec.Taints, strings.Join(w.log, "\n"))
	}
}

// TestForeignLabelStays verifies that an existing label is not changed.
func TestForeignLabelStays(t *testing.T) {
	w, r := one(t, 1)
	w.nodes["m0"].Labels[excludeDisruption] = "yes"
	w.live(t, r, 4*time.Minute)
	w.addPod("big", "", 8, nil)
	w.addPod("other", "", 8, nil)
	w.live(t, r, 90*time.Second)
	if w.wakes != 1 || w.nodes["m0"].Labels[excludeDisruption] != "yes" {
		t.Errorf("%d wakes, %v", w.wakes, w.nodes["m0"].Labels)
	}
}

// TestTakenBack verifies that a need or a pod cancels the shutdown before the order is sent.
func TestTakenBack(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"a pod was bound":        func(w *world) { w.addPod("p", "m0", 1, nil) },
		"a pod fits nowhere":     func(w *world) { w.addPod("p", "fixed", 8, nil); w.addPod("q", "", 1, nil) },
		"its taint was removed":  func(w *world) { w.written("m0", func(n *v1.Node) { n.Spec.Taints = nil }) },
		"its label was removed":  func(w *world) { w.written("m0", func(n *v1.Node) { delete(n.Labels, v1alpha1.LabelPowerState) }) },
		"it may sleep no longer": func(w *world) { w.written("m0", func(n *v1.Node) { delete(n.Labels, v1alpha1.LabelMaySleep) }) },
		"it leads elsewhere":     func(w *world) { w.boxes["m0"].uuid = "another" },
		"nothing answers":        func(w *world) { w.boxes["m0"].mood = refuses },
	} {
		t.Run(name, func(t *testing.T) {
			w, r := one(t, 1)
			w.live(t, r, 40*time.Second)
			if w.state("m0") != sleep.Stopping {
				t.Fatal(w.state("m0"))
			}
			change(w)
			w.pass(time.Second)
			w.live(t, r, 25*time.Second)
			if w.state("m0") != sleep.Awake || isTainted(w.nodes["m0"]) || w.sleep > 0 {
				t.Errorf("%s, %v, %d orders\n%s", w.state("m0"), w.nodes["m0"].Spec.Taints, w.sleep,
					strings.Join(w.log, "\n"))
			}
		})
	}
}

// TestKeep covers all reasons that keep a machine awake.
func TestKeep(t *testing.T) {
	label := func(key, value string) func(*world) {
		return func(w *world) { w.nodes["m0"].Labels[key] = value }
	}
	come := func(key, value string) func(*world) {
		return func(w *world) {
			w.addPod("daemon", "m0", 1, func(p *v1.Pod) {
				p.Labels = map[string]string{key: value}
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
			})
		}
	}
	static := func(change func(*v1.Pod)) func(*world) {
		return func(w *world) {
			w.addPod("static", "m0", 1, func(p *v1.Pod) {
				p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Controller: new(true)}}
				change(p)
			})
		}
	}
	type row struct {
		change func(*world)
		want   string
	}
	rows := map[string]row{
		"nothing":        {func(*world) {}, ""},
		"a daemon":       {come("app", "logs"), ""},
		"no label":       {label(v1alpha1.LabelMaySleep, "false"), "it does not have the label kubenergy.io/may-sleep"},
		"no machine":     {func(w *world) { w.boxes = map[string]*box{} }, "no machine is configured for it"},
		"another system": {func(w *world) { w.nodes["m0"].Status.NodeInfo.SystemUUID = "x" }, "its system UUID is not the configured one"},
		"kube-proxy": {static(func(p *v1.Pod) {
			p.Namespace, p.Labels = "kube-system", map[string]string{"k8s-app": "kube-proxy"}
		}), ""},
		"static pod": {static(func(*v1.Pod) {}), "it runs the static pod team/static"},
	}
	for _, m := range marks {
		rows[m.key] = row{label(strings.TrimSuffix(m.key, "/")+map[bool]string{true: "/x"}[strings.HasSuffix(m.key, "/")], ""), m.why}
	}
	for _, s := range stores {
		rows[s.key+"="+s.value] = row{come(s.key, s.value), s.why}
	}
	for name, c := range rows {
		w := newWorld(1, 1)
		c.change(w)
		w.remember()
		s := w.start("r").snapshot(w.seen(0), w.now)
		if got := s.Machines[1].Keep; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestVolumes verifies that a volume keeps a node awake only if no other node can access the volume.
func TestVolumes(t *testing.T) {
	w, r := one(t, 2)
	volume := func(key, value string) *v1.PersistentVolume {
		return &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "v"},
			Spec: v1.PersistentVolumeSpec{NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}},
				}}},
			}}},
		}
	}
	for _, n := range w.nodes {
		n.Labels["zone"] = "z"
	}
	c := *w.seen(0)
	c.volumes = []*v1.PersistentVolume{{}, volume("zone", "z"), volume(v1.LabelHostname, "m1")}
	s := r.snapshot(&c, w.now)
	if s.Machines[1].Keep != "" || s.Machines[2].Keep != "it is the only node that can access volume v" {
		t.Errorf("%q, %q", s.Machines[1].Keep, s.Machines[2].Keep)
	}
}

// TestShadow verifies that in shadow mode no machine is put to sleep, no management controller is queried, and
// sleeping machines are woken.
func TestShadow(t *testing.T) {
	w, r := one(t, 2)
	r.Mode = ModeShadow
	version := w.version
	w.live(t, r, 5*time.Minute)
	if w.version != version || w.sleep != 0 || len(w.log) != 2 || !strings.Contains(w.log[0], "m0 WouldSleep: not-needed") {
		t.Errorf("%d writes, %d orders, events\n%s", w.version-version, w.sleep, strings.Join(w.log, "\n"))
	}
	r.Mode = ModeEnforce
	w.live(t, r, 5*time.Minute)
	if w.state("m0") != sleep.Asleep {
		t.Fatal(w.state("m0"))
	}
	r.Mode = ModeShadow
	w.live(t, r, 90*time.Second)
	if w.state("m0") != sleep.Awake || w.state("m1") != sleep.Awake {
		t.Errorf("%s, %s in shadow mode", w.state("m0"), w.state("m1"))
	}
}

// TestPanicWakes verifies that a panic while deciding puts no machine to sleep and wakes all sleeping machines.
func TestPanicWakes(t *testing.T) {
	w, r := one(t, 1)
	w.live(t, r, 4*time.Minute)
	r.View = func() *kube.View { panic("planted") }
	w.live(t, r, 4*time.Minute)
	if w.wakes != 1 || w.sleep != 1 || w.state("m0") != sleep.Awake {
		t.Errorf("%d wakes, %d sleeps, %s", w.wakes, w.sleep, w.state("m0"))
	}
}

// TestPlanned verifies that a machine is awake when a held Job is released.
func TestPlanned(t *testing.T) {
	w, r := one(t, 1)
	w.live(t, r, 4*time.Minute)
	w.addPod("works", "fixed", 8, nil)
	at := w.now.Add(2 * time.Minute).Truncate(time.Second)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "j", Labels: map[string]string{v1alpha1.LabelHeld: "true"},
		Annotations: map[string]string{v1alpha1.AnnotationHeldUntil: at.Format(time.RFC3339)},
	}}
	job.Spec.Template.Spec.Containers = w.pods["works"].Spec.Containers
	r.list = func() *cluster {
		c := *w.seen(0)
		c.jobs = []*batchv1.Job{job}
		return &c
	}
	w.live(t, r, 60*time.Second)
	if w.state("m0") != sleep.Asleep {
		t.Error("the machine was woken too early")
	}
	w.live(t, r, time.Minute)
	if w.state("m0") != sleep.Awake || !w.boxes["m0"].ready.Before(at) {
		t.Errorf("%s\n%s", w.state("m0"), strings.Join(w.log, "\n"))
	}
}

// TestWaker verifies that the Waker wakes all machines without other components, and removes our labels and taints.
func TestWaker(t *testing.T) {
	w, r := one(t, 2)
	w.live(t, r, 4*time.Minute)
	if w.state("m0") != sleep.Asleep || w.state("m1") != sleep.Asleep {
		t.Fatal(w.state("m0"), w.state("m1"))
	}
	var woken []string
	by := &Waker{
		Client: r.Client, Switches: r.switches, Clock: r.Clock, Pause: time.Millisecond, Limit: WakeLimit(&r.Policy),
		Say: func(node, _ string) { woken = append(woken, node) },
	}
	wake := func(name string) (left, err error) { // until the machine is on
		for range 10 {
			if left, err = by.pass(t.Context(), name); left == nil && err == nil {
				break
			}
			w.pass(time.Second)
		}
		return left, err
	}
	if left, err := by.pass(t.Context(), "m1"); left == nil || err != nil || len(woken) > 0 {
		t.Fatal("a machine that is not on is considered awake", left, err)
	}
	if left, err := wake("m1"); left != nil || err != nil {
		t.Fatal(left, err)
	}
	w.boxes["m0"].mood = refuses
	if left, err := wake(""); left == nil || err != nil || w.state("m0") != sleep.Asleep {
		t.Error("a rejected order is considered successful", left, err)
	}
	w.boxes["m0"].mood = good
	if left, err := wake(""); left != nil || err != nil {
		t.Fatal(left, err)
	}
	w.pass(time.Minute)
	for _, name := range w.names {
		if n := w.nodes[name]; isTainted(n) || w.state(name) != sleep.Awake || !w.boxes[name].on || n.Labels[excludeDisruption] != "" {
			t.Errorf("%s: %v, %v, on: %v", name, n.Labels, n.Spec.Taints, w.boxes[name].on)
		}
	}
	if diff := cmp.Diff([]string{"m1", "m0"}, woken); diff != "" {
		t.Error(diff)
	}
}
