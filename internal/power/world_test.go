package power

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// server boots in 40 s, and breaks even after 30 s of sleep.
var server = &energy.Profile{Name: "server", Idle: 50, Max: 200, Sleep: 10, WakeUp: 1200, BootSeconds: 40}

const (
	bootTime  = 40 * time.Second
	breakEven = 30 * time.Second
)

// mood is the behavior of a management controller.
type mood int

const (
	good    mood = iota
	refuses      // rejects every request
	liesOff      // always reports that the machine is off
	deaf         // accepts orders without executing them
	slow         // responds after the client's timeout, but executes orders
)

// box is a machine and its management controller.
type box struct {
	name, uuid string
	mood       mood
	graceful   bool // its kubelet reports the shutdown
	on         bool
	kubelet    bool
	quiet      time.Time // time since which its kubelet is silent
	ready      time.Time // time of the last successful boot
	booted     time.Time // end of the current boot; zero if none
	fails      bool      // the current boot fails and the machine halts
	stops      time.Time // end of the current shutdown; zero if none
	offs       []time.Time
	sinned     time.Time // time when it last ignored an order
}

// world simulates a cluster and its machines.
type world struct {
	sound    bool // boots never fail randomly
	seed     uint64
	rng      *rand.Rand
	begin    time.Time
	now      time.Time
	version  int
	away     bool // the API server is unavailable
	nodes    map[string]*v1.Node
	pods     map[string]*v1.Pod
	ends     map[string]time.Time // of running pods
	boxes    map[string]*box
	names    []string          // sorted names of the boxes
	leads    map[string]string // box behind the management address of each node
	history  []*cluster        // last seconds, newest last
	bindings []binding         // decided by the scheduler but not yet visible
	machines []Machine
	policy   sleep.Policy
	lease    string // holder of the Lease
	renewed  time.Time

	meanwhile func(time.Duration) // runs other replicas while one replica waits

	failures     []time.Time // start times of failed boots
	booting      []time.Time // times when nodes were marked as booting
	wakes, sleep int
	wrong        []string
	log          []string
}

type binding struct {
	at        time.Time
	pod, node string
}

func (w *world) fail(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf("%v: ", w.now.Sub(w.begin))+fmt.Sprintf(format, args...))
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%v: ", w.now.Sub(w.begin))+fmt.Sprintf(format, args...))
}

func (w *world) within(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)+1))
}

func newWorld(seed uint64, machines int) *world {
	w := &world{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 20)), nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{},
		ends: map[string]time.Time{}, boxes: map[string]*box{}, leads: map[string]string{},
		policy: sleep.Policy{MinAwake: 1, MaxCycles: 4, Lead: 5 * time.Second},
	}
	if seed%2 == 0 {
		w.policy.WakesPerMinute = 3
	}
	w.begin = time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)
	w.now = w.begin
	w.addNode("fixed", "", false)
	for i := range machines {
		name, uuid := fmt.Sprintf("m%d", i), fmt.Sprintf("0000000%d-aaaa-bbbb-cccc-00000000000%d", i, i)
		w.addNode(name, uuid, true)
		w.nodes[name].Labels["class"] = []string{"a", "b"}[i%2]
		w.boxes[name] = &box{name: name, uuid: uuid, on: true, kubelet: true, graceful: w.rng.IntN(2) == 0}
		w.leads[name], w.names = name, append(w.names, name)
		w.machines = append(w.machines, Machine{
			Node: name, UUID: strings.ToUpper(uuid), Kind: KindWebhook, URL: "https://bmc.example.org/" + name,
		})
	}
	w.remember()
	return w
}

func (w *world) addNode(name, uuid string, sleeps bool) {
	w.version++
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, ResourceVersion: strconv.Itoa(w.version), Labels: map[string]string{v1.LabelHostname: name},
		},
		Status: v1.NodeStatus{
			Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("32Gi")},
			NodeInfo:    v1.NodeSystemInfo{SystemUUID: uuid},
			Conditions:  []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
	if sleeps {
		n.Labels[v1alpha1.LabelMaySleep] = "true"
	}
	w.nodes[name] = n
}

func (w *world) addPod(name, node string, cores int64, change func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(w.now),
		},
		Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(cores, resource.DecimalSI)},
		}}}},
	}
	if change != nil {
		change(p)
	}
	w.pods[name] = p
	return p
}

