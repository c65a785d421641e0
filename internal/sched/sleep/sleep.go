// Package sleep decides which machines to put to sleep and which to wake. Like package sched it is a pure function:
// the same Snapshot results in the same Plan in the simulator, in shadow mode and in a cluster.
//
// A machine is put to sleep after it has been empty for as long as it must sleep to recover the energy of a boot.
// This is the ski-rental rule, and its cost is at most twice the cost with perfect foresight. Planned work,
// headroom, the minimum number of awake machines and the maximum number of cycles can prevent a machine from
// sleeping. A machine is woken for work that fits on no awake machine, before a planned start, and to provide
// headroom.
package sleep

import (
	"cmp"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// State is the power state of a machine.
type State string

// Power states of machines.
const (
	Awake    State = "awake"
	Stopping State = "stopping" // shutdown was requested
	Asleep   State = "asleep"
	Booting  State = "booting"
)

// Machine is a node that may be put to sleep, or that counts because it is awake.
type Machine struct {
	Name     string            `json:"name"`
	Zone     string            `json:"zone,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Capacity sched.Resources   `json:"capacity"`
	Free     sched.Resources   `json:"free"` // only while the machine is awake; otherwise Capacity is free
	Jobs     int               `json:"jobs,omitempty"`
	Closed   bool              `json:"closed,omitempty"` // cordoned or reserved for special work
	Profile  *energy.Profile   `json:"profile"`
	Speed    float64           `json:"speed,omitempty"`
	PUE      float64           `json:"pue,omitempty"`

	State State `json:"state"`
	// Since is the start of the state. For an awake machine it is the time when the last job finished.
	Since  time.Time `json:"since"`
	Keep   string    `json:"keep,omitempty"`   // reason why the machine must not sleep; empty if it may
	Sleeps int       `json:"sleeps,omitempty"` // number of times it was put to sleep in the last 24 hours
	Failed int       `json:"failed,omitempty"` // consecutive failed boots, including the current boot if it is late

	Woken    time.Time `json:"woken,omitzero"`     // last wake order; zero if unknown
	WokenFor string    `json:"wokenFor,omitempty"` // owner of the work that the last wake order was for
	Owner    string    `json:"owner,omitempty"`    // owner of the work bound to the machine while it sleeps
	// ByHand is true if all of that work was bound without a scheduler. It has the lowest priority for waking.
	ByHand bool `json:"byHand,omitempty"`
}

// Need is work that requires a machine: it fits on no awake machine, or its start is planned.
type Need struct {
	Job      string            `json:"job"`
	Owner    string            `json:"owner,omitempty"` // namespace or user; owners share Policy.WakesPerMinute
	At       time.Time         `json:"at,omitzero"`     // planned start; zero if the work is waiting now
	Request  sched.Resources   `json:"request"`
	Selector map[string]string `json:"selector,omitempty"`
	Machines []string          `json:"machines,omitempty"` // sorted names of suitable machines; empty means all
	Duration time.Duration     `json:"duration,omitempty"`
}

// Policy configures the sleep of machines.
type Policy struct {
	// Headroom is the fraction of the used resources that remains free on awake machines for new work.
	Headroom float64 `json:"headroom,omitempty"`
	// MinAwake is the minimum number of awake machines per zone.
	MinAwake int `json:"minAwake,omitempty"`
	// After is the minimum time that a machine is empty before it is put to sleep.
	After time.Duration `json:"after,omitempty"`
	// MaxCycles limits how often a machine is put to sleep within 24 hours; 0 means no limit. Beyond half of it, a
	// machine must be empty for longer each time.
	MaxCycles int `json:"maxCycles,omitempty"`
	// Lead is the time before a planned start at which its machine must be awake.
	Lead time.Duration `json:"lead,omitempty"`
	// WakesPerMinute is the maximum number of machines woken within a minute. It limits the inrush current and the
	// number of machines that one owner can switch on; 0 means no limit.
	WakesPerMinute int `json:"wakesPerMinute,omitempty"`
}

// DefaultPolicy returns the default policy.
func DefaultPolicy() Policy {
	return Policy{Headroom: 0.1, MaxCycles: 12, Lead: 30 * time.Second, WakesPerMinute: 60}
}

// Snapshot contains all inputs of a decision.
type Snapshot struct {
	Now      time.Time `json:"now"`
	Policy   Policy    `json:"policy"`
	Machines []Machine `json:"machines"` // sorted by name
	Needs    []Need    `json:"needs,omitempty"`
	// Largest is the maximum of each resource that a single job requested in the last hour. Headroom includes one
	// machine with capacity for it, if any machine is large enough.
	Largest sched.Resources `json:"largest,omitzero"`
}

// Verb is an action on a machine.
type Verb string

// Actions on machines.
const (
	Stay  Verb = ""
	Sleep Verb = "sleep"
	Wake  Verb = "wake"
)

// Verdict is the decision for one machine and its reason.
type Verdict struct {
	Do     Verb      `json:"do,omitempty"`
	Reason Reason    `json:"reason"`
	For    string    `json:"for,omitempty"`   // job that it is woken for, or the reason why it must stay awake
	Owner  string    `json:"owner,omitempty"` // owner of the work that it is woken for
	Until  time.Time `json:"until,omitzero"`  // time when the reason may no longer apply
}

// Reason is the reason for the state of a machine.
type Reason string

// Reasons of verdicts.
const (
	Works       Reason = "works"          // jobs are running on it
	Changing    Reason = "changing"       // it is shutting down or booting
	JustEmptied Reason = "just-emptied"   // sleeping would not yet save the energy of a boot
	SavesNone   Reason = "saves-nothing"  // sleeping does not save power
	Refused     Reason = "must-stay"      // see Machine.Keep
	ForPlanned  Reason = "planned-work"   // it is needed for planned work
	ForWaiting  Reason = "waiting-work"   // it is needed for work that fits on no awake machine
	ForHeadroom Reason = "headroom"       // it is needed as headroom for new work
	MinAwake    Reason = "least-awake"    // its zone has only the minimum number of awake machines
	Cycled      Reason = "cycles-used-up" // it has reached Policy.MaxCycles
	Spare       Reason = "not-needed"     // it is not needed and sleeps
	BootFailed  Reason = "boot-failed"    // its last boot failed and it is not retried yet
	WakeLimit   Reason = "wake-limit"     // it is woken as soon as Policy.WakesPerMinute permits
)

// Plan contains the decisions for all machines.
type Plan struct {
	Verdicts []Verdict `json:"verdicts"`        // in the order of Snapshot.Machines
	Next     time.Time `json:"next,omitzero"`   // when to decide again without an event; zero if not required
	Unmet    []string  `json:"unmet,omitempty"` // jobs that fit on no machine, awake or asleep
}

var noProfile energy.Profile

// profile returns the machine's power profile, or an empty profile if it has none.
func (m *Machine) profile() *energy.Profile { return cmp.Or(m.Profile, &noProfile) }

// BootTime returns the time from the wake order until work can start.
func (m *Machine) BootTime() time.Duration { return m.profile().BootTime() }

// BreakEven returns how long a machine must sleep to recover the energy of its boot. It returns false if sleeping
// saves no power.
func (m *Machine) BreakEven() (d time.Duration, ok bool) {
	p := m.profile()
	saves := float64(p.Power(0) - p.Sleep)
	if !(saves > 0) {
		return 0, false
	}
	return time.Duration(float64(p.WakeUp) / saves * float64(time.Second)), true
}

// Horizon returns the minimum time before planned work at which putting a machine to sleep still saves energy.
func (m *Machine) Horizon(p *Policy) time.Duration {
	breakEven, _ := m.BreakEven()
	return m.BootTime() + p.Lead + max(breakEven, p.After)
}

// perCore returns the power per core at full load. Machines with lower values are preferred to stay awake.
func (m *Machine) perCore() float64 {
	return float64(m.profile().Power(1)) / float64(max(m.Capacity.MilliCPU, 1))
}
