package power

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/sched/sleep"
)

// cluster is what is known of the API server's objects.
type cluster struct {
	nodes   []*v1.Node
	pods    []*v1.Pod
	jobs    []*batchv1.Job
	volumes []*v1.PersistentVolume
}

const (
	mostNeeds  = 256  // pods that machines are looked for at once
	mostLooked = 4096 // pods that wait and are looked at in one round
	usualTime  = time.Hour
)

// unknown is the profile of a machine of which none is known: it boots in five minutes, and what it draws says nothing.
var unknown = energy.Profile{Name: "unknown", Idle: 1, Max: 1, BootSeconds: 300}

// onNode is what is on a node.
type onNode struct {
	come sched.Resources // of pods that come with the node
	used sched.Resources // of the others
	jobs int
	keep string
}

// sight is since when a replica sees something.
type sight struct{ of, since time.Time }

// vain is a pod that goes on waiting although a machine is awake and has room.
type vain struct {
	pod  types.UID
	node string
}

// sighted is from when until when that was seen.
type sighted struct{ first, last time.Time }

// snapshot collects all that a decision depends on, and returns the nodes of its machines.
func (l *loop) snapshot(c *cluster, now time.Time) (s sleep.Snapshot, nodes []*v1.Node) {
	s = sleep.Snapshot{Now: now, Policy: l.Policy}
	view, held, on := l.View(), holders(c.nodes, c.volumes), map[string]*onNode{}
	var waiting []*v1.Pod
	for _, p := range c.pods {
		s.Largest = l.count(p, on, s.Largest, now)
		if p.Spec.NodeName == "" && p.DeletionTimestamp == nil &&
			policy.Scheduled(p).Reason == v1.PodReasonUnschedulable && policy.KeepsAwake(p) {
			waiting = append(waiting, p)
		}
	}
	slices.SortFunc(c.nodes, func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range c.nodes {
		state, mem := stateOf(n), remembered(n)
		if state == sleep.Awake && !isReady(n) {
			delete(l.empty, n.Name)
			continue
		}
		has := cmp.Or(on[n.Name], &onNode{})
		if volume := held[n.Name]; volume != "" && has.keep == "" {
			has.keep = "it alone reaches the volume " + volume
		}
		s.Machines = append(s.Machines, l.machine(view, n, state, &mem, has, now))
		nodes = append(nodes, n)
	}
	s.Needs = l.waiting(waiting, nodes, s.Machines, now)
	for _, j := range c.jobs {
		s.Needs = append(s.Needs, l.planned(j, nodes, s.Machines, now, mostNeeds-len(s.Needs))...)
	}
	return s, nodes
}

// count counts a pod where it is, and returns the most that pods of the last hour ask for.
func (l *loop) count(p *v1.Pod, on map[string]*onNode, largest sched.Resources, now time.Time) sched.Resources {
	ended := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	stays, recent := policy.KeepsAwake(p), now.Sub(p.CreationTimestamp.Time) < l.limits.day/24
	if ended && !recent {
		return largest
	}
	asks := policy.PodRequest(p)
	// kube-scheduler nominates a node before it makes volumes for a pod there, which may take minutes.
	node := cmp.Or(p.Spec.NodeName, p.Status.NominatedNodeName)
	if node == "" {
		return largest
	}
	if recent && stays {
		largest = largest.Max(asks)
	}
	if ended {
		return largest
	}
	has := on[node]
	if has == nil {
		has = &onNode{}
		on[node] = has
	}
	if has.keep = cmp.Or(has.keep, keepsFor(p)); stays {
		has.used, has.jobs = has.used.Add(asks), has.jobs+1
	} else {
		has.come = has.come.Add(asks)
	}
	return largest
}

// machine returns a node as the policy sees it.
func (l *loop) machine(view *kube.View, n *v1.Node, state sleep.State, mem *memory, has *onNode, now time.Time,
) sleep.Machine {
	capacity := kube.Allocatable(n).Sub(has.come)
	node, known := view.Node(n, capacity, capacity.Sub(has.used), has.jobs)
	m := sleep.Machine{
		Name: n.Name, Zone: n.Labels[v1.LabelTopologyZone], Labels: n.Labels, Capacity: capacity, Free: node.Free,
		Jobs: has.jobs, Profile: node.Profile, Speed: node.Speed, PUE: node.PUE, State: state, Since: mem.Since,
		Failed: mem.Failed, Closed: closed(n),
	}
	if state != sleep.Awake && l.switches[n.Name] == nil { // nothing of ours can wake it
		m.Capacity, m.Free = sched.Resources{}, sched.Resources{}
	}
	if m.Profile == nil {
		m.Profile = &unknown
	}
	for _, at := range mem.Sleeps {
		if now.Sub(at) < l.limits.day {
			m.Sleeps++
		}
	}
	switch {
	case state == sleep.Stopping && mem.Off.IsZero():
		// It is decided again whether it is to sleep, as if it were still awake and had been empty for long.
		m.State, m.Since = sleep.Awake, time.Time{}
	case state == sleep.Booting:
		// Another replica may have written it, whose clock is ahead.
		elapsed := min(now.Sub(mem.Wake), now.Sub(l.sight(n.Name, mem.Since, now)))
		if m.Since = now.Add(-elapsed); elapsed > m.BootTime()+l.limits.late {
			m.Failed++
		}
	case state == sleep.Awake:
		if _, ok := l.empty[n.Name]; m.Jobs > 0 || !ok {
			l.empty[n.Name] = now
		}
		if m.Since = l.sight(n.Name, mem.Since, now); m.Since.Before(l.empty[n.Name]) {
			m.Since = l.empty[n.Name]
		}
	}
	m.Keep = cmp.Or(l.refuses(n, known && node.Profile.BootSeconds > 0, now), has.keep)
	return m
}

const keptForPlanned = "work that it was kept for may come any moment"

// refuses returns why a machine must not sleep, by its node and what is known of it.
func (l *loop) refuses(n *v1.Node, boots bool, now time.Time) string {
	doubt := l.doubts[n.Name]
	switch why := keeps(n); {
	case why != "":
		return why
	case l.switches[n.Name] == nil:
		return "the cluster's configuration binds no machine to it"
	case !strings.EqualFold(n.Status.NodeInfo.SystemUUID, l.uuids[n.Name]):
		return "its system UUID is not the one that the cluster's configuration has"
	case !boots:
		return "its power profile has no bootSeconds"
	case now.Before(doubt.until):
		return doubt.why
	case now.Sub(l.kept[n.Name]) < l.limits.schedule:
		return keptForPlanned
	}
	return ""
}

// waiting returns what pods need that kube-scheduler found no node for.
func (l *loop) waiting(pods []*v1.Pod, nodes []*v1.Node, machines []sleep.Machine, now time.Time) (needs []sleep.Need) {
	maps.DeleteFunc(l.vain, func(_ vain, saw sighted) bool { return now.Sub(saw.last) >= usualTime })
	for _, p := range inTurn(pods) {
		needs = append(needs, need(p, p, time.Time{}, nodes, func(i int) bool {
			return !l.isVain(p, &machines[i], nodes[i], now) && l.mayHave(&machines[i], nodes[i], now)
		})...)
		if len(needs) == mostNeeds {
			break
		}
	}
	return needs
}

// inTurn returns pods by age, one of each namespace after the other, and not more than can be looked at.
func inTurn(pods []*v1.Pod) []*v1.Pod {
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name))
	})
	rank, of := map[*v1.Pod]int{}, map[string]int{}
	for _, p := range pods {
		rank[p] = of[p.Namespace]
		of[p.Namespace]++
	}
	slices.SortStableFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(rank[a], rank[b]) })
	return pods[:min(len(pods), mostLooked)]
}

