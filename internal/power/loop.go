package power

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// loop decides, and takes each machine one step further. All that must survive it stands on the nodes.
type loop struct {
	Options

	limits   limits
	abreast  int // machines that are dealt with at a time
	switches map[string]Switch
	uuids    map[string]string
	leads    func() bool
	list     func() *cluster
	event    func(n *v1.Node, kind, reason, note string)

	empty    map[string]time.Time   // since when nothing is seen to run on a node
	seen     map[string]observation // when the state of a node was seen first, by its Since
	doubts   map[string]doubt       // machines that are left alone
	reported map[string]string      // what was said last of a machine
	vain     map[vain]sighted

	kept map[string]time.Time // when a machine was last kept or woken for planned work

	decider func(*sleep.Snapshot) sleep.Plan                  // sleep.Decide, except in tests
	horizon func(*sleep.Machine, *sleep.Policy) time.Duration // sleep.Machine.Horizon, except in tests
	rounds  int
	looked  map[types.UID]int // in which round machines were last looked for, while one round does not suffice for all
	left    int               // units of work that are left of limits.work in this round
}

type doubt struct {
	until time.Time
	why   string
}

func newLoop(o Options, switches map[string]Switch) *loop {
	o.Beats = cmp.Or(o.Beats, &daemon.Heartbeats{})
	l := &loop{
		Options: o, limits: usual.faster(cmp.Or(o.Faster, 1)), abreast: abreast, switches: switches,
		uuids: map[string]string{},
		empty: map[string]time.Time{}, seen: map[string]observation{}, doubts: map[string]doubt{},
		reported: map[string]string{}, vain: map[vain]sighted{}, kept: map[string]time.Time{},
		decider: sleep.Decide, horizon: (*sleep.Machine).Horizon, looked: map[types.UID]int{},
	}
	for i := range o.Machines {
		l.uuids[o.Machines[i].Node] = o.Machines[i].UUID
	}
	return l
}

const (
	abreast       = 16 // machines that are dealt with at a time
	maxCandidates = 8  // machines checked in a round for whether they can go to sleep; the others do not wait for them
)

// transition is what is done about one machine in a round.
type transition struct {
	facts

	node     *v1.Node
	step     step
	reported bool // what the step writes is written
	would    bool // it would be sent to sleep, if the mode were enforce
	err      error
}

// round looks at everything once.
func (l *loop) round(ctx context.Context) {
	now := l.Clock()
	var transitions []*transition
	daemon.Round(ctx, func() { transitions = l.decide(l.list(), now) })
	var work errgroup.Group
	work.SetLimit(l.abreast)
	for _, t := range transitions {
		work.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, l.limits.call)
			defer cancel()
			if !panics.Survive(l.Log, "power", t.node.Name, func() {
				daemon.Round(ctx, func() { t.err = l.step(ctx, t) })
			}) {
				t.step, t.err = step{}, nil
			}
			return nil
		})
	}
	_ = work.Wait() // each transition has its own error
	for _, t := range transitions {
		l.conclude(t, now)
	}
}

// decide returns what may have to be done, machine by machine. It wakes machines that have no verdict because of a
// panic.
func (l *loop) decide(c *cluster, now time.Time) (transitions []*transition) {
	var s sleep.Snapshot
	var plan sleep.Plan
	if panics.Survive(l.Log, "power", "taking a snapshot", func() { s = l.snapshot(c, now) }) {
		plan = l.plan(&s)
	}
	verdicts := map[string]int{} // index by node
	for i := range plan.Verdicts {
		verdicts[s.Machines[i].Name] = i
	}
	asked, free := 0, l.free(c.nodes, &plan, now)
	for _, n := range c.nodes {
		if kube.PowerState(n) == sleep.Awake && !isReady(n) {
			continue
		}
		t := &transition{node: n, facts: l.facts(n, now)}
		t.boot, t.want = unknown.BootTime(), sleep.Wake
		i, planned := verdicts[n.Name]
		if planned {
			l.judge(t, &s.Machines[i], &plan.Verdicts[i])
			planned = t.want == sleep.Wake
		}
		l.notify(t)
		if !t.would && (l.Mode != ModeEnforce || n.Labels[v1alpha1.LabelMaySleep] != "true") {
			t.want, t.why = sleep.Wake, "it may sleep no longer"
		}
		if t.want == sleep.Wake && t.state == sleep.Asleep && !planned {
			if free--; free < 0 {
				t.want = sleep.Stay
			}
		}
		if t.would || t.goes() {
			asked++
		}
		if l.concerns(t) && (asked <= maxCandidates || !t.would && !t.goes()) {
			transitions = append(transitions, t)
		}
	}
	return transitions
}