// written replaces a node with a modified copy, as the API server does.
func (w *world) written(name string, change func(*v1.Node)) *v1.Node {
	n := w.nodes[name].DeepCopy()
	change(n)
	w.version++
	n.ResourceVersion = strconv.Itoa(w.version)
	w.nodes[name] = n
	return n
}

func (w *world) changePod(name string, change func(*v1.Pod)) {
	p := w.pods[name].DeepCopy()
	change(p)
	w.pods[name] = p
}

// remember records the current objects for delayed watches.
func (w *world) remember() {
	c := &cluster{}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		c.nodes = append(c.nodes, w.nodes[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		c.pods = append(c.pods, w.pods[name])
	}
	w.history = append(w.history, c)
	if len(w.history) > 8 {
		w.history = w.history[1:]
	}
}

// seen returns the cluster as of some seconds ago.
func (w *world) seen(ago int) *cluster { return w.history[max(0, len(w.history)-1-ago)] }

// pass advances the clock second by second.
func (w *world) pass(d time.Duration) {
	for until := w.now.Add(d); w.now.Before(until); {
		before := w.now
		w.now = w.now.Add(min(until.Sub(w.now), time.Second))
		if w.now.Unix() == before.Unix() {
			continue
		}
		for _, name := range w.names {
			w.run(w.boxes[name])
		}
		if w.away {
			continue
		}
		for _, name := range w.names {
			w.report(w.boxes[name])
		}
		w.schedule()
		w.remember()
	}
}

// run updates the state of a machine.
func (w *world) run(b *box) {
	if !b.stops.IsZero() && !w.now.Before(b.stops) {
		if on := w.workOn(b.name); on != "" {
			w.fail("%s was shut down while running %s", b.name, on)
		}
		if b.kubelet {
			b.quiet = w.now
		}
		b.on, b.kubelet, b.stops, b.booted = false, false, time.Time{}, time.Time{}
	}
	if !b.booted.IsZero() && !w.now.Before(b.booted) {
		b.booted = time.Time{}
		if b.fails {
			b.sinned = w.now
		}
		if b.on, b.kubelet = !b.fails, !b.fails; b.kubelet {
			b.ready = w.now
		}
		b.fails = false
	}
}

// report updates the Ready condition of a node, as its kubelet and the node controller do.
func (w *world) report(b *box) {
	now, current := v1.ConditionTrue, w.nodes[b.name].Status.Conditions[0].Status
	switch {
	case b.kubelet && !b.stops.IsZero() && b.graceful:
		now = v1.ConditionFalse
	case b.kubelet:
	case current == v1.ConditionTrue && w.now.Sub(b.quiet) < 40*time.Second:
	default:
		now = v1.ConditionUnknown
	}
	if now != current {
		w.written(b.name, func(n *v1.Node) { n.Status.Conditions[0].Status = now })
	}
}

func (w *world) workOn(node string) string {
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		if p := w.pods[name]; p.Spec.NodeName == node && works(p) {
			return name
		}
	}
	return ""
}

// room returns the number of free cores on a node according to the scheduler.
func (w *world) room(node string) int64 {
	free := int64(8000)
	for _, p := range w.pods {
		if p.Spec.NodeName == node && p.Status.Phase != v1.PodSucceeded {
			free -= policy.PodRequest(p).MilliCPU
		}
	}
	for _, b := range w.bindings {
		if b.node == node && w.pods[b.pod] != nil && w.pods[b.pod].Spec.NodeName == "" {
			free -= policy.PodRequest(w.pods[b.pod]).MilliCPU
		}
	}
	return free
}

// takes reports whether a node admits a pod.
func takes(n *v1.Node, p *v1.Pod) bool {
	admission := kube.AdmissionOf(p)
	return isReady(n) && admission.Admits(n)
}

