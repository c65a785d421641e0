package sched

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// Plan is the decisions for all jobs of a snapshot, in the order of its queue.
type Plan []Decision

// Decision is one job's outcome.
type Decision struct {
	Job string
	// Node is "" where there is no opinion or no room, and while held; but a plan says which machine is to be awake by
	// then.
	Node   string
	Window Window // a Start at the snapshot's Now means: run now
	// Replicas are those of an elastic job from now on; 0: as many as it asks for by itself.
	Replicas int
	// not zero: the decision stands until then, and the job is to be asked about again; zero: it is final
	Again  time.Time
	Cost   Estimate
	Reason Reason
}

// Held reports whether the job is to be kept until Window.Start.
func (d *Decision) Held(now time.Time) bool { return d.Window.Start.After(now) }

// InLine reports whether the job is held by what else runs or waits: the driver keeps its place in the queue and asks
// again whenever a job ends, and at Again at the latest.
func (d *Decision) InLine() bool {
	return d.Reason.Kind == QuotaUsedUp || d.Reason.Kind == PlannedLater
}

// ReasonKind names why a decision fell as it did.
type ReasonKind uint8

// The reasons of a decision. docs/reference/reasons.md has these comments.
const (
	NoOpinion       ReasonKind = iota // nothing is known to decide on: the default scheduler decides
	Cheapest                          // the job runs now, on the node of least cost
	NothingToSave                     // the job may wait, but no later start saves as much as the policy asks
	CheaperLater                      // the job is held: a later window is cheaper
	DelayUsedUp                       // the job runs now: its latest start has come
	AlreadyReleased                   // the job runs now: it was released before, and a release is final
	NoFreshSignal                     // a signal is absent or too old: the job is scheduled without it
	BeyondForecast                    // the job runs now: the forecast ends before the job would
	NoRoom                            // no node has room
	AboveThreshold                    // the job is held: every site exceeds one of its limits
	WithinThreshold                   // the job runs now: some site keeps to its limits
	NoBenchmark                       // no node was measured on the job's class of work: it is scheduled without that
	BudgetUsedUp                      // the job is held: a budget is used up
	Suspended                         // the job ran, and waits again: what is left of it costs less later
	QuotaUsedUp                       // the job is held, and stays in line: as many cores run as may at this intensity
	SuspendedAbove                    // the job ran, and waits again: the signal is above a limit
	Planned                           // the job runs now, where a plan over all waiting jobs put it
	ThresholdUnmet                    // the job runs now: no site will keep to its limits in time, so waiting is no use
	PlannedLater                      // the job is held, and stays in line: a plan over all jobs starts it later
)

var reasonNames = [...]string{
	"NoOpinion", "Cheapest", "NothingToSave", "CheaperLater", "DelayUsedUp", "AlreadyReleased", "NoFreshSignal",
	"BeyondForecast", "NoRoom",
	"AboveThreshold", "WithinThreshold", "NoBenchmark", "BudgetUsedUp",
	"Suspended", "QuotaUsedUp", "SuspendedAboveThreshold", "Planned", "ThresholdUnmet",
	"PlannedLater",
}

// String returns the CamelCase name, as used in conditions, events and CSV.
func (k ReasonKind) String() string {
	if int(k) < len(reasonNames) {
		return reasonNames[k]
	}
	return fmt.Sprintf("Reason(%d)", uint8(k))
}

// InWords returns what a reason's name says to people, as far as that needs no number; else the name.
func InWords(name string) string {
	if i := slices.Index(reasonNames[:], name); i >= 0 && i < len(plainReasons) && plainReasons[i] != "" {
		return plainReasons[i]
	}
	return name
}

// Reason says why, with the numbers that the decision turned on.
type Reason struct {
	Kind ReasonKind
	// of all that is held or suspended: when the window opens; where a limit is exceeded: when it is kept, zero if
	// unknown
	Until  time.Time
	Latest time.Time // of all that is held or suspended: the job's latest start, or when it goes on at the latest
	// CheaperLater, Suspended: share of the cost of starting now that is saved; NothingToSave: that would be, if it is
	// too little
	Saving float64
	// CheaperLater, Suspended: emissions avoided at the expected power of the job, else the nominal one of its
	// request, where carbon counts
	Carbon energy.Grams
	// CheaperLater, Suspended: price avoided likewise, where the price counts; where both do, only "window" tells
	// them apart
	Money grid.Money

	// AboveThreshold, SuspendedAbove, QuotaUsedUp, WithinThreshold, ThresholdUnmet, and CheaperLater of a job whose
	// limits no site will keep to in time: the signal now
	Present   float64
	Limit     string  // and the annotation that limits it, without its prefix; "": the strategy does
	Threshold float64 // and the limit of it
	Unit      string  // and the unit of both
	Site      string  // and where that is, if there are several sites

	// PlannedLater: when it would start if others took no room, and the share of the cores there that they take then;
	// zero: at the same time
	Alone time.Time
	Taken float64

	Budget string // BudgetUsedUp: its name
	Cores  int64  // QuotaUsedUp: how many may be in use
}

