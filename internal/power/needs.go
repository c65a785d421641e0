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
)

// Anyone may create pods, and their specs are compared with every node that sleeps. The work of a round is therefore
// limited (limits.work), in units of about 0.1 µs: what a round leaves is first in the next one.
const (
	perPod    = 16       // units to read a pod's spec
	perFit    = 8        // units to compare the smallest spec with a node
	perUnit   = 128      // bytes of a spec that cost one more unit
	maxSelect = 64 << 10 // bytes of the node-related part of a spec; if it is larger, no machine is searched for
)

// asker is a pod that waits, or a held Job whose start is near.
type asker struct {
	of     metav1.Object
	spec   *v1.PodSpec
	at     time.Time // planned start of a Job; zero: a pod waits
	pods   int       // of a Job that run at once
	looked int       // round in which machines were last looked for
	rank   int       // in its namespace
}

// appendPlanned appends a held Job if its planned start is so near that a machine must be kept or woken: before until.
func appendPlanned(work []asker, j *batchv1.Job, now, until time.Time) []asker {
	at, err := time.Parse(time.RFC3339, j.Annotations[v1alpha1.AnnotationHeldUntil])
	if err != nil || j.Labels[v1alpha1.LabelHeld] != "true" || !at.After(now) || !at.Before(until) {
		return work
	}
	return append(work, asker{
		of: j, spec: &j.Spec.Template.Spec, at: at, pods: int(*cmp.Or(j.Spec.Parallelism, new(int32(1)))),
	})
}

// finder looks for the machines that work may have. Specs that say the same of nodes are compared with them once.
type finder struct {
	*loop

	nodes    []*v1.Node // by index of machines: as if awake
	machines []sleep.Machine
	fits     map[string][]int // by spec: machines that admit it
	now      time.Time
}

// needs returns the needs of work, at most maxNeeds: the first pod of each asker before the others of any.
func (l *loop) needs(work []asker, nodes []*v1.Node, machines []sleep.Machine, now time.Time) (needs []sleep.Need) {
	maps.DeleteFunc(l.vain, func(_ vain, saw sighted) bool { return now.Sub(saw.last) >= usualTime })
	f := &finder{loop: l, machines: machines, fits: map[string][]int{}, now: now}
	for _, n := range nodes {
		f.nodes = append(f.nodes, bare(n))
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

// inTurn sorts work: what the last rounds left comes first, then each namespace has its turn, in which pods come before
// planned Jobs and older ones before younger ones.
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

// need returns the need of one pod of an asker: one of the machines that admit it and that it may have.
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

// admitting returns the machines that admit a pod.
func (f *finder) admitting(pod *v1.Pod) []int {
	part := v1.PodSpec{NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	if a := pod.Spec.Affinity; a != nil {
		part.Affinity = &v1.Affinity{NodeAffinity: a.NodeAffinity}
	}
	text, err := part.Marshal() // the same bytes for the same spec
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

// isVain reports whether kube-scheduler let a pod wait beside a machine that had been woken and had room: it knows why,
// as of a volume or of pods that must be apart. That has to be seen for a while: another pod may be on its way there.
// The machine is tried again after an hour.
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

// mayHave reports whether a pod that waits may fit on a machine: kube-scheduler has looked at those that are awake, and
// not found it.
func (f *finder) mayHave(i int) bool {
	m := &f.machines[i]
	return kube.PowerState(f.nodes[i]) != sleep.Awake || m.Jobs == 0 && f.now.Sub(m.Since) < f.limits.schedule
}

// bare returns a node without the marks of a sleeping machine.
func bare(n *v1.Node) *v1.Node {
	b := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	b.Spec.Unschedulable = n.Spec.Unschedulable
	b.Spec.Taints = v1alpha1.WithoutSleep(n.Spec.Taints)
	return b
}
