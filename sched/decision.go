package sched

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/energy"
)

// Plan is the decisions for all jobs of a snapshot, in the order of its queue.
type Plan []Decision

// Decision is one job's outcome.
type Decision struct {
	Job    string
	Node   string // "" while held, and where there is no opinion or no room
	Window Window // a Start at the snapshot's Now means: run now
	Cost   Estimate
	Reason Reason
}

// Held reports whether the job is to be kept until Window.Start.
func (d *Decision) Held(now time.Time) bool { return d.Window.Start.After(now) }

// ReasonKind names why a decision fell as it did.
type ReasonKind uint8

// The reasons of a decision.
const (
	NoOpinion       ReasonKind = iota // nothing to decide on
	Cheapest                          // runs now, on the node of least cost
	NothingToSave                     // may wait, but no later start is cheaper
	CheaperLater                      // held: a later window is cheaper
	DelayUsedUp                       // its latest start has come
	AlreadyReleased                   // was let go before; released is final
	NoFreshSignal                     // a signal is absent or too old: nothing to decide on
	BeyondForecast                    // the forecast ends before the job would: no hold on what is unknown
	NoRoom                            // no node has room
)

var reasonNames = [...]string{
	"NoOpinion", "Cheapest", "NothingToSave", "CheaperLater", "DelayUsedUp", "AlreadyReleased", "NoFreshSignal", "BeyondForecast", "NoRoom",
}

// String returns the CamelCase name, as used in conditions, events and CSV.
func (k ReasonKind) String() string {
	if int(k) < len(reasonNames) {
		return reasonNames[k]
	}
	return fmt.Sprintf("Reason(%d)", uint8(k))
}

// Reason says why, with the numbers that the decision turned on.
type Reason struct {
	Kind   ReasonKind
	Until  time.Time    // CheaperLater: when the window opens
	Latest time.Time    // CheaperLater: the job's latest start
	Saving float64      // CheaperLater: share of the cost of starting now that is saved
	Carbon energy.Grams // CheaperLater: emissions avoided at the nominal power of the request
}

// String renders the reason for people. It is the only place that does.
func (r Reason) String() string {
	switch r.Kind {
	case NoOpinion:
		return "no opinion: the default scheduler decides"
	case Cheapest:
		return "least cost now"
	case NothingToSave:
		return "waiting saves nothing"
	case CheaperLater:
		return fmt.Sprintf("held until %s: saves an estimated %.0f%% (%s); starts by %s at the latest",
			r.Until.UTC().Format(time.RFC3339), 100*r.Saving, r.Carbon, r.Latest.UTC().Format(time.RFC3339))
	case DelayUsedUp:
		return "the allowed delay is used up"
	case AlreadyReleased:
		return "was released before and is not held again"
	case NoFreshSignal:
		return "no fresh grid signal: scheduled without it"
	case BeyondForecast:
		return "the forecast ends before the job would"
	case NoRoom:
		return "no node has room"
	}
	return r.Kind.String()
}
