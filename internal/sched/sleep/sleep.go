// Package sleep decides which machines sleep and which wake. As package sched it is pure: the same Snapshot gives the
// same Plan, in the simulator, in shadow mode and on a cluster.
//
// A machine sleeps once it has been empty for as long as a boot costs to win back (the ski-rental rule, which never
// spends more than twice what perfect foresight would), unless planned work, headroom, the least number awake or its
// cycles keep it awake. A machine wakes for work that fits on no machine that is awake, ahead of a planned start, and
// to keep headroom.
package sleep

import (
	"cmp"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// State is what a machine does.
type State string

// The states of machines.
const (
	Awake    State = "awake"
	Stopping State = "stopping" // it was asked to shut down
	Asleep   State = "asleep"
	Booting  State = "booting"
)

// Machine is a node that may sleep, or that counts because it is awake.
type Machine struct {
	Name     string            `json:"name"`
	Zone     string            `json:"zone,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Capacity sched.Resources   `json:"capacity"`
	Free     sched.Resources   `json:"free"` // while it is awake; else all of its capacity is
	Jobs     int               `json:"jobs,omitempty"`
	Closed   bool              `json:"closed,omitempty"` // cordoned, or for special work alone
	Profile  *energy.Profile   `json:"profile"`
	Speed    float64           `json:"speed,omitempty"`
	PUE      float64           `json:"pue,omitempty"`

	State State `json:"state"`
	// Since is when the state began; of a machine that is awake, when its last job left it.
	Since  time.Time `json:"since"`
	Keep   string    `json:"keep,omitempty"`   // why it must not sleep; "": it may
	Sleeps int       `json:"sleeps,omitempty"` // how often it was sent to sleep in the last 24 hours
	Failed int       `json:"failed,omitempty"` // boots in a row that failed; while it boots, this one if it is late

	Woken    time.Time `json:"woken,omitzero"`     // last order to wake; zero: none is known
	WokenFor string    `json:"wokenFor,omitempty"` // owner of the work that order was given for
	Owner    string    `json:"owner,omitempty"`    // owner of the work that is bound to it while it sleeps
	// ByHand reports that all of that work was bound past any scheduler: it is the last to be woken for.
	ByHand bool `json:"byHand,omitempty"`
}

// Need is work that needs a machine: it fits on none that is awake, or it is planned.
type Need struct {
	Job      string            `json:"job"`
	Owner    string            `json:"owner,omitempty"` // namespace or user: owners share Policy.WakesPerMinute
	At       time.Time         `json:"at,omitzero"`     // when it is planned to start; zero: it waits now
	Request  sched.Resources   `json:"request"`
	Selector map[string]string `json:"selector,omitempty"`
	Machines []string          `json:"machines,omitempty"` // sorted: those that suit it otherwise; none: all do
	Duration time.Duration     `json:"duration,omitempty"`
}

// Policy says how far machines may sleep.
type Policy struct {
	// Headroom is the share of what is in use that stays free on machines that are awake, for what comes next.
	Headroom float64 `json:"headroom,omitempty"`
	// MinAwake is how many machines of each zone stay awake.
	MinAwake int `json:"minAwake,omitempty"`
	// After is for how long a machine is empty at least before it sleeps.
	After time.Duration `json:"after,omitempty"`
	// MaxCycles is how often a machine is sent to sleep in 24 hours at most; 0: any number.
	MaxCycles int `json:"maxCycles,omitempty"`
	// Lead is how long before a planned start its machine is to be awake.
	Lead time.Duration `json:"lead,omitempty"`
	// WakesPerMinute is the maximum number of machines that are ordered to wake within a minute, which limits inrush
	// current and what one owner can switch on; 0: no limit.
	WakesPerMinute int `json:"wakesPerMinute,omitempty"`
}

// DefaultPolicy returns the policy that applies unless something else is configured.
func DefaultPolicy() Policy {
	return Policy{Headroom: 0.1, MaxCycles: 12, Lead: 30 * time.Second, WakesPerMinute: 60}
}

// Snapshot is all that a decision depends on.
type Snapshot struct {
	Now      time.Time `json:"now"`
	Policy   Policy    `json:"policy"`
	Machines []Machine `json:"machines"` // sorted by name
	Needs    []Need    `json:"needs,omitempty"`
	// Largest is the most of each resource that one job of the last hour asked for: headroom includes one machine with
	// room for it, if any is so large.
	Largest sched.Resources `json:"largest,omitzero"`
}

// Verb is what is to be done with a machine.
type Verb string

// What is done.
const (
	Stay  Verb = ""
	Sleep Verb = "sleep"
	Wake  Verb = "wake"
)

// Verdict is what is decided on one machine, and why.
type Verdict struct {
	Do     Verb      `json:"do,omitempty"`
	Reason Reason    `json:"reason"`
	For    string    `json:"for,omitempty"`   // the job that it wakes for, or what keeps it awake
	Owner  string    `json:"owner,omitempty"` // of the work that it wakes for
	Until  time.Time `json:"until,omitzero"`  // when the reason may end by itself
}

// Reason is why a machine does what it does.
type Reason string

// The reasons.
const (
	Works       Reason = "works"          // something runs on it
	Changing    Reason = "changing"       // it shuts down or boots
	JustEmptied Reason = "just-emptied"   // a boot would cost more than the sleep would save so far
	SavesNone   Reason = "saves-nothing"  // it draws as much asleep
	Refused     Reason = "must-stay"      // Machine.Keep says why
	ForPlanned  Reason = "planned-work"   // work that is planned needs it
	ForWaiting  Reason = "waiting-work"   // work that fits on no machine that is awake needs it
	ForHeadroom Reason = "headroom"       // it is needed for what comes next
	MinAwake    Reason = "least-awake"    // its zone has no more machines awake than it must have
	Cycled      Reason = "cycles-used-up" // it was sent to sleep as often as a day allows
	Spare       Reason = "not-needed"     // it sleeps
	BootFailed  Reason = "boot-failed"    // it is not tried again yet
	WakeLimit   Reason = "wake-limit"     // it wakes when Policy.WakesPerMinute permits
)

// Plan is a decision on each machine.
type Plan struct {
	Verdicts []Verdict `json:"verdicts"`        // by index of Snapshot.Machines
	Next     time.Time `json:"next,omitzero"`   // when to ask again although nothing happens; zero: need not
	Unmet    []string  `json:"unmet,omitempty"` // jobs that no machine would have room for, asleep or awake
}

var noProfile energy.Profile

// profile returns the machine's power profile, or an empty one if it has none.
func (m *Machine) profile() *energy.Profile { return cmp.Or(m.Profile, &noProfile) }

// BootTime returns how long a machine takes from the order to wake until work can begin.
func (m *Machine) BootTime() time.Duration { return m.profile().BootTime() }

// BreakEven returns for how long a machine must sleep to save what its boot costs. ok is false where it never does.
func (m *Machine) BreakEven() (d time.Duration, ok bool) {
	p := m.profile()
	saves := float64(p.Power(0) - p.Sleep)
	if !(saves > 0) {
		return 0, false
	}
	return time.Duration(float64(p.WakeUp) / saves * float64(time.Second)), true
}

// Horizon returns how long before planned work it is too late to send a machine to sleep: it would have to wake before
// the boot is won back.
func (m *Machine) Horizon(p *Policy) time.Duration {
	breakEven, _ := m.BreakEven()
	return m.BootTime() + p.Lead + max(breakEven, p.After)
}

// perCore is what a machine draws per core at full load: of machines that may stay awake, the least ones do.
func (m *Machine) perCore() float64 {
	return float64(m.profile().Power(1)) / float64(max(m.Capacity.MilliCPU, 1))
}
