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

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Any user may create pods, and their specs are compared with every sleeping node. Therefore, the work per round is
// limited (limits.work), in units of about 0.1 µs. Remaining work comes first in the next round.
const (
	perPod    = 16       // units for reading a pod's spec
	perFit    = 8        // units for comparing the smallest spec with a node
	perUnit   = 128      // bytes of a spec that cost an additional unit
	maxSelect = 64 << 10 // maximum size of the node-related part of a spec; larger specs are ignored
)

// asker is a pending pod, or a held Job that starts soon.
type asker struct {
	of     metav1.Object
	spec   *v1.PodSpec
	at     time.Time // planned start of a Job; zero for a pending pod
	pods   int       // number of pods of a Job that run in parallel
	looked int       // last round in which machines were searched for
	rank   int       // position in its namespace
}

// appendPlanned appends a held Job if its planned start is before until, so that a machine must be kept awake or
// woken.
func appendPlanned(work []asker, j *batchv1.Job, now, until time.Time) []asker {
	at, err := time.Parse(time.RFC3339, j.Annotations[v1alpha1.AnnotationHeldUntil])
	if err != nil || j.Labels[v1alpha1.LabelHeld] != "true" || !at.After(now) || !at.Before(until) {
		return work
	}
	return append(work, asker{
		of: j, spec: &j.Spec.Template.Spec, at: at, pods: int(*cmp.Or(j.Spec.Parallelism, new(int32(1)))),
	})
}

// finder finds machines for pods. Specs with the same node-related part are compared with the nodes only once.
type finder struct {
	*loop

	nodes    []*v1.Node // nodes as if awake, with the same indices as machines
	machines []sleep.Machine
	fits     map[string][]int // machines that admit a spec, by its encoding
	now      time.Time
}

// needs returns at most maxNeeds needs. The first pod of each asker comes before the other pods of any asker.
func (l *loop) needs(work []asker, nodes []*v1.Node, machines []sleep.Machine, now time.Time) (needs []sleep.Need) {
	maps.DeleteFunc(l.vain, func(_ vain, saw sighted) bool { return now.Sub(saw.last) >= usualTime })
	f := &finder{
		loop: l, machines: machines, nodes: sliceutil.Map(nodes, bare), fits: map[string][]int{}, now: now,
	}
	var others []sleep.Need
	l.rounds++
	l.left = l.limits.work
	all := true
	for _, a := range l.inTurn(work) {
		if all = l.left > 0; !all || len(needs) == maxNeeds {
			break
		}
		l.looked[a.of.GetUID()] = l.rounds
		panics.Survive(l.Log, "power", a.of.GetName(), func() {
			if n := f.need(&a); n.Machines != nil {
				needs = append(needs, n)
				others = append(others, slices.Repeat([]sleep.Need{n}, min(max(a.pods-1, 0), maxNeeds-len(others)))...)
			}
		})
	}
	if all || len(l.looked) > maxVain {
		clear(l.looked)
	}
	return append(needs, others[:min(len(others), maxNeeds-len(needs))]...)
}

// inTurn sorts the askers. Those not handled in the last rounds come first. Otherwise, the namespaces take turns;
// within a namespace, pods come before planned Jobs, and older ones before newer ones.
func (l *loop) inTurn(work []asker) []asker {
	for i := range work {
		work[i].looked = l.looked[work[i].of.GetUID()]
	}
	slices.SortFunc(work, func(a, b asker) int {
		return cmp.Or(cmp.Compare(a.looked, b.looked), a.at.Compare(b.at),
			a.of.GetCreationTimestamp().Compare(b.of.GetCreationTimestamp().Time),
			strings.Compare(a.of.GetNamespace(), b.of.GetNamespace()), strings.Compare(a.of.GetName(), b.of.GetName()))
	})
	in := map[string]int{} // askers by namespace
	for i := range work {
		namespace := work[i].of.GetNamespace()
		work[i].rank = in[namespace]
		in[namespace]++
	}
	slices.SortStableFunc(work, func(a, b asker) int { return cmp.Compare(a.rank, b.rank) })
	return work
}

// need returns the need of one pod of an asker, with the machines that admit it and are suitable.
func (f *finder) need(a *asker) sleep.Need {
	pod := &v1.Pod{Spec: *a.spec}
	n := sleep.Need{
		Job: a.of.GetNamespace() + "/" + a.of.GetName(), Owner: a.of.GetNamespace(), At: a.at,
		Request: policy.PodRequest(pod), Duration: usualTime,
	}
	fits := f.admitting(pod)
	f.left -= perPod + len(fits)
	for _, i := range fits {
		if !a.at.IsZero() || !f.isVain(a, &n, i) && f.mayHave(i) {
			n.Machines = append(n.Machines, f.machines[i].Name)
		}
	}
	return n
}

// admitting returns the indices of the machines that admit a pod.
func (f *finder) admitting(pod *v1.Pod) []int {
	part := v1.PodSpec{NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	if a := pod.Spec.Affinity; a != nil {
		part.Affinity = &v1.Affinity{NodeAffinity: a.NodeAffinity}
	}
	text, err := part.Marshal() // deterministic for equal specs
	if f.left -= len(text) / perUnit; err != nil || len(text) > maxSelect {
		return nil
	}
	fits, known := f.fits[string(text)]
	if !known {
		admission := kube.AdmissionOf(pod)
		for i, n := range f.nodes {
			if admission.Admits(n) {
				fits = append(fits, i)
			}
		}
		f.fits[string(text)] = fits
		f.left -= len(f.nodes) * (perFit + len(text)/perUnit)
	}
	return fits
}

// isVain reports whether kube-scheduler has left a pod pending although the machine was woken and has sufficient
// capacity, for example because of a volume or pod anti-affinity. This must be observed for a while, because
// another pod may be about to be bound to the machine. The machine is tried again after an hour.
func (f *finder) isVain(a *asker, n *sleep.Need, i int) bool {
	m := &f.machines[i]
	key := vain{a.of.GetUID(), m.Name}
	saw, seen := f.vain[key]
	if kube.PowerState(f.nodes[i]) == sleep.Awake && f.now.Sub(m.Woken) < usualTime && n.Request.Within(m.Free) &&
		(seen || len(f.vain) < maxVain) {
		if f.now.Sub(saw.last) > f.limits.schedule {
			saw.first = f.now
		}
		saw.last = f.now
		f.vain[key] = saw
	}
	return saw.last.Sub(saw.first) >= f.limits.schedule*2/3
}

// mayHave reports whether a pending pod may fit on a machine. It returns false for awake machines that
// kube-scheduler has already considered.
func (f *finder) mayHave(i int) bool {
	m := &f.machines[i]
	return kube.PowerState(f.nodes[i]) != sleep.Awake || m.Jobs == 0 && f.now.Sub(m.Since) < f.limits.schedule
}

// bare returns a node without the taint of a sleeping machine.
func bare(n *v1.Node) *v1.Node {
	b := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	b.Spec.Unschedulable = n.Spec.Unschedulable
	b.Spec.Taints = v1alpha1.WithoutSleep(n.Spec.Taints)
	return b
}
