// Package dashboard implements the web page of a cluster or of simulation results. The page shows the grid, the
// power of machines and the work, from yesterday to the planned future, with the savings and their uncertainty. The
// package renders and serves pages of a [Model].
//
// A Model contains all figures of a page and does not depend on Kubernetes. Models come from a [Source], which acts
// with the permissions of its user.
package dashboard

import (
	"context"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
)

// Model contains the data of a page at one time. Parts are empty if the page does not need them or the user may not
// see them.
type Model struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Title      string    `json:"title"` // the name of the cluster or of the run
	Note       string    `json:"note,omitempty"`
	Now        time.Time `json:"now"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Past       bool      `json:"past,omitempty"`      // the data does not change any more, and Now is the end
	Mode       string    `json:"mode,omitempty"`      // mode of the cluster: shadow, advise or enforce
	Enforcing  int       `json:"enforcing,omitempty"` // number of namespaces that enforce although the cluster does not
	Runs       []string  `json:"runs,omitempty"`      // names of all runs
	Run        int       `json:"run"`                 // index of this run

	Zones      []Zone          `json:"zones"`
	Power      *Power          `json:"power,omitempty"` // nil if unknown
	Jobs       []Job           `json:"jobs"`            // held jobs, including finished ones if they are known
	Saved      *Saved          `json:"saved,omitempty"`
	Namespaces []Use           `json:"namespaces"` // in descending order of energy
	Machines   []Use           `json:"machines,omitempty"`
	Budgets    []Budget        `json:"budgets"` // in order of their exhaustion
	Decisions  []ledger.Record `json:"decisions,omitempty"`
	Findings   []Finding       `json:"findings,omitempty"`
	Strategies []Strategy      `json:"strategies,omitempty"`
	Unseen     []string        `json:"unseen,omitempty"` // unavailable data, with the reason

	held []*Job // cached held jobs; nil if not computed yet
}

// KindDashboard is the kind of a Model document.
const KindDashboard = "Dashboard"

// Line is a value over time.
type Line struct {
	Points []Point   `json:"points"`
	Until  time.Time `json:"until"` // end of the validity of the last point
}

// Point is a value that is valid until the next point.
type Point struct {
	At      time.Time `json:"at"`
	Value   float64   `json:"value"`
	Low     *float64  `json:"low,omitempty"` // tenth and ninetieth percentile
	High    *float64  `json:"high,omitempty"`
	Unknown bool      `json:"unknown,omitempty"`
}

// Zone is a grid zone.
type Zone struct {
	Name   string  `json:"name"`
	Carbon *Signal `json:"carbon,omitempty"`
	Price  *Signal `json:"price,omitempty"`
}

// Signal is a quantity of a zone.
type Signal struct {
	Line
	Unit     string   `json:"unit"`
	Now      *float64 `json:"now,omitempty"`
	Source   string   `json:"source,omitempty"`
	Forecast string   `json:"forecast,omitempty"`
	// ForecastError is the error of forecasts one day ahead over the last four weeks, in percent.
	ForecastError *float64   `json:"forecastErrorPercent,omitempty"`
	Quality       string     `json:"quality"`
	AsOf          *time.Time `json:"asOf,omitempty"`
	AgeSeconds    *float64   `json:"ageSeconds,omitempty"`
	Stale         bool       `json:"stale,omitempty"`
}

// Power is the power of all machines.
type Power struct {
	Points []Watts   `json:"points"`
	Until  time.Time `json:"until"`
	// StepSeconds is the maximum validity of a point. If it is zero, a point is valid until the next one.
	StepSeconds float64        `json:"stepSeconds,omitempty"`
	Baseline    *Line          `json:"baseline,omitempty"` // the estimated power with the baseline
	Instead     string         `json:"instead,omitempty"`  // the baseline strategy
	Now         *float64       `json:"now,omitempty"`
	Estimated   float64        `json:"estimatedShare"`
	Quality     energy.Quality `json:"quality"`
	Where       string         `json:"where"` // at nodes, or at the sites' meters
	Nodes       int            `json:"nodes"`
	Guests      int            `json:"guests,omitempty"` // virtual machines, included in their hosts
	Asleep      int            `json:"asleep"`
	Late        int            `json:"late"`        // number of nodes with outdated power
	Odd         int            `json:"implausible"` // nodes with power that contradicts their hardware
}

// Watts is the power until the next point.
type Watts struct {
	At        time.Time `json:"at"`
	Dynamic   float64   `json:"dynamic"` // for work
	Idle      float64   `json:"idle"`    // of awake machines
	Asleep    float64   `json:"asleep"`
	Unknown   float64   `json:"unknown"`
	Estimated float64   `json:"estimatedShare"`
}

// Under adds the power with the baseline of the savings, if the power is known hour by hour.
func (p *Power) Under(s *Saved) {
	if p == nil || len(p.Points) == 0 || s == nil || s.comparison == nil {
		return
	}
	first := p.Points[0].At
	moved := s.comparison.Moved(first, int(p.Points[len(p.Points)-1].At.Sub(first)/time.Hour)+1)
	p.Instead, p.Baseline = s.Against, p.lines()[allParts]
	for i := range p.Baseline.Points {
		if at := &p.Baseline.Points[i]; !at.Unknown {
			at.Value = math.Max(0, at.Value+moved[int(at.At.Sub(first)/time.Hour)])
			at.Unknown = !p.Baseline.end(i).After(s.comparison.Since()) // earlier decisions are not compared
		}
	}
}

// Total returns the sum of all parts.
func (w *Watts) Total() float64 { return w.Dynamic + w.Idle + w.Asleep + w.Unknown }

// Held is a held Job or pod.
type Held struct {
	Namespace    string     `json:"namespace"`
	Kind         string     `json:"kind"`
	Name         string     `json:"name"`
	Since        time.Time  `json:"since"`
	PlannedStart *time.Time `json:"plannedStart,omitempty"`
	LatestStart  *time.Time `json:"latestStart,omitempty"`
	Saving       *float64   `json:"saving,omitempty"` // fraction
	SavedGrams   *float64   `json:"savedGrams,omitempty"`
	Why          string     `json:"why,omitempty"`
}

// Job is work that is or was held.
type Job struct {
	Held
	Team        string        `json:"team,omitempty"`
	PlannedEnd  *time.Time    `json:"plannedEnd,omitempty"`
	Started     *time.Time    `json:"started,omitempty"`
	Finished    *time.Time    `json:"finished,omitempty"`
	Node        string        `json:"node,omitempty"`
	Energy      energy.Joules `json:"energyJoules,omitempty"` // estimated additional energy
	Grams       energy.Grams  `json:"grams,omitempty"`
	MayWait     bool          `json:"mayWait"`
	Unscheduled bool          `json:"unscheduled,omitempty"` // never ran because of a lack of capacity
}

// Saved contains the savings of decisions.
type Saved struct {
	Against   string             `json:"against"`
	Energy    *report.Difference `json:"energyKWh,omitempty"`
	Emissions *report.Difference `json:"emissionsKg,omitempty"`
	Cost      *report.Difference `json:"cost,omitempty"`
	Currency  string             `json:"currency,omitempty"`
	Jobs      int                `json:"jobs"`
	Held      int                `json:"held"`
	MeanWait  *float64           `json:"meanWaitSeconds,omitempty"`
	Late      *int               `json:"late,omitempty"` // number of starts after the latest start
	Left      map[string]int     `json:"left,omitempty"` // jobs that are not compared, by reason
	Steps     []Step             `json:"steps,omitempty"`
	Unit      string             `json:"unit,omitempty"`       // unit of the steps
	Few       int                `json:"tooFewJobs,omitempty"` // number of jobs if it is too low for an interval
	Method    string             `json:"method,omitempty"`
	Command   string             `json:"command,omitempty"` // equivalent command
	Shadow    bool               `json:"shadow,omitempty"`  // the savings are hypothetical
	Optimum   *report.Optimum    `json:"optimum,omitempty"`

	comparison *report.Comparison // source of the savings, if they come from a comparison
}

// Step is a part of the savings.
type Step = report.Part

// Use is the consumption of a namespace or a machine.
type Use struct {
	Cluster   string   `json:"cluster,omitempty"` // empty if the cluster has no name
	Name      string   `json:"name"`
	KWh       float64  `json:"energyKWh"`
	Kg        *float64 `json:"emissionsKg,omitempty"`
	Estimated float64  `json:"estimatedShare"`
	Jobs      int      `json:"jobs,omitempty"` // number of jobs that ran on a machine of a simulation
}

// Budget is an EnergyBudget with its usage.
type Budget struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Period    string     `json:"period"`
	Percent   float64    `json:"percent"`
	Ends      *time.Time `json:"ends,omitempty"`   // end of the period
	UsedUp    *time.Time `json:"usedUp,omitempty"` // estimated time of exhaustion at the current rate
	Closed    *time.Time `json:"closed,omitempty"` // new work that may wait does not start before this time
	Suspended int32      `json:"suspended,omitempty"`
}

// Strategy is a strategy of a comparison.
type Strategy struct {
	Name      string           `json:"name"`
	WaitHours float64          `json:"meanWaitHours"`
	Kg        float64          `json:"emissionsKg"`
	KWh       float64          `json:"energyKWh"`
	Saving    *report.Interval `json:"saving,omitempty"` // fraction of emissions
	Best      bool             `json:"best,omitempty"`   // no other strategy emits less without waiting longer
	Baseline  bool             `json:"baseline,omitempty"`
}

// View is a view of the page.
type View string

// The views.
const (
	Overview  View = "overview"
	Decisions View = "decisions"
	Machines  View = "machines"
	Savings   View = "savings"
	Compare   View = "compare"
	Doctor    View = "doctor"
)

// Query selects the data of a page.
type Query struct {
	View     View
	From, To time.Time // zero for the default of the source
	Run      int       // index of the run; negative for the default
	Cluster  string    // cluster of a federation, for [Source.Origin]; empty for the queried cluster
}

// Source provides the data of pages. Callers own the returned values.
type Source interface {
	Model(ctx context.Context, q Query) (*Model, error)
	// Job returns a Job or pod, or nil if it does not exist.
	Job(ctx context.Context, q Query, kind, namespace, name string) (*JobView, error)
	// Decision returns a decision, with its snapshot if the user may see it. It returns nil if the decision does
	// not exist.
	Decision(ctx context.Context, q Query, d *ledger.Record) (*ledger.Record, error)
	// Origin returns the breakdown of the consumption of a namespace, or of one of its owners (kind/name). It
	// returns nil if no energy was booked.
	Origin(ctx context.Context, q Query, namespace, owner string) (*Origin, error)
	// Live reports whether the data can change.
	Live() bool
}

// Act is an action that a user requests on a page.
type Act struct {
	Do        string `json:"do"`   // run-now or mode
	Kind      string `json:"kind"` // job or pod
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Mode      string `json:"mode"`
}

// The possible actions.
const (
	DoRunNow = "run-now"
	DoMode   = "mode"
)

// Actor is a source that can perform actions with the permissions of the user.
type Actor interface {
	Source
	// Effect returns the effect of an action, and the equivalent command. It does not change anything.
	Effect(ctx context.Context, a Act) (effect, command string, err error)
	Act(ctx context.Context, a Act) (result string, err error)
}
