package power

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// limits contains timeouts and other limits.
type limits struct {
	settle   time.Duration // from the taint to the shutdown order, so that bindings in progress become visible
	obeys    time.Duration // from the wake order until the machine must be on
	stops    time.Duration // from the shutdown order until the machine must be off
	late     time.Duration // tolerance added to the boot time
	day      time.Duration // period in which cycles are counted
	doubt    time.Duration // backoff after an unexpected response of a machine
	call     time.Duration // timeout for one machine per round
	schedule time.Duration // time after which kube-scheduler has considered an awake, empty machine
	work     int           // units of work per round to find machines for pods
}

// faster returns limits for a cluster with a clock that is faster by the given factor.
func (l limits) faster(factor float64) limits {
	for _, d := range []*time.Duration{&l.settle, &l.obeys, &l.stops, &l.late, &l.day, &l.doubt, &l.schedule} {
		*d = time.Duration(float64(*d) / factor)
	}
	return l
}

var usual = limits{
	settle: 10 * time.Second, obeys: 10 * time.Second, stops: 10 * time.Minute, late: 10 * time.Second,
	day: 24 * time.Hour, doubt: time.Minute, call: 5 * time.Second, schedule: 30 * time.Second,
	work: 4 << 20,
}

// memory is the content of a node's annotation, from which any replica can continue.
type memory struct {
	Since    time.Time   `json:"since,omitzero"` // start of the state; if awake, of the boot or of a canceled shutdown
	Sleeps   []time.Time `json:"sleeps,omitempty"`
	Failed   int         `json:"failed,omitempty"` // consecutive failed boots
	Why      string      `json:"why,omitempty"`
	Excluded bool        `json:"excluded,omitempty"` // the label exclude-disruption was set by us
	Off      time.Time   `json:"off,omitzero"`       // time of the shutdown order, if it may have been sent
	Wake     time.Time   `json:"wake,omitzero"`      // time of the last wake order
	For      string      `json:"for,omitempty"`      // namespace of the work that caused the wake order
}

// Limits of the annotation. It contains at most 8 KiB of sleep times and 6 KiB of escaped reason.
const (
	maxMemory = 16 << 10 // bytes
	maxWhy    = 1000     // maximum length of a reason, in bytes
	maxFailed = 1000     // more failed boots have no further effect
	maxSleeps = 200      // limit if the policy allows more cycles
	maxAhead  = time.Hour
)

// remembered returns the content of a node's annotation. It ignores annotations that were certainly not written by
// a replica: those with a number out of range, or with a time too far in the future.
func remembered(n *v1.Node, now time.Time) (m memory) {
	text := n.Annotations[v1alpha1.AnnotationPower]
	if text == "" || len(text) > maxMemory || json.Unmarshal([]byte(text), &m) != nil ||
		m.Failed < 0 || m.Failed > maxFailed || len(m.Sleeps) > maxSleeps ||
		slices.ContainsFunc(append(m.Sleeps, m.Since, m.Off, m.Wake), now.Add(maxAhead).Before) {
		return memory{}
	}
	return m
}

// recent returns the times within the last period at which the machine was put to sleep.
func (m *memory) recent(now time.Time, period time.Duration) []time.Time {
	return slices.DeleteFunc(slices.Clone(m.Sleeps), func(at time.Time) bool { return now.Sub(at) >= period })
}

// answer is the power state reported by a management controller.
type answer uint8

const (
	silent answer = iota // no trustworthy response
	isOn
	isOff
	unsure // the controller cannot determine the state
)

// facts are the inputs that determine the next step of a machine.
type facts struct {
	memory

	limits  *limits
	now     time.Time
	seen    time.Time // time when this replica first saw Since, because clocks differ
	state   sleep.State
	ready   bool
	tainted bool
	boot    time.Duration
	want    sleep.Verb // the verdict
	why     string     // reason of the verdict
	owner   string     // namespace of the work to wake up for
	keep    string     // reason why it must not sleep, or ""
	leads   bool       // only the leader puts machines to sleep

	answer answer // response of the management controller with the correct UUID
	doubt  string // reason why the response is not trusted
	busy   string // pod on the node according to the API server; queried if due
}

// asks reports whether the management controller must be queried.
func (f *facts) asks() bool {
	return f.state == sleep.Stopping || f.state == sleep.Booting || f.goes()
}

func (f *facts) goes() bool { return f.state == sleep.Awake && f.want == sleep.Sleep && f.leads }

// due reports whether this step shuts the machine down, unless a pod is running on it.
func (f *facts) due() bool {
	return f.state == sleep.Stopping && f.Off.IsZero() && f.leads && f.want == sleep.Sleep && f.ready && f.tainted &&
		f.answer == isOn && !f.now.Before(f.seen.Add(f.limits.settle))
}

// step is the next step of a machine: first the node is updated, if necessary, and then the order is sent.
type step struct {
	memory

	state  sleep.State
	order  sleep.Verb
	reason string // reason of the event; "" if the node does not change
	doubts bool   // leave the machine alone for a while
}

// Reasons of events.
const (
	reasonTainted   = "SleepPlanned"
	reasonStopping  = "ShuttingDown"
	reasonAbandoned = "SleepAbandoned"
	reasonAsleep    = "Asleep"
	reasonWaking    = "Waking"
	reasonAwake     = "Awake"
	reasonFailed    = "BootFailed"
	reasonRefused   = "ShutdownFailed"
	reasonStays     = "StaysAwake"
	reasonWould     = "WouldSleep"
)