// schedule ends pods, binds pods, and selects nodes for pending pods from a delayed cache.
func (w *world) schedule() {
	for _, name := range slices.Sorted(maps.Keys(w.ends)) {
		if !w.now.Before(w.ends[name]) {
			w.changePod(name, func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
			delete(w.ends, name)
		}
	}
	w.bindings = slices.DeleteFunc(w.bindings, func(b binding) bool {
		if w.now.Before(b.at) {
			return false
		}
		w.changePod(b.pod, func(p *v1.Pod) { p.Spec.NodeName, p.Status.Conditions = b.node, nil })
		w.ends[b.pod] = w.now.Add(w.within(20*time.Second, 150*time.Second))
		return true
	})
	known := w.seen(w.rng.IntN(5)).nodes
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		p := w.pods[name]
		if p.Spec.NodeName != "" || slices.ContainsFunc(w.bindings, func(b binding) bool { return b.pod == name }) {
			continue
		}
		to := ""
		for _, n := range known {
			if takes(n, p) && w.room(n.Name) >= policy.PodRequest(p).MilliCPU {
				to = n.Name
			}
		}
		if to != "" {
			w.bindings = append(w.bindings, binding{w.now.Add(w.within(0, 4*time.Second)), name, to})
		} else if len(p.Status.Conditions) == 0 {
			w.changePod(name, func(p *v1.Pod) {
				p.Status.Conditions = []v1.PodCondition{{
					Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
				}}
			})
		}
	}
}

// replica is one process of kubenergy-power.
type replica struct {
	*loop

	world *world
	name  string
	next  time.Time // time of the next round
	dies  int       // number of calls until it dies; 0 for never
	after bool      // the last call is executed
	dead  bool
	busy  bool      // a round is running
	stale *cluster  // last state received while its watches are stalled
	all   bool      // watches of nodes are stalled too
	until time.Time // end of the stall
	fake  *fake.Clientset
}

var errAway = errors.New("connection refused")

// call simulates any remote call of a replica, which takes time and may be its last one.
func (r *replica) call() (do, notify bool) {
	if r.dead {
		return false, false
	}
	r.world.pass(r.world.within(0, 300*time.Millisecond))
	if r.dies > 0 {
		if r.dies--; r.dies == 0 {
			r.dead = true
			r.world.note("%s dies", r.name)
			return r.after, false
		}
	}
	return true, true
}

func (w *world) start(name string) *replica {
	client := &fake.Clientset{}
	r := &replica{world: w, name: name, next: w.now, fake: client}
	client.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		do, notify := r.call()
		if !do || w.away {
			return true, nil, errAway
		}
		o, err := w.answer(a)
		if !notify {
			return true, nil, errAway
		}
		return true, o, err
	})
	switches := map[string]Switch{}
	for name := range w.boxes {
		switches[name] = &control{r: r, node: name}
	}
	view, err := kube.NewView(nil, []*energy.Profile{server}, server.Name)
	if err != nil {
		panic(err)
	}
	r.loop = newLoop(Options{
		Client: client, View: func() *kube.View { return view }, Machines: w.machines, Policy: w.policy,
		Mode: ModeEnforce, Clock: func() time.Time { return w.now }, Log: slog.New(slog.DiscardHandler),
	}, switches)
	r.abreast, r.limits.day, r.limits.stops = 1, 40*time.Minute, 3*time.Minute
	r.leads = func() bool { return !r.dead && w.lease == r.name && w.now.Sub(w.renewed) < 10*time.Second }
	r.list = func() *cluster {
		c := *w.seen(w.rng.IntN(3))
		if r.stale != nil {
			c.pods = r.stale.pods
			if r.all {
				c = *r.stale
			}
		}
		c.nodes = slices.Clone(c.nodes)
		return &c
	}
	r.event = func(n *v1.Node, _, reason, note string) { w.note("%s: %s %s: %s", r.name, n.Name, reason, note) }
	return r
}

