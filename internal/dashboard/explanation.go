package dashboard

import "time"

// JobView contains the data of the page of one Job.
type JobView struct {
	Explanation
	Job     *Job      `json:"job,omitempty"` // nil if the Job was not held
	Curve   *Line     `json:"curve,omitempty"`
	Unit    string    `json:"unit,omitempty"`  // unit of the curve
	Where   string    `json:"where,omitempty"` // site of the curve and the reason for it, or why there is no curve
	Created time.Time `json:"created,omitzero"`
	Delays  []Delay   `json:"delays,omitempty"`
	Others  []JobRun  `json:"otherRuns,omitempty"`
	Command string    `json:"command,omitempty"`
	Now     time.Time `json:"now"`
}

// Delay contains the consequences of another allowed delay.
type Delay struct {
	Allowed time.Duration `json:"allowed"`
	Start   time.Time     `json:"start"`
	Value   float64       `json:"value"` // mean intensity during the run
	Saving  float64       `json:"saving"`
	Set     bool          `json:"set,omitempty"` // this is the configured delay
}

// JobRun is the same Job in another run.
type JobRun struct {
	Run string `json:"run"`
	Job Job    `json:"job"`
}

// Explanation contains everything that is known about an object.
type Explanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Object     string `json:"object"` // pod, job, cronjob, deployment or namespace
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`

	State       string     `json:"state"`
	Sentence    string     `json:"sentence"`
	HeldUntil   *time.Time `json:"heldUntil,omitempty"`
	LatestStart *time.Time `json:"latestStart,omitempty"`
	Planned     *time.Time `json:"plannedStart,omitempty"` // of a Job that was held and has started
	Started     *time.Time `json:"started,omitempty"`
	Saved       string     `json:"saved,omitempty"`   // savings of a finished Job, with their parts
	NextRun     *time.Time `json:"nextRun,omitempty"` // of a CronJob
	Node        string     `json:"node,omitempty"`
	Mode        string     `json:"mode"`

	Settings  []Setting      `json:"settings,omitempty"`
	Decision  *Decision      `json:"decisionNow,omitempty"`
	Compare   []Comparison   `json:"nowAndThen,omitempty"`
	Signals   []SignalSource `json:"signals,omitempty"`
	Placement *Placement     `json:"placement,omitempty"`
	Events    []Reported     `json:"events,omitempty"`
	Budgets   []UsedBudget   `json:"budgets,omitempty"` // of a namespace
	Warnings  []string       `json:"warnings,omitempty"`
	Unseen    []string       `json:"unseen,omitempty"` // resources that the user may not read
}

// Setting is a setting that applies to an object.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// Decision is the decision that the scheduler's code makes at present.
type Decision struct {
	Held   bool      `json:"held"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"` // CamelCase
	Text   string    `json:"text"`
	Saving float64   `json:"saving,omitempty"` // fraction
	Grams  float64   `json:"savedGrams,omitempty"`
}

// Comparison contains the signals of a site for a start now and for the chosen start.
type Comparison struct {
	Site       string   `json:"site"`
	CarbonNow  *float64 `json:"carbonNow,omitempty"` // current value in gCO2e/kWh
	CarbonOver *float64 `json:"carbonIfStartedNow,omitempty"`
	CarbonThen *float64 `json:"carbonIfStartedThen,omitempty"`
	PriceOver  *float64 `json:"priceIfStartedNow,omitempty"`
	PriceThen  *float64 `json:"priceIfStartedThen,omitempty"`
}

// SignalSource describes the source of a signal.
type SignalSource struct {
	Zone     string  `json:"zone"`
	Quantity string  `json:"quantity"`
	Now      float64 `json:"now"`
	Unit     string  `json:"unit"`
	Age      string  `json:"age"`
	Source   string  `json:"source"`
	Forecast string  `json:"forecast,omitempty"`
	Quality  string  `json:"quality"`
}

// Placement ranks the nodes for a pod at present.
type Placement struct {
	Strategy string     `json:"strategy"`
	Note     string     `json:"note,omitempty"`
	Unused   string     `json:"unused,omitempty"` // why the pod is not placed by this strategy
	Ranked   []NodeRank `json:"ranked"`
	Out      []NodeOut  `json:"out,omitempty"`
}

// Title returns the strategy and why it is not used.
func (p *Placement) Title() string {
	return p.Strategy + given(p.Unused != "", " (not used: "+p.Unused+")")
}

// NodeRank is a feasible node. The consumption that the pod would add is estimated from the power profile.
type NodeRank struct {
	Rank      int      `json:"rank,omitempty"` // zero if the strategy has no preference
	Node      string   `json:"node"`
	Site      string   `json:"site,omitempty"`
	Zone      string   `json:"zone,omitempty"`
	Profile   string   `json:"profile,omitempty"`
	Cost      *float64 `json:"cost,omitempty"` // in the unit of the strategy
	WattHours *float64 `json:"wattHours,omitempty"`
	Grams     *float64 `json:"grams,omitempty"`
}

// NodeOut is a node that is not feasible.
type NodeOut struct {
	Node string `json:"node"`
	Why  string `json:"why"`
}

// Reported is an event that KubEnergy reported about an object.
type Reported struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
}

// UsedBudget is the usage of an EnergyBudget of a namespace.
type UsedBudget struct {
	Name        string     `json:"name"`
	Period      string     `json:"period"`
	Percent     float64    `json:"percent"`
	ClosedUntil *time.Time `json:"closedUntil,omitempty"` // new work that may wait does not start before this time
	Suspended   int32      `json:"suspended,omitempty"`   // number of suspended Jobs
}

// Status is the severity of a finding.
type Status string

// The severities of findings.
const (
	StatusOK   Status = "ok"
	StatusWarn Status = "warn" // works with limitations
	StatusFail Status = "fail" // does not work
)

// Finding is the result of one check, with advice on how to fix the problem.
type Finding struct {
	Check   string `json:"check"`
	Status  Status `json:"status"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"`
}