// next returns the next step of a machine.
func (f *facts) next() step {
	switch f.state {
	case sleep.Stopping:
		if f.Off.IsZero() {
			return f.leaving()
		}
		return f.stopping()
	case sleep.Asleep:
		if f.ready {
			return f.to(sleep.Awake, reasonAwake, "its node is Ready")
		}
		if f.want == sleep.Wake {
			return f.to(sleep.Booting, reasonWaking, f.why)
		}
	case sleep.Booting:
		return f.booting()
	default:
		return f.awake()
	}
	return step{}
}

func (f *facts) awake() step {
	switch {
	case f.goes() && f.answer == isOn:
		return f.to(sleep.Stopping, reasonTainted, f.why)
	case f.goes():
		return step{doubts: true}
	case f.tainted: // the label was removed
		return f.to(sleep.Awake, reasonAwake, "it does not have the label "+v1alpha1.LabelPowerState)
	}
	return step{}
}

// leaving returns the step of a tainted machine that has not been ordered to shut down yet.
func (f *facts) leaving() step {
	back := ""
	switch {
	case f.want != sleep.Sleep:
		back = f.why
	case !f.ready:
		back = "its node is not Ready"
	case !f.tainted:
		back = "its taint was removed"
	case f.busy != "":
		back = f.busy
	case f.answer != isOn:
		back = f.doubt
	}
	if back != "" {
		s := f.to(sleep.Awake, reasonAbandoned, back)
		s.doubts = f.answer != isOn
		return s
	}
	if !f.due() {
		return step{}
	}
	s := f.to(sleep.Stopping, reasonStopping, f.why)
	s.Off, s.order = f.now, sleep.Sleep
	s.Sleeps = append(s.Sleeps, f.now)
	return s
}

// stopping returns the step of a machine that may have been ordered to shut down. A shutdown cannot be canceled.
// The machine is off once its management controller reports this and its node is not Ready.
func (f *facts) stopping() step {
	over := f.elapsed(f.Off) >= f.limits.stops
	switch {
	case f.answer == isOff && !f.ready:
		return f.to(sleep.Asleep, reasonAsleep, f.Why)
	case over && f.ready:
		return f.to(sleep.Awake, reasonRefused, "it was ordered to shut down but is still running")
	case over: // it may hang, so it may be woken but is not considered reliable
		return f.failed(sleep.Asleep, reasonRefused, "its node is not Ready, but it is not reported as off")
	}
	return step{}
}

func (f *facts) booting() step {
	since := f.elapsed(f.Wake)
	switch {
	case f.ready:
		return f.to(sleep.Awake, reasonAwake, f.Why)
	case since >= f.limits.obeys && (f.answer == isOff || f.answer == silent && since < 3*f.limits.obeys):
		return f.failed(sleep.Asleep, reasonFailed, strings.TrimSpace("it was ordered to start but is not on "+f.doubt))
	case since >= 2*f.boot+f.limits.late:
		return f.failed(sleep.Asleep, reasonFailed, "its node is not Ready after twice its boot time")
	case f.answer != isOn:
		return step{order: sleep.Wake} // repeat the order, because the other replica may have died before sending it
	}
	return step{}
}

// elapsed returns the time since an event of the current state. It is limited by the time since this replica first
// saw the state, because another replica's clock may be ahead.
func (f *facts) elapsed(since time.Time) time.Duration {
	return min(f.now.Sub(since), f.now.Sub(f.seen))
}

// to returns the step to a state.
func (f *facts) to(state sleep.State, reason, why string) step {
	s := step{memory: f.memory, state: state, reason: reason}
	s.Since, s.Why, s.Off = f.now, why, time.Time{}
	s.Sleeps = s.recent(f.now, f.limits.day)
	switch {
	case state == sleep.Booting:
		s.Wake, s.For, s.order = f.now, f.owner, sleep.Wake
	case state == sleep.Awake && f.state != sleep.Stopping:
		s.Failed = 0
	}
	return s
}

func (f *facts) failed(state sleep.State, reason, why string) step {
	s := f.to(state, reason, why)
	s.Failed = min(s.Failed+1, maxFailed)
	return s
}

// excludeDisruption excludes a node when cluster components detect zone outages.
const excludeDisruption = "node.kubernetes.io/exclude-disruption"

// write applies a step to a node, provided that the node has not changed.
func (s *step) write(ctx context.Context, client kubernetes.Interface, n *v1.Node) (*v1.Node, error) {
	patch, err := s.patch(n)
	if err != nil {
		return n, err
	}
	written, err := client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return n, fmt.Errorf("patching the node: %w", err)
	}
	return written, nil
}

// patch returns the merge patch for a step, which applies only to the given resource version of the node.
func (s *step) patch(n *v1.Node) ([]byte, error) {
	labels := map[string]any{v1alpha1.LabelPowerState: nil}
	taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t v1.Taint) bool {
		return t.Key == v1alpha1.TaintAsleep
	})
	if s.state != sleep.Awake {
		labels[v1alpha1.LabelPowerState] = s.state
		taints = append(taints, v1.Taint{Key: v1alpha1.TaintAsleep, Effect: v1.TaintEffectNoSchedule})
		if _, ok := n.Labels[excludeDisruption]; !ok {
			labels[excludeDisruption], s.Excluded = "true", true
		}
	} else if s.Excluded {
		labels[excludeDisruption], s.Excluded = nil, false
	}
	s.Sleeps = s.Sleeps[max(len(s.Sleeps)-maxSleeps, 0):]
	s.Why = strings.ToValidUTF8(s.Why[:min(len(s.Why), maxWhy)], "")
	text, err := json.Marshal(s.memory)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": n.ResourceVersion, "labels": labels,
			"annotations": map[string]any{v1alpha1.AnnotationPower: string(text)},
		},
		"spec": map[string]any{"taints": taints},
	})
}
