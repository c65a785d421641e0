package sched

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// Plan contains the decisions for all jobs of a snapshot, in the order of its queue.
type Plan []Decision

// Decision is the result for one job.
type Decision struct {
	Job string
	// Node is empty if there is no opinion or no capacity. It is usually also empty for a held job; a joint plan
	// sets it to the machine that must be awake when the job starts.
	Node   string
	Window Window // a Start equal to the snapshot's Now means that the job runs now
	// Replicas is the number of replicas of an elastic job from now on; 0 means the number that the job requests.
	Replicas int
	// Again is the time when the job must be planned again. If zero, the decision is final.
	Again  time.Time
	Cost   Estimate
	Reason Reason
}

// Held reports whether the job is held until Window.Start.
func (d *Decision) Held(now time.Time) bool { return d.Window.Start.After(now) }

// InLine reports whether the job is held because of other running or waiting jobs. The driver must retain its
// position in the queue and plan it again whenever a job finishes, and at Again at the latest.
func (d *Decision) InLine() bool {
	return d.Reason.Kind == QuotaUsedUp || d.Reason.Kind == PlannedLater
}

// ReasonKind is the kind of reason for a decision.
type ReasonKind uint8

// The reasons of decisions. The trailing comments are copied to docs/reference/reasons.md.
const (
	NoOpinion       ReasonKind = iota // no data is available for a decision: the default scheduler decides
	Cheapest                          // the job runs now, on the node with the lowest cost
	NothingToSave                     // the job may wait, but no later start saves as much as the policy requires
	CheaperLater                      // the job is held: a later start is cheaper
	DelayUsedUp                       // the job runs now: its latest start has been reached
	AlreadyReleased                   // the job runs now: it was released before, and a release is final
	NoFreshSignal                     // a signal is missing or too old: the job is scheduled without it
	BeyondForecast                    // the job runs now: the forecast ends before the expected end of the job
	NoRoom                            // no node has enough free capacity
	AboveThreshold                    // the job is held: every site exceeds one of its limits
	WithinThreshold                   // the job runs now: at least one site is within its limits
	NoBenchmark                       // no node has a benchmark for the class of work: the job is scheduled without it
	BudgetUsedUp                      // the job is held: a budget is exhausted
	Suspended                         // the job was running and is suspended: the remaining work costs less later
	QuotaUsedUp                       // the job waits in the queue: the core quota at this intensity is exhausted
	SuspendedAbove                    // the job was running and is suspended: the signal is above a limit
	Planned                           // the job runs now, according to a joint plan of all waiting jobs
	ThresholdUnmet                    // the job runs now: no site will be within its limits in time
	PlannedLater                      // the job waits in the queue: a joint plan of all jobs starts it later
	FlatSignal                        // the job runs now: the signal varies too little within a day
	ScarceCapacity                    // the job runs now: capacity for it may be short later
)

var reasonNames = [...]string{
	"NoOpinion", "Cheapest", "NothingToSave", "CheaperLater", "DelayUsedUp", "AlreadyReleased", "NoFreshSignal",
	"BeyondForecast", "NoRoom",
	"AboveThreshold", "WithinThreshold", "NoBenchmark", "BudgetUsedUp",
	"Suspended", "QuotaUsedUp", "SuspendedAboveThreshold", "Planned", "ThresholdUnmet",
	"PlannedLater", "FlatSignal", "ScarceCapacity",
}

// String returns the CamelCase name, as used in conditions, events and CSV.
func (k ReasonKind) String() string {
	if int(k) < len(reasonNames) {
		return reasonNames[k]
	}
	return fmt.Sprintf("Reason(%d)", uint8(k))
}

// InWords returns a description of the reason with the given name, or the name itself if its description requires
// numbers.
func InWords(name string) string {
	if i := slices.Index(reasonNames[:], name); i >= 0 && i < len(plainReasons) && plainReasons[i] != "" {
		return plainReasons[i]
	}
	return name
}

