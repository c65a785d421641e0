// Package dashboard is the page that people keep open: what the grid, the machines and the work do, from yesterday over
// now to what is planned, what that saved, and how sure that is. It makes the page of a [Model], wherever that came
// from, and serves it.
//
// A Model is all that a page shows: no figure of a page stands anywhere else. It knows no Kubernetes. Who serves a page
// gives a [Source]; what its user may, it may.
package dashboard

import (
	"context"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
)

// Model is what a page shows, at one instant. Parts that a page does not need, or that its user may not see, are empty.
type Model struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Title      string    `json:"title"` // the cluster, or the run
	Note       string    `json:"note,omitempty"`
	Now        time.Time `json:"now"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Past       bool      `json:"past,omitempty"`      // nothing changes any more: Now is the end
	Mode       string    `json:"mode,omitempty"`      // of the cluster: shadow, advise, enforce
	Enforcing  int       `json:"enforcing,omitempty"` // namespaces that enforce where the cluster does not
	Runs       []string  `json:"runs,omitempty"`      // that there are to look at
	Run        int       `json:"run"`                 // the one of them that this is

	Zones      []Zone          `json:"zones"`
	Power      *Power          `json:"power,omitempty"` // nil: unknown
	Jobs       []Job           `json:"jobs"`            // held, and with their starts behind them where that is known
	Saved      *Saved          `json:"saved,omitempty"`
	Namespaces []Use           `json:"namespaces"` // the largest first
	Budgets    []Budget        `json:"budgets"`    // the next to end first
	Decisions  []ledger.Record `json:"decisions,omitempty"`
	Findings   []Finding       `json:"findings,omitempty"`
	Strategies []Strategy      `json:"strategies,omitempty"`
	Unseen     []string        `json:"unseen,omitempty"` // what cannot be said, and why

	held []*Job // of Jobs; nil: not looked for yet
}

// KindDashboard is the kind of a model as a document.
const KindDashboard = "Dashboard"

// Line is a value over time.
type Line struct {
	Points []Point   `json:"points"`
	Until  time.Time `json:"until"` // how long the last point holds
}

// Point is a value that holds until the next point.
type Point struct {
	At      time.Time `json:"at"`
	Value   float64   `json:"value"`
	Low     *float64  `json:"low,omitempty"` // tenth and ninetieth percentile
	High    *float64  `json:"high,omitempty"`
	Unknown bool      `json:"unknown,omitempty"`
}

// Zone is an area of the grid.
type Zone struct {
	Name   string  `json:"name"`
	Carbon *Signal `json:"carbon,omitempty"`
	Price  *Signal `json:"price,omitempty"`
}

// Signal is a quantity of a zone.
type Signal struct {
	Line
	Unit       string     `json:"unit"`
	Now        *float64   `json:"now,omitempty"`
	Source     string     `json:"source,omitempty"`
	Forecast   string     `json:"forecast,omitempty"`
	Quality    string     `json:"quality"`
	AsOf       *time.Time `json:"asOf,omitempty"`
	AgeSeconds *float64   `json:"ageSeconds,omitempty"`
	Stale      bool       `json:"stale,omitempty"`
}

// Power is what all machines draw.
type Power struct {
	Points []Watts   `json:"points"`
	Until  time.Time `json:"until"`
	// StepSeconds is how long a point holds at most; 0: until the next.
	StepSeconds float64        `json:"stepSeconds,omitempty"`
	Baseline    *Line          `json:"baseline,omitempty"` // what would have been drawn
	Instead     string         `json:"instead,omitempty"`  // by which strategy
	Now         *float64       `json:"now,omitempty"`
	Estimated   float64        `json:"estimatedShare"`
	Quality     energy.Quality `json:"quality"`
	Where       string         `json:"where"` // at nodes, or at the sites' meters
	Nodes       int            `json:"nodes"`
	Guests      int            `json:"guests,omitempty"` // virtual machines: their hosts' power includes theirs
	Asleep      int            `json:"asleep"`
	Late        int            `json:"late"`        // nodes whose power is too old to be decided by
	Odd         int            `json:"implausible"` // nodes whose power a model of their hardware contradicts
}

// Watts is what is drawn until the next one.
type Watts struct {
	At        time.Time `json:"at"`
	Dynamic   float64   `json:"dynamic"` // for work
	Idle      float64   `json:"idle"`    // for being awake
	Asleep    float64   `json:"asleep"`
	Unknown   float64   `json:"unknown"`
	Estimated float64   `json:"estimatedShare"`
}

// Under adds what would have been drawn under the baseline of what was saved, where power is known hour by hour.
func (p *Power) Under(s *Saved) {
	if p == nil || len(p.Points) == 0 || s == nil || s.comparison == nil {
		return
	}
	first := p.Points[0].At
	moved := s.comparison.Moved(first, int(p.Points[len(p.Points)-1].At.Sub(first)/time.Hour)+1)
	p.Instead, p.Baseline = s.Against, &Line{Until: p.Until}
	for i := range p.Points {
		w, end := &p.Points[i], p.end(i)
		p.Baseline.Points = append(p.Baseline.Points, Point{
			At: w.At, Value: math.Max(0, w.Total()+moved[int(w.At.Sub(first)/time.Hour)]),
			Unknown: !end.After(s.comparison.Since()), // nothing that was decided then is compared
		})
		if i+1 < len(p.Points) && end.Before(p.Points[i+1].At) {
			p.Baseline.Points = append(p.Baseline.Points, Point{At: end, Unknown: true})
		}
	}
}

// Total is the sum.
func (w *Watts) Total() float64 { return w.Dynamic + w.Idle + w.Asleep + w.Unknown }

// Held is a Job or a pod that is held.
type Held struct {
	Namespace    string     `json:"namespace"`
	Kind         string     `json:"kind"`
	Name         string     `json:"name"`
	Since        time.Time  `json:"since"`
	PlannedStart *time.Time `json:"plannedStart,omitempty"`
	LatestStart  *time.Time `json:"latestStart,omitempty"`
	Saving       *float64   `json:"saving,omitempty"` // share
	SavedGrams   *float64   `json:"savedGrams,omitempty"`
	Why          string     `json:"why,omitempty"`
}

// Job is work that is held, or was.
type Job struct {
	Held
	Team        string        `json:"team,omitempty"`
	PlannedEnd  *time.Time    `json:"plannedEnd,omitempty"`
	Started     *time.Time    `json:"started,omitempty"`
	Finished    *time.Time    `json:"finished,omitempty"`
	Node        string        `json:"node,omitempty"`
	Energy      energy.Joules `json:"energyJoules,omitempty"` // that it adds, estimated
	Grams       energy.Grams  `json:"grams,omitempty"`
	MayWait     bool          `json:"mayWait"`
	Unscheduled bool          `json:"unscheduled,omitempty"` // never ran, for want of room
}

// Saved is what decisions saved.
type Saved struct {
	Against   string             `json:"against"`
	Energy    *report.Difference `json:"energyKWh,omitempty"`
	Emissions *report.Difference `json:"emissionsKg,omitempty"`
	Cost      *report.Difference `json:"cost,omitempty"`
	Currency  string             `json:"currency,omitempty"`
	Jobs      int                `json:"jobs"`
	Held      int                `json:"held"`
	MeanWait  *float64           `json:"meanWaitSeconds,omitempty"`
	Late      *int               `json:"late,omitempty"` // started after their latest start
	Left      map[string]int     `json:"left,omitempty"` // jobs that are not compared, by why
	Steps     []Step             `json:"steps,omitempty"`
	Unit      string             `json:"unit,omitempty"`       // of the steps
	Few       int                `json:"tooFewJobs,omitempty"` // so many: they have no interval
	Method    string             `json:"method,omitempty"`
	Command   string             `json:"command,omitempty"` // that says the same
	Shadow    bool               `json:"shadow,omitempty"`  // it would have been saved

	comparison *report.Comparison // whose sum it is, if of one
}

// Step is a part of what was saved; negative: a loss.
type Step struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Why   string  `json:"why"`
}

// Use is what a namespace used.
type Use struct {
	Cluster   string   `json:"cluster,omitempty"` // where that has a name
	Name      string   `json:"name"`
	KWh       float64  `json:"energyKWh"`
	Kg        *float64 `json:"emissionsKg,omitempty"`
	Estimated float64  `json:"estimatedShare"`
}

// Budget is an EnergyBudget, and how much of it is used.
type Budget struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Period    string     `json:"period"`
	Percent   float64    `json:"percent"`
	Ends      *time.Time `json:"ends,omitempty"`   // the period
	UsedUp    *time.Time `json:"usedUp,omitempty"` // all of it, if it goes on like this
	Closed    *time.Time `json:"closed,omitempty"` // new work that may wait does not start before
	Suspended int32      `json:"suspended,omitempty"`
}

// Strategy is a strategy of a comparison.
type Strategy struct {
	Name      string           `json:"name"`
	WaitHours float64          `json:"meanWaitHours"`
	Kg        float64          `json:"emissionsKg"`
	KWh       float64          `json:"energyKWh"`
	Saving    *report.Interval `json:"saving,omitempty"` // of emissions, share
	Best      bool             `json:"best,omitempty"`   // none emits less without waiting longer
	Baseline  bool             `json:"baseline,omitempty"`
}

// View is a part of the page.
type View string

// The views.
const (
	Overview  View = "overview"
	Decisions View = "decisions"
	Savings   View = "savings"
	Compare   View = "compare"
	Doctor    View = "doctor"
)

// Query says what is asked of a source.
type Query struct {
	View     View
	From, To time.Time // zero: as the source likes
	Run      int       // of several
	Cluster  string    // of a federation, for [Source.Origin]; "": the one that is asked
}

// Source gives what pages show. Its answers belong to the caller.
type Source interface {
	Model(ctx context.Context, q Query) (*Model, error)
	// Job tells of one Job or pod; nil: there is none.
	Job(ctx context.Context, q Query, kind, namespace, name string) (*JobView, error)
	// Decision returns one decision with what it depended on, if the user may see that; nil: there is none.
	Decision(ctx context.Context, q Query, d *ledger.Record) (*ledger.Record, error)
	// Origin takes what a namespace used apart, or one owner there (kind/name); nil: nothing was booked.
	Origin(ctx context.Context, q Query, namespace, owner string) (*Origin, error)
	// Live reports whether anything can change.
	Live() bool
}

// Act is what a user may ask for on a page.
type Act struct {
	Do        string `json:"do"`   // run-now, or mode
	Kind      string `json:"kind"` // job or pod
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Mode      string `json:"mode"`
}

// What can be done.
const (
	DoRunNow = "run-now"
	DoMode   = "mode"
)

// An Actor is a source whose user may change something, with rights of their own.
type Actor interface {
	Source
	// Effect says what would come of an act, and what to type for the same.
	Effect(ctx context.Context, a Act) (effect, command string, err error)
	Act(ctx context.Context, a Act) (result string, err error)
}