// isVain reports whether kube-scheduler let a pod wait beside a machine that had been woken and had room: it knows why,
// as of a volume or of pods that must be apart. That has to be seen for a while: another pod may be on its way there.
// The machine is tried again after an hour.
func (l *loop) isVain(p *v1.Pod, m *sleep.Machine, n *v1.Node, now time.Time) bool {
	key := vain{p.UID, n.Name}
	saw := l.vain[key]
	if stateOf(n) == sleep.Awake && now.Sub(remembered(n).Wake) < usualTime && policy.PodRequest(p).Within(m.Free) {
		if now.Sub(saw.last) > l.limits.schedule {
			saw.first = now
		}
		saw.last = now
		l.vain[key] = saw
	}
	return saw.last.Sub(saw.first) >= l.limits.schedule*2/3
}

// closed reports whether work of all kinds cannot go to a node.
func closed(n *v1.Node) bool {
	return n.Spec.Unschedulable || n.Labels[v1alpha1.LabelMaySleep] != "true" &&
		slices.ContainsFunc(v1alpha1.WithoutSleep(n.Spec.Taints), func(t v1.Taint) bool {
			return t.Effect != v1.TaintEffectPreferNoSchedule
		})
}

// need returns what a pod of an object needs at an instant: one of those machines that it may have and run on once they
// are awake. There is no such need where there are none.
func need(of metav1.Object, p *v1.Pod, at time.Time, nodes []*v1.Node, may func(i int) bool) []sleep.Need {
	n := sleep.Need{
		Job: of.GetNamespace() + "/" + of.GetName(), At: at, Request: policy.PodRequest(p), Duration: usualTime,
	}
	admission := kube.AdmissionOf(p)
	for i := range nodes {
		if may(i) && admission.Admits(bare(nodes[i])) {
			n.Machines = append(n.Machines, nodes[i].Name)
		}
	}
	if n.Machines == nil {
		return nil
	}
	return []sleep.Need{n}
}

// mayHave reports whether a pod that waits may fit on a machine: kube-scheduler has looked at those that are awake, and
// not found it.
func (l *loop) mayHave(m *sleep.Machine, n *v1.Node, now time.Time) bool {
	return stateOf(n) != sleep.Awake || m.Jobs == 0 && now.Sub(m.Since) < l.limits.schedule
}

// bare returns a node without what it has because it sleeps.
func bare(n *v1.Node) *v1.Node {
	b := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	b.Spec.Unschedulable = n.Spec.Unschedulable
	b.Spec.Taints = v1alpha1.WithoutSleep(n.Spec.Taints)
	return b
}

// planned returns what a held Job will need when it is released, if that is so near that a machine must be kept or
// woken.
func (l *loop) planned(j *batchv1.Job, nodes []*v1.Node, machines []sleep.Machine, now time.Time, most int,
) (needs []sleep.Need) {
	at, err := time.Parse(time.RFC3339, j.Annotations[v1alpha1.AnnotationHeldUntil])
	if err != nil || j.Labels[v1alpha1.LabelHeld] != "true" || !at.After(now) {
		return nil
	}
	if !slices.ContainsFunc(machines, func(m sleep.Machine) bool { return at.Before(now.Add(m.Horizon(&l.Policy))) }) {
		return nil
	}
	one := need(j, &v1.Pod{Spec: j.Spec.Template.Spec}, at, nodes, func(int) bool { return true })
	return slices.Repeat(one, min(int(*cmp.Or(j.Spec.Parallelism, new(int32(1)))), max(most, 0)))
}

func isReady(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}

func isTainted(n *v1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == v1alpha1.TaintAsleep })
}
