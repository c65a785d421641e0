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

// limits are how long things may take.
type limits struct {
	settle   time.Duration // from the taint to the order: bindings that are under way arrive
	obeys    time.Duration // from the order to wake until the machine has to be on
	stops    time.Duration // from the order to shut down until it has to be off
	late     time.Duration // beyond the boot time
	day      time.Duration // in which cycles are counted
	doubt    time.Duration // for which a machine that did not answer well is left alone
	call     time.Duration // for one machine in one round
	schedule time.Duration // within which kube-scheduler has looked at a machine that is awake and empty
	work     int           // units of work to find machines for pods in one round
}

// faster returns limits for a cluster whose clock is so much faster.
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

// memory is what a node's annotation keeps: any replica goes on from it.
type memory struct {
	Since    time.Time   `json:"since,omitzero"` // of the state; if awake, when it came up or was left
	Sleeps   []time.Time `json:"sleeps,omitempty"`
	Failed   int         `json:"failed,omitempty"` // boots in a row
	Why      string      `json:"why,omitempty"`
	Excluded bool        `json:"excluded,omitempty"` // the label exclude-disruption is ours
	Off      time.Time   `json:"off,omitzero"`       // the order to shut down, if it may have been given
	Wake     time.Time   `json:"wake,omitzero"`      // the last order to wake
	For      string      `json:"for,omitempty"`      // namespace of the work that order was given for
}

// Limits of the annotation. It is at most 8 KiB of sleeps and 6 KiB of reason, escaped, and the rest.
const (
	maxMemory = 16 << 10 // bytes
	maxWhy    = 1000     // bytes of a reason
	maxFailed = 1000     // further failed boots change nothing
	maxSleeps = 200      // where a policy allows any number of cycles
	maxAhead  = time.Hour
)

// remembered returns the content of a node's annotation. It ignores an annotation that we cannot have written: one with
// a number out of range, or with a time that is later than any replica's clock can be.
func remembered(n *v1.Node, now time.Time) (m memory) {
	text := n.Annotations[v1alpha1.AnnotationPower]
	if text == "" || len(text) > maxMemory || json.Unmarshal([]byte(text), &m) != nil ||
		m.Failed < 0 || m.Failed > maxFailed || len(m.Sleeps) > maxSleeps ||
		slices.ContainsFunc(append(m.Sleeps, m.Since, m.Off, m.Wake), now.Add(maxAhead).Before) {
		return memory{}
	}
	return m
}

// recent returns when the machine was sent to sleep within a period that ends now.
func (m *memory) recent(now time.Time, period time.Duration) []time.Time {
	return slices.DeleteFunc(slices.Clone(m.Sleeps), func(at time.Time) bool { return now.Sub(at) >= period })
}

// answer is what a management controller said.
type answer uint8

const (
	silent answer = iota // nothing that can be believed
	isOn
	isOff
	unsure // it cannot know
)

// facts are all that the next step of a machine depends on.
type facts struct {
	memory

	limits  *limits
	now     time.Time
	seen    time.Time // when this replica saw Since first: clocks differ
	state   sleep.State
	ready   bool
	tainted bool
	boot    time.Duration
	want    sleep.Verb // what is decided
	why     string     // and its reason
	owner   string     // namespace of the work that it is to wake for
	keep    string     // why it must not sleep; "": it may
	leads   bool       // only the replica that leads sends to sleep

	answer answer // what the management controller said; its UUID is right
	doubt  string // why it is not believed
	busy   string // what is on the node by the API server itself; asked when due
}

// asks reports whether the management controller has to be asked.
func (f *facts) asks() bool {
	return f.state == sleep.Stopping || f.state == sleep.Booting || f.goes()
}

func (f *facts) goes() bool { return f.state == sleep.Awake && f.want == sleep.Sleep && f.leads }

// due reports whether the machine goes off with this step unless something is on it.
func (f *facts) due() bool {
	return f.state == sleep.Stopping && f.Off.IsZero() && f.leads && f.want == sleep.Sleep && f.ready && f.tainted &&
		f.answer == isOn && !f.now.Before(f.seen.Add(f.limits.settle))
}

// step is what to do: first the node is written, if anything is to change, then the order is given.
type step struct {
	memory

	state  sleep.State
	order  sleep.Verb
	reason string // of an event; "": nothing changes
	doubts bool   // the machine is left alone for a while
}

// The reasons of events.
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
	case f.tainted: // its label was taken off
		return f.to(sleep.Awake, reasonAwake, "it has no label "+v1alpha1.LabelPowerState)
	}
	return step{}
}

// leaving is the step of a machine that takes no more pods, and was not asked to shut down yet.
func (f *facts) leaving() step {
	back := ""
	switch {
	case f.want != sleep.Sleep:
		back = f.why
	case !f.ready:
		back = "its node is not Ready"
	case !f.tainted:
		back = "its taint was taken off"
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

// stopping is the step of a machine that may have been asked to shut down: until that is over it can only be waited
// for. It is off once its management controller says so and its node has gone quiet.
func (f *facts) stopping() step {
	over := f.elapsed(f.Off) >= f.limits.stops
	switch {
	case f.answer == isOff && !f.ready:
		return f.to(sleep.Asleep, reasonAsleep, f.Why)
	case over && f.ready:
		return f.to(sleep.Awake, reasonRefused, "it was asked to shut down and is still there")
	case over: // perhaps it hangs: it may be woken, but not believed
		return f.failed(sleep.Asleep, reasonRefused, "its node is gone, and it does not say that it is off")
	}
	return step{}
}

func (f *facts) booting() step {
	since := f.elapsed(f.Wake)
	switch {
	case f.ready:
		return f.to(sleep.Awake, reasonAwake, f.Why)
	case since >= f.limits.obeys && (f.answer == isOff || f.answer == silent && since < 3*f.limits.obeys):
		return f.failed(sleep.Asleep, reasonFailed, strings.TrimSpace("it was ordered to start and is not on "+f.doubt))
	case since >= 2*f.boot+f.limits.late:
		return f.failed(sleep.Asleep, reasonFailed, "its node is not Ready after twice its boot time")
	case f.answer != isOn:
		return step{order: sleep.Wake} // again: the replica that was to give the order may be dead
	}
	return step{}
}

// elapsed returns how long ago something was written with the state. Another replica may have written it, whose clock
// is ahead.
func (f *facts) elapsed(since time.Time) time.Duration {
	return min(f.now.Sub(since), f.now.Sub(f.seen))
}

// to returns the step into a state.
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

// excludeDisruption keeps a node out of what cluster components count as an outage of its zone.
const excludeDisruption = "node.kubernetes.io/exclude-disruption"

// write writes a step on a node as it was seen.
func (s *step) write(ctx context.Context, client kubernetes.Interface, n *v1.Node) (*v1.Node, error) {
	patch, err := s.patch(n)
	if err != nil {
		return n, err
	}
	written, err := client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return n, fmt.Errorf("writing the node: %w", err)
	}
	return written, nil
}

// patch returns the merge patch that writes a step on a node as it was seen, and on no other.
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
