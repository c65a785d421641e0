package power

import (
	"cmp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// cluster contains the objects of the API server.
type cluster struct {
	nodes   []*v1.Node
	pods    []*v1.Pod
	jobs    []*batchv1.Job
	volumes []*v1.PersistentVolume
}

const (
	maxNeeds  = 256 // maximum number of needs per round
	usualTime = time.Hour
	maxVain   = 1 << 16 // maximum number of entries in loop.vain
)

// unknown is the profile of a machine without a profile. It assumes a boot time of five minutes; its power values
// have no meaning.
var unknown = energy.Profile{Name: "unknown", Idle: 1, Max: 1, BootSeconds: 300}

// onNode summarizes the pods on a node.
type onNode struct {
	come  sched.Resources // requests of pods that run on every node
	used  sched.Resources // requests of all other pods
	jobs  int
	keep  string
	owner string    // alphabetically first namespace of the other pods
	hand  []*v1.Pod // pods created with spec.nodeName, bypassing the scheduler
}

// add adds a pod to the summary.
func (has *onNode) add(p *v1.Pod) {
	if asks := policy.PodRequest(p); !policy.KeepsAwake(p) {
		has.come = has.come.Add(asks)
	} else if has.used, has.jobs = has.used.Add(asks), has.jobs+1; has.owner == "" || p.Namespace < has.owner {
		has.owner = p.Namespace
	}
}

// observation is a state, identified by its start time, and the time when this replica first saw it.
type observation struct{ of, since time.Time }

// vain identifies a pod that remains pending although an awake machine has sufficient capacity.
type vain struct {
	pod  types.UID
	node string
}

// sighted is the period in which this was observed.
type sighted struct{ first, last time.Time }

// snapshot collects all inputs of a decision. Machines that cause a panic are omitted.
func (l *loop) snapshot(c *cluster, now time.Time) sleep.Snapshot {
	s := sleep.Snapshot{Now: now, Policy: l.Policy}
	var nodes []*v1.Node // nodes of the machines
	view, held, on := l.View(), holders(c.nodes, c.volumes), map[string]*onNode{}
	var work []asker
	for _, p := range c.pods {
		if !panics.Survive(l.Log, "power", p.Name, func() { s.Largest = l.count(p, on, s.Largest, now) }) {
			on[p.Spec.NodeName] = &onNode{keep: "it runs " + p.Namespace + "/" + p.Name + ", which is invalid"}
			continue
		}
		if p.Spec.NodeName == "" && p.DeletionTimestamp == nil &&
			policy.Scheduled(p).Reason == v1.PodReasonUnschedulable && policy.KeepsAwake(p) {
			work = append(work, asker{of: p, spec: &p.Spec, pods: 1})
		}
	}
	slices.SortFunc(c.nodes, func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range c.nodes {
		state, mem := kube.PowerState(n), remembered(n, now)
		if state == sleep.Awake && !isReady(n) {
			delete(l.empty, n.Name)
			continue
		}
		has := cmp.Or(on[n.Name], &onNode{})
		has.keep = cmp.Or(has.keep, held[n.Name])
		panics.Survive(l.Log, "power", n.Name, func() {
			s.Machines = append(s.Machines, l.machine(view, n, state, &mem, has, now))
			nodes = append(nodes, n)
		})
	}
	horizon := time.Duration(0) // maximum of all machines
	for i := range s.Machines {
		horizon = max(horizon, l.horizon(&s.Machines[i], &l.Policy))
	}
	for _, j := range c.jobs {
		work = appendPlanned(work, j, now, now.Add(horizon))
	}
	s.Needs = l.needs(work, nodes, s.Machines, now)
	return s
}

// count adds a pod to its node, and returns the maximum requests of pods of the last hour.
func (l *loop) count(p *v1.Pod, on map[string]*onNode, largest sched.Resources, now time.Time) sched.Resources {
	ended := hasEnded(p)
	recent := now.Sub(p.CreationTimestamp.Time) < l.limits.day/24
	// kube-scheduler nominates a node before it provisions volumes for a pod, which may take minutes.
	node := cmp.Or(p.Spec.NodeName, p.Status.NominatedNodeName)
	if node == "" || ended && !recent {
		return largest
	}
	if recent && policy.KeepsAwake(p) {
		largest = largest.Max(policy.PodRequest(p))
	}
	if ended {
		return largest
	}
	has := on[node]
	if has == nil {
		has = &onNode{}
		on[node] = has
	}
	has.keep = cmp.Or(has.keep, keepsFor(p))
	// The condition is set by the API server when a scheduler binds a pod, and by the kubelet when it starts one.
	if p.Spec.NodeName != "" && policy.Scheduled(p).Status != v1.ConditionTrue {
		has.hand = append(has.hand, p)
	} else {
		has.add(p)
	}
	return largest
}

// machine converts a node to a machine of package sleep.
func (l *loop) machine(view *kube.View, n *v1.Node, state sleep.State, mem *memory, has *onNode, now time.Time,
) sleep.Machine {
	off := state == sleep.Asleep || state == sleep.Booting || state == sleep.Stopping && !mem.Off.IsZero()
	byHand := off && has.jobs == 0
	for _, p := range has.hand { // a kubelet rejects pods that do not fit
		if !off || policy.KeepsAwake(p) && policy.PodRequest(p).Within(kube.Allocatable(n)) {
			has.add(p)
		}
	}
	capacity := kube.Allocatable(n).Sub(has.come)
	node, known := view.Node(n, capacity, capacity.Sub(has.used), has.jobs)
	m := sleep.Machine{
		Name: n.Name, Zone: n.Labels[v1.LabelTopologyZone], Labels: n.Labels, Capacity: capacity, Free: node.Free,
		Jobs: has.jobs, Profile: cmp.Or(node.Profile, &unknown), Speed: node.Speed, PUE: node.PUE,
		State: state, Since: mem.Since, Sleeps: len(mem.recent(now, l.limits.day)), Failed: mem.Failed,
		Closed: closed(n), Woken: mem.Wake, WokenFor: mem.For, Owner: has.owner, ByHand: byHand && has.jobs > 0,
	}
	if state != sleep.Awake && l.switches[n.Name] == nil { // we cannot wake it
		m.Capacity, m.Free = sched.Resources{}, sched.Resources{}
	}
	switch {
	case state == sleep.Stopping && mem.Off.IsZero():
		// Whether it should sleep is decided again, as if it were awake and had been empty for a long time.
		m.State, m.Since = sleep.Awake, time.Time{}
	case state == sleep.Booting:
		// The annotation may have been written by another replica with a clock that is ahead.
		elapsed := min(now.Sub(mem.Wake), now.Sub(l.firstSeen(n.Name, mem.Since, now)))
		if m.Since, m.Woken = now.Add(-elapsed), now.Add(-elapsed); elapsed > m.BootTime()+l.limits.late {
			m.Failed++
		}
	case state == sleep.Awake:
		if _, ok := l.empty[n.Name]; m.Jobs > 0 || !ok {
			l.empty[n.Name] = now
		}
		if m.Since = l.firstSeen(n.Name, mem.Since, now); m.Since.Before(l.empty[n.Name]) {
			m.Since = l.empty[n.Name]
		}
	}
	m.Keep = cmp.Or(l.refuses(n, known && node.Profile.BootSeconds > 0, now), has.keep)
	return m
}

const keptForPlanned = "planned work is about to start on it"

// refuses returns the reason why a machine must not sleep according to its node and configuration, or "".
func (l *loop) refuses(n *v1.Node, boots bool, now time.Time) string {
	doubt := l.doubts[n.Name]
	switch why := keeps(n); {
	case why != "":
		return why
	case l.switches[n.Name] == nil:
		return "no machine is configured for it"
	case !strings.EqualFold(n.Status.NodeInfo.SystemUUID, l.uuids[n.Name]):
		return "its system UUID is not the configured one"
	case !boots:
		return "its power profile has no bootSeconds"
	case now.Before(doubt.until):
		return doubt.why
	case now.Sub(l.kept[n.Name]) < l.limits.schedule:
		return keptForPlanned
	}
	return ""
}

// closed reports whether a node does not accept arbitrary pods.
func closed(n *v1.Node) bool {
	return n.Spec.Unschedulable || n.Labels[v1alpha1.LabelMaySleep] != "true" &&
		slices.ContainsFunc(v1alpha1.WithoutSleep(n.Spec.Taints), func(t v1.Taint) bool {
			return t.Effect != v1.TaintEffectPreferNoSchedule
		})
}

func isReady(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}

func isTainted(n *v1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == v1alpha1.TaintAsleep })
}