// answer is the response of the API server.
func (w *world) answer(a clienttesting.Action) (runtime.Object, error) {
	switch a := a.(type) {
	case clienttesting.PatchAction:
		return w.patch(a.GetName(), a.GetPatch())
	case clienttesting.GetAction:
		return w.nodes[a.GetName()].DeepCopy(), nil
	case clienttesting.ListAction:
		if a.GetResource().Resource == "nodes" {
			all := &v1.NodeList{}
			for _, n := range w.seen(0).nodes {
				all.Items = append(all.Items, *w.nodes[n.Name])
			}
			return all, nil
		}
		node, _ := a.GetListRestrictions().Fields.RequiresExactMatch("spec.nodeName")
		all := &v1.PodList{}
		for _, p := range w.pods {
			if p.Spec.NodeName == node {
				all.Items = append(all.Items, *p)
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("unexpected action: %v", a)
}

// patch applies a merge patch with known fields.
func (w *world) patch(name string, text []byte) (runtime.Object, error) {
	var patch struct {
		Metadata struct {
			ResourceVersion string             `json:"resourceVersion"`
			Labels          map[string]*string `json:"labels"`
			Annotations     map[string]string  `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			Taints []v1.Taint `json:"taints"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(text, &patch); err != nil {
		return nil, err
	}
	if n := w.nodes[name]; n.ResourceVersion != patch.Metadata.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, name, errors.New("it has changed"))
	}
	if state := patch.Metadata.Labels[v1alpha1.LabelPowerState]; state != nil && *state == string(sleep.Booting) {
		w.boots()
	}
	return w.written(name, func(n *v1.Node) {
		for key, value := range patch.Metadata.Labels {
			if delete(n.Labels, key); value != nil {
				n.Labels[key] = *value
			}
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		maps.Copy(n.Annotations, patch.Metadata.Annotations)
		n.Spec.Taints = patch.Spec.Taints
	}), nil
}

// boots verifies the limit of wake orders. Two replicas together may exceed it because of delayed watches.
func (w *world) boots() {
	w.booting = slices.DeleteFunc(append(w.booting, w.now), func(at time.Time) bool {
		return w.now.Sub(at) >= time.Minute-usual.call
	})
	if limit := w.policy.WakesPerMinute; limit > 0 && len(w.booting) > 2*limit {
		w.fail("%d machines were ordered to start within a minute, want at most %d per replica", len(w.booting), limit)
	}
}

// control is the switch of a node from the perspective of a replica.
type control struct {
	r     *replica
	node  string
	spent context.Context // context of a step that a slow response has exhausted
}

// reach returns the machine behind the address, which may be the wrong one.
func (c *control) reach(ctx context.Context) (b *box, notify error) {
	if c.spent == ctx {
		return nil, context.DeadlineExceeded
	}
	do, answers := c.r.call()
	if !do {
		return nil, errAway
	}
	b = c.r.world.boxes[c.r.world.leads[c.node]]
	switch {
	case b.mood == refuses:
		return nil, &dial.Error{Reason: dial.ReasonHTTP, Status: http.StatusForbidden, Err: errors.New("forbidden")}
	case b.mood == slow:
		c.spent = ctx
		c.r.world.meanwhile(usual.call)
		notify = context.DeadlineExceeded
	case !answers:
		notify = errAway
	}
	return b, notify
}

func (c *control) State(ctx context.Context) (on bool, uuid string, err error) {
	b, err := c.reach(ctx)
	if err != nil {
		return false, "", err
	}
	return b.on && b.mood != liesOff, b.uuid, nil
}

func (c *control) Off(ctx context.Context) error {
	b, notify := c.reach(ctx)
	if b == nil || b.mood == deaf {
		return notify
	}
	w := c.r.world
	w.sleep++
	if b.name != c.node {
		w.fail("%s was shut down instead of %s", b.name, c.node)
	}
	if on := w.workOn(b.name); on != "" {
		w.fail("%s was ordered to shut down while running %s", b.name, on)
	}
	if w.now.Sub(b.ready) < breakEven && !b.ready.IsZero() {
		w.fail("%s was ordered to shut down %v after its boot", b.name, w.now.Sub(b.ready))
	}
	b.offs = append(b.offs, w.now)
	if len(b.offs) > w.policy.MaxCycles {
		w.fail("%s was ordered to shut down %d times", b.name, len(b.offs))
	}
	if b.on && b.stops.IsZero() {
		b.stops = w.now.Add(w.within(2*time.Second, 90*time.Second))
	}
	return notify
}

func (c *control) On(ctx context.Context) error {
	b, notify := c.reach(ctx)
	if b == nil || b.mood == deaf || b.on {
		return notify
	}
	w := c.r.world
	w.wakes++
	b.on, b.booted, b.fails = true, w.now.Add(bootTime), w.rng.IntN(12) == 0 && !w.sound
	if b.fails {
		w.failures = append(w.failures, w.now)
	}
	return notify
}