// Reason is the reason for a decision, including the numbers that the decision depends on.
type Reason struct {
	Kind ReasonKind
	// Until is set for all held or suspended jobs. It is the start of the window or, if a limit is exceeded, the
	// time when the signal falls to the limit, or zero if this is unknown.
	Until  time.Time
	Latest time.Time // for held or suspended jobs: the latest start or resume
	// Saving is, for CheaperLater and Suspended, the saving as a fraction of the cost of an immediate start. For
	// NothingToSave, it is the saving that was too small.
	Saving float64
	// Carbon is, for CheaperLater and Suspended, the avoided emissions if carbon is considered. They are based on
	// the expected power of the job, or on the nominal power of its request.
	Carbon energy.Grams
	// Money is, for CheaperLater and Suspended, the avoided cost if the price is considered. If both carbon and
	// price are considered, only "window" sets Carbon and Money separately.
	Money grid.Money

	// Present is the current value of the signal. It is set for AboveThreshold, SuspendedAbove, QuotaUsedUp,
	// WithinThreshold, ThresholdUnmet, and for CheaperLater if no site will be within the job's limits in time.
	Present   float64
	Limit     string  // annotation with the limit, without prefix; empty if the strategy sets the limit
	Threshold float64 // value of the limit
	Unit      string  // unit of Present and Threshold
	Site      string  // site of the signal, or of the saving if the rule considers one site, if there are several

	// Alone and Taken are set for PlannedLater. Alone is the start of the job if other jobs used no capacity, and
	// Taken is the fraction of the cores that they use at that time. Both are zero if the start would be the same.
	Alone time.Time
	Taken float64

	Budget string // name of the budget, for BudgetUsedUp
	Cores  int64  // maximum number of cores in use, for QuotaUsedUp
}

// Units of thresholds. Prices are in the currency of their source.
const (
	unitCarbon = "gCO2e/kWh"
	unitPrice  = "per kWh"
)

// plainReasons contains the descriptions that do not depend on numbers.
var plainReasons = [...]string{
	NoOpinion:       "no opinion: the default scheduler decides",
	Cheapest:        "least cost now",
	DelayUsedUp:     "the allowed delay is exhausted",
	AlreadyReleased: "was released before and is not held again",
	NoFreshSignal:   "no fresh grid signal: scheduled without it",
	BeyondForecast:  "the forecast ends before the expected end of the job",
	NoRoom:          "no node has enough free capacity",
	NoBenchmark:     "no node has a benchmark for this class of work: scheduled without it",
	Planned:         "scheduled now by the joint plan of all waiting jobs",
	FlatSignal:      "scheduled now: the signal varies too little within a day for waiting to pay off",
	ScarceCapacity:  "scheduled now: capacity for it has been short recently and may be short later",
}

// String returns a human-readable description of the reason. All descriptions are produced here.
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
		return "held" + r.untilCheaper() + ", according to the joint plan of all waiting jobs" + r.crowd() +
			r.byLatest("starts")
	case Suspended:
		return "suspended" + r.untilCheaper() + r.byLatest("resumes")
	case AboveThreshold:
		return "held" + r.above() + r.byLatest("starts")
	case SuspendedAbove:
		return "suspended" + r.above() + r.byLatest("resumes")
	case WithinThreshold:
		return r.present() + ", within " + r.limit()
	case BudgetUsedUp:
		return r.usedUp()
	case QuotaUsedUp:
		return fmt.Sprintf("held until %s or until cores become free: at %s, at most %d cores may be in use%s",
			r.Until.UTC().Format(time.RFC3339), r.present(), r.Cores, r.byLatest("starts"))
	}
	return r.Kind.String()
}

func (r *Reason) byLatest(does string) string {
	return "; " + does + " by " + r.Latest.UTC().Format(time.RFC3339) + " at the latest"
}

func (r *Reason) untilCheaper() string {
	if r.Kind == PlannedLater && r.Saving == 0 {
		return fmt.Sprintf(" until %s, when there is capacity", r.Until.UTC().Format(time.RFC3339))
	}
	text := fmt.Sprintf(" until %s: saves an estimated %.0f %%", r.Until.UTC().Format(time.RFC3339), 100*r.Saving)
	if r.Carbon == 0 && r.Money == 0 {
		return text + r.atSite()
	}
	return text + " (" + r.saved() + ")" + r.atSite()
}

// atSite returns the site that the saving refers to, unless the present value of its signal is also described.
func (r *Reason) atSite() string {
	if r.Site == "" || r.Unit != "" {
		return ""
	}
	return " at " + r.Site
}

// crowd describes why the job cannot start at its cheapest time.
func (r *Reason) crowd() string {
	if r.Alone.IsZero() {
		return ""
	}
	return fmt.Sprintf(" (without other jobs it would start at %s, when they use %.0f %% of the cores)",
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

// tooLittle describes why a job that may wait runs now.
func (r *Reason) tooLittle() string {
	switch {
	case r.Saving > 0:
	case r.Kind == ThresholdUnmet:
		return "waiting has no known saving"
	default:
		return "waiting saves nothing" + r.atSite()
	}
	return "waiting" + r.untilCheaper() + ", less than required by hold.minSaving, minSavingPerHour or minSavingGrams"
}

// unmet describes that the limits cannot be met, or returns an empty string if there are no limits.
func (r *Reason) unmet() string {
	if r.Unit == "" {
		return ""
	}
	return ": " + r.present() + ", and no forecast falls to " + r.limit() + " in time"
}

// limit returns the name and value of the limit.
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
			comment = ", and the forecast ends before it falls below this value"
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