// free returns how many machines may be woken in this round beyond those that a plan wakes.
func (l *loop) free(nodes []*v1.Node, plan *sleep.Plan, now time.Time) int {
	var woken []time.Time
	for _, n := range nodes {
		woken = append(woken, remembered(n, now).Wake)
	}
	free, _ := l.Policy.Ramp(now, woken)
	for i := range plan.Verdicts {
		if plan.Verdicts[i].Do == sleep.Wake {
			free--
		}
	}
	return free
}

// maxAttempts is how often a round tries to decide.
const maxAttempts = 5

// plan decides on a snapshot. If that panics, plan removes the machine or the need without which it does not: a broken
// object costs itself and no other. The plan is empty if that does not help.
func (l *loop) plan(s *sleep.Snapshot) (plan sleep.Plan) {
	try := func(machines []sleep.Machine, needs []sleep.Need) bool {
		part := *s
		part.Machines, part.Needs = machines, needs
		return panics.Survive(l.Log, "power", "deciding", func() { plan = l.decider(&part) })
	}
	for range maxAttempts {
		if try(s.Machines, s.Needs) {
			if l.Record != nil {
				l.Record(s, &plan)
			}
			return plan
		}
		k := sort.Search(len(s.Machines), func(k int) bool { return !try(s.Machines[:k], s.Needs) })
		j := sort.Search(len(s.Needs), func(j int) bool { return !try(s.Machines, s.Needs[:j]) })
		// Nothing is removed from a list if deciding panics without its elements, too.
		machines := slices.Concat(s.Machines[:max(k-1, 0)], s.Machines[k:])
		needs := slices.Concat(s.Needs[:max(j-1, 0)], s.Needs[j:])
		onlyNeed, onlyMachine := try(s.Machines, needs), try(machines, s.Needs)
		if !onlyNeed || onlyMachine {
			s.Machines = machines
		}
		if !onlyMachine {
			s.Needs = needs
		}
	}
	return sleep.Plan{}
}

// concerns reports whether there may be anything to do about a machine.
func (l *loop) concerns(t *transition) bool {
	return l.switches[t.node.Name] != nil || t.state != sleep.Awake || t.tainted
}

// judge makes a transition do what was decided.
func (l *loop) judge(t *transition, m *sleep.Machine, v *sleep.Verdict) {
	t.boot, t.want, t.why, t.owner, t.keep = m.BootTime(), v.Do, because(v), v.Owner, m.Keep
	if v.Reason == sleep.ForPlanned {
		l.kept[m.Name] = t.now
	}
}

// facts returns what a node says of its machine.
func (l *loop) facts(n *v1.Node, now time.Time) facts {
	f := facts{
		limits: &l.limits, now: now, ready: isReady(n), leads: l.leads(), state: kube.PowerState(n),
		memory: remembered(n, now), tainted: isTainted(n),
	}
	f.seen = l.firstSeen(n.Name, f.Since, now)
	return f
}

// firstSeen returns when the state of a node was seen first. What stood there when this replica began is as old as it
// says.
func (l *loop) firstSeen(node string, of, now time.Time) time.Time {
	saw, ok := l.seen[node]
	switch {
	case !ok && of.Before(now):
		l.seen[node] = observation{of, of}
	case !ok || !saw.of.Equal(of):
		l.seen[node] = observation{of, now}
	}
	return l.seen[node].since
}

// because is a verdict's reason, in words.
func because(v *sleep.Verdict) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s", v.Reason, v.For))
}

// notify tells why a machine never sleeps, and finds out whether one is to be told of that would sleep.
func (l *loop) notify(t *transition) {
	switch reported := l.reported[t.node.Name]; {
	case !t.leads || t.node.Labels[v1alpha1.LabelMaySleep] != "true":
	case t.state != sleep.Awake && l.switches[t.node.Name] == nil:
		l.say(t.node, reasonFailed, "the cluster's configuration binds no machine to it: start it by hand")
	case t.keep != "" && t.keep != keptForPlanned:
		l.say(t.node, reasonStays, t.keep)
	case t.want == sleep.Sleep && l.Mode != ModeEnforce:
		t.would = !strings.HasPrefix(reported, reasonWould)
	case strings.HasPrefix(reported, reasonWould):
		delete(l.reported, t.node.Name) // it works, or wakes
	}
}

