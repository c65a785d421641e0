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
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// loop decides on the machines and advances the state of each. All state that must survive a restart is stored on
// the nodes.
type loop struct {
	Options

	limits   limits
	abreast  int // number of machines handled concurrently
	switches map[string]Switch
	uuids    map[string]string
	leads    func() bool
	list     func() *cluster
	event    func(n *v1.Node, kind, reason, note string)

	empty    map[string]time.Time   // time since which a node is empty
	seen     map[string]observation // time when the state of a node, identified by Since, was first seen
	doubts   map[string]doubt       // machines that are not put to sleep for a while
	reported map[string]string      // last reported event by machine
	vain     map[vain]sighted

	kept map[string]time.Time // time when a machine was last kept awake or woken for planned work

	decider func(*sleep.Snapshot) sleep.Plan                  // sleep.Decide, except in tests
	horizon func(*sleep.Machine, *sleep.Policy) time.Duration // sleep.Machine.Horizon, except in tests
	rounds  int
	looked  map[types.UID]int // last round in which machines were searched for, if one round is not sufficient for all
	left    int               // remaining units of limits.work in this round
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
	abreast       = 16 // number of machines handled concurrently
	maxCandidates = 8  // maximum number of machines per round that are checked before going to sleep
)

// transition is the work on one machine in a round.
type transition struct {
	facts

	node     *v1.Node
	step     step
	reported bool // the step has been written to the node
	would    bool // the machine would be put to sleep in enforce mode
	err      error
}

// round runs one round on all machines.
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
	_ = work.Wait() // errors are stored in the transitions
	for _, t := range transitions {
		l.conclude(t, now)
	}
}

// decide returns the transitions of all machines. Machines without a verdict because of a panic are woken.
func (l *loop) decide(c *cluster, now time.Time) (transitions []*transition) {
	var s sleep.Snapshot
	var plan sleep.Plan
	if panics.Survive(l.Log, "power", "taking a snapshot", func() { s = l.snapshot(c, now) }) {
		plan = l.plan(&s)
	}
	verdicts := sliceutil.Places(s.Machines[:len(plan.Verdicts)], func(m *sleep.Machine) string { return m.Name })
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
			t.want, t.why = sleep.Wake, "it may no longer sleep"
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

// free returns the number of machines that may be woken in this round in addition to those in the plan.
func (l *loop) free(nodes []*v1.Node, plan *sleep.Plan, now time.Time) int {
	woken := sliceutil.Map(nodes, func(n *v1.Node) time.Time { return remembered(n, now).Wake })
	free, _ := l.Policy.Ramp(now, woken)
	for i := range plan.Verdicts {
		if plan.Verdicts[i].Do == sleep.Wake {
			free--
		}
	}
	return free
}

// maxAttempts is the maximum number of attempts to decide per round.
const maxAttempts = 5

// plan decides on a snapshot. If this panics, plan removes the machine or need that causes the panic, so that a
// broken object affects no other objects. If the panic persists, it returns an empty plan.
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
		// If deciding panics even without any machines or needs, the respective list is unchanged.
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

// concerns reports whether the machine may need a step.
func (l *loop) concerns(t *transition) bool {
	return l.switches[t.node.Name] != nil || t.state != sleep.Awake || t.tainted
}

// judge sets the verdict of a transition.
func (l *loop) judge(t *transition, m *sleep.Machine, v *sleep.Verdict) {
	t.boot, t.want, t.why, t.owner, t.keep = m.BootTime(), v.Do, because(v), v.Owner, m.Keep
	if v.Reason == sleep.ForPlanned {
		l.kept[m.Name] = t.now
	}
}

// facts returns the facts about a machine that follow from its node.
func (l *loop) facts(n *v1.Node, now time.Time) facts {
	f := facts{
		limits: &l.limits, now: now, ready: isReady(n), leads: l.leads(), state: kube.PowerState(n),
		memory: remembered(n, now), tainted: isTainted(n),
	}
	f.seen = l.firstSeen(n.Name, f.Since, now)
	return f
}

// firstSeen returns the time when the state of a node was first seen. For a state that is older than this replica,
// it returns the time stored with the state.
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

// because returns the reason of a verdict as text.
func because(v *sleep.Verdict) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s", v.Reason, v.For))
}

// notify records events for machines that never sleep, and determines whether a machine that would sleep must be
// reported.
func (l *loop) notify(t *transition) {
	switch reported := l.reported[t.node.Name]; {
	case !t.leads || t.node.Labels[v1alpha1.LabelMaySleep] != "true":
	case t.state != sleep.Awake && l.switches[t.node.Name] == nil:
		l.say(t.node, reasonFailed, "no machine is configured for it: start it manually")
	case t.keep != "" && t.keep != keptForPlanned:
		l.say(t.node, reasonStays, t.keep)
	case t.want == sleep.Sleep && l.Mode != ModeEnforce:
		t.would = !strings.HasPrefix(reported, reasonWould)
	case strings.HasPrefix(reported, reasonWould):
		delete(l.reported, t.node.Name) // it runs work or is waking up
	}
}

// say records an event that does not change a machine, unless it equals the previous one.
func (l *loop) say(n *v1.Node, reason, note string) {
	if text := reason + ": " + note; l.reported[n.Name] != text {
		l.reported[n.Name] = text
		l.event(n, v1.EventTypeNormal, reason, note)
	}
}

// step performs one step of a machine.
func (l *loop) step(ctx context.Context, t *transition) (err error) {
	power := l.switches[t.node.Name]
	if power == nil { // the machine was removed from the configuration
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
		if err = power.Off(ctx); refused(err) { // the order was certainly not executed
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

// ask queries the power state from the management controller. The response is ignored if it is from another
// machine.
func (t *transition) ask(ctx context.Context, power Switch, uuid string) {
	on, got, err := power.State(ctx)
	switch same := strings.EqualFold(got, uuid); {
	case errors.Is(err, errUnsure):
		t.answer, t.doubt = unsure, err.Error()
	case err != nil:
		t.doubt = err.Error()
	case !same || !strings.EqualFold(t.node.Status.NodeInfo.SystemUUID, uuid):
		t.doubt = fmt.Sprintf("its address belongs to system %.40q and its node has system UUID %.40q: want %s", got,
			t.node.Status.NodeInfo.SystemUUID, uuid)
	case on:
		t.answer = isOn
	default:
		t.answer, t.doubt = isOff, "its management controller reports that it is off"
	}
}

// refused reports whether an order was certainly not executed.
func refused(err error) bool {
	return slices.ContainsFunc([]int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusConflict,
	}, func(status int) bool { return dial.HasStatus(err, status) }) ||
		err != nil && dial.ReasonOf(err) == dial.ReasonMissing
}

// busy queries the API server, bypassing the cache, for a pod that prevents a node from being shut down.
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

// conclude logs and reports the result of a transition.
func (l *loop) conclude(t *transition, now time.Time) {
	if t.err != nil {
		l.Log.Warn("Step failed", "node", t.node.Name, "state", t.state, "order", t.step.order, "error", t.err)
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
	l.Log.Info("Took a step", "node", t.node.Name, "to", t.step.state, "why", t.step.Why)
}