// The units of thresholds. Prices are in the currency of their source.
const (
	unitCarbon = "gCO2e/kWh"
	unitPrice  = "per kWh"
)

// plainReasons are those that say all without a number.
var plainReasons = [...]string{
	NoOpinion:       "no opinion: the default scheduler decides",
	Cheapest:        "least cost now",
	DelayUsedUp:     "the allowed delay is used up",
	AlreadyReleased: "was released before and is not held again",
	NoFreshSignal:   "no fresh grid signal: scheduled without it",
	BeyondForecast:  "the forecast ends before the job would",
	NoRoom:          "no node has room",
	NoBenchmark:     "no node was measured on this class of work: scheduled without it",
	Planned:         "runs now, as planned together with all that waited",
}

// String renders the reason for people. It is the only place that does.
func (r Reason) String() string {
	if int(r.Kind) < len(plainReasons) && plainReasons[r.Kind] != "" {
		return plainReasons[r.Kind]
	}
	switch r.Kind {
	case CheaperLater:
		return "held" + r.untilCheaper() + r.unmet() + r.byLatest("starts")
	case NothingToSave:
		return r.tooLittle()
	case ThresholdUnmet:
		return r.tooLittle() + r.unmet()
	case PlannedLater:
		return "held" + r.untilCheaper() + ", as planned together with all that waits" + r.crowd() +
			r.byLatest("starts")
	case Suspended:
		return "suspended" + r.untilCheaper() + r.byLatest("goes on")
	case AboveThreshold:
		return "held" + r.above() + r.byLatest("starts")
	case SuspendedAbove:
		return "suspended" + r.above() + r.byLatest("goes on")
	case WithinThreshold:
		return r.present() + ", within " + r.limit()
	case BudgetUsedUp:
		return r.usedUp()
	case QuotaUsedUp:
		return fmt.Sprintf("held until %s or until cores become free: at %s no more than %d may be in use%s",
			r.Until.UTC().Format(time.RFC3339), r.present(), r.Cores, r.byLatest("starts"))
	}
	return r.Kind.String()
}

func (r *Reason) byLatest(does string) string {
	return "; " + does + " by " + r.Latest.UTC().Format(time.RFC3339) + " at the latest"
}

func (r *Reason) untilCheaper() string {
	if r.Kind == PlannedLater && r.Saving == 0 {
		return fmt.Sprintf(" until %s, when there is room", r.Until.UTC().Format(time.RFC3339))
	}
	text := fmt.Sprintf(" until %s: saves an estimated %.0f%%", r.Until.UTC().Format(time.RFC3339), 100*r.Saving)
	if r.Carbon == 0 && r.Money == 0 {
		return text
	}
	return text + " (" + r.saved() + ")"
}

// crowd says what is in the way of the cheapest start.
func (r *Reason) crowd() string {
	if r.Alone.IsZero() {
		return ""
	}
	return fmt.Sprintf(" (alone it would start at %s, when others take %.0f%% of the cores)",
		r.Alone.UTC().Format(time.RFC3339), 100*r.Taken)
}

func (r *Reason) saved() string {
	switch {
	case r.Money == 0:
		return r.Carbon.String()
	case r.Carbon == 0:
		return fmt.Sprintf("%.4g in money", float64(r.Money))
	}
	return fmt.Sprintf("%s, %.4g in money", r.Carbon, float64(r.Money))
}

// tooLittle says why a job runs that may wait.
func (r *Reason) tooLittle() string {
	switch {
	case r.Saving > 0:
	case r.Kind == ThresholdUnmet:
		return "waiting saves nothing that is known"
	default:
		return "waiting saves nothing"
	}
	return "waiting" + r.untilCheaper() + ", less than hold.minSaving, minSavingPerHour or minSavingGrams asks"
}

// unmet says that limits cannot be kept; "" where there is none.
func (r *Reason) unmet() string {
	if r.Unit == "" {
		return ""
	}
	return ": " + r.present() + ", and no forecast falls to " + r.limit() + " in time"
}

// limit names a limit.
func (r *Reason) limit() string {
	if r.Limit == "" {
		return "the limit of " + r.quantity(r.Threshold)
	}
	return "the " + r.Limit + " of " + r.quantity(r.Threshold)
}

func (r *Reason) above() string {
	until, comment := r.Until, ""
	if until.IsZero() {
		until, comment = r.Latest, ", and the forecast does not fall below it before then"
		if r.Limit != "" {
			comment = ", and the forecast ends before it falls below"
		}
	}
	return fmt.Sprintf(" until %s: %s, above %s%s", until.UTC().Format(time.RFC3339), r.present(), r.limit(), comment)
}

func (r *Reason) present() string {
	if r.Site == "" {
		return r.quantity(r.Present) + " now"
	}
	return r.quantity(r.Present) + " now at " + r.Site
}

func (r *Reason) quantity(v float64) string { return fmt.Sprintf("%.4g %s", v, r.Unit) }