// say tells an event of a machine that changes nothing, once.
func (l *loop) say(n *v1.Node, reason, note string) {
	if text := reason + ": " + note; l.reported[n.Name] != text {
		l.reported[n.Name] = text
		l.event(n, v1.EventTypeNormal, reason, note)
	}
}

// step takes one step of a machine.
func (l *loop) step(ctx context.Context, t *transition) (err error) {
	power := l.switches[t.node.Name]
	if power == nil { // its machine was taken out of the configuration
		if t.want == sleep.Wake {
			t.want = sleep.Stay
		}
	} else if t.would || t.asks() {
		t.ask(ctx, power, l.uuids[t.node.Name])
	}
	if t.would {
		t.step.doubts = t.answer != isOn
		return nil
	}
	if t.due() {
		if t.busy, err = l.busy(ctx, t.node.Name); err != nil {
			return err
		}
		t.leads = l.leads()
	}
	t.step = t.next()
	if t.step.reason != "" {
		if t.node, err = t.step.write(ctx, l.Client, t.node); err != nil {
			return err
		}
		t.reported = true
	}
	if power == nil {
		return nil
	}
	switch t.step.order {
	case sleep.Wake:
		return power.On(ctx)
	case sleep.Sleep:
		if err = power.Off(ctx); refused(err) { // so nothing will come of it
			t.memory, t.state = t.step.memory, sleep.Stopping
			t.Sleeps = t.Sleeps[:len(t.Sleeps)-1]
			t.step = t.to(sleep.Awake, reasonAbandoned, err.Error())
			t.step.doubts, t.doubt = true, err.Error()
			t.node, err = t.step.write(ctx, l.Client, t.node)
		}
		return err
	}
	return nil
}

// ask asks the management controller whether the machine is on. It is not believed where it is another machine's.
func (t *transition) ask(ctx context.Context, power Switch, uuid string) {
	on, got, err := power.State(ctx)
	switch same := strings.EqualFold(got, uuid); {
	case errors.Is(err, errUnsure):
		t.answer, t.doubt = unsure, err.Error()
	case err != nil:
		t.doubt = err.Error()
	case !same || !strings.EqualFold(t.node.Status.NodeInfo.SystemUUID, uuid):
		t.doubt = fmt.Sprintf("its address leads to the system %.40q, and the node's is %.40q: want %s", got,
			t.node.Status.NodeInfo.SystemUUID, uuid)
	case on:
		t.answer = isOn
	default:
		t.answer, t.doubt = isOff, "its management controller says that it is off"
	}
}

// refused reports whether an order was certainly not carried out.
func refused(err error) bool {
	return slices.ContainsFunc([]int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusConflict,
	}, func(status int) bool { return dial.HasStatus(err, status) }) ||
		err != nil && dial.ReasonOf(err) == dial.ReasonMissing
}

// busy asks the API server itself what is on a node that must not go off with it.
func (l *loop) busy(ctx context.Context, node string) (string, error) {
	pods, err := l.Client.CoreV1().Pods(v1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return "", err
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName == node && works(p) {
			return "it runs " + p.Namespace + "/" + p.Name, nil
		}
	}
	return "", nil
}

// conclude tells of what was done about a machine.
func (l *loop) conclude(t *transition, now time.Time) {
	if t.err != nil {
		l.Log.Warn("taking a step", "node", t.node.Name, "state", t.state, "order", t.step.order, "error", t.err)
	}
	if t.step.doubts {
		l.doubts[t.node.Name] = doubt{now.Add(l.limits.doubt), t.doubt}
	}
	if t.would && !t.step.doubts {
		l.say(t.node, reasonWould, t.why)
	}
	if !t.reported {
		return
	}
	l.seen[t.node.Name] = observation{t.step.Since, l.Clock()}
	kind := v1.EventTypeNormal
	if t.step.reason == reasonFailed || t.step.reason == reasonRefused || t.step.doubts {
		kind = v1.EventTypeWarning
	}
	l.event(t.node, kind, t.step.reason, t.step.Why)
	l.Log.Info("took a step", "node", t.node.Name, "to", t.step.state, "why", t.step.Why)
}
