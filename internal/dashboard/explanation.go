package dashboard

import "time"

// JobView is all that is known of one Job.
type JobView struct {
	Explanation
	Job     *Job      `json:"job,omitempty"` // nil: it was not held
	Curve   *Line     `json:"curve,omitempty"`
	Unit    string    `json:"unit,omitempty"`  // of the curve
	Where   string    `json:"where,omitempty"` // the site of the curve and why that one, or why there is no curve
	Created time.Time `json:"created,omitzero"`
	Delays  []Delay   `json:"delays,omitempty"`
	Others  []JobRun  `json:"otherRuns,omitempty"`
	Command string    `json:"command,omitempty"`
	Now     time.Time `json:"now"`
}

// Delay is what another allowed delay would bring.
type Delay struct {
	Allowed time.Duration `json:"allowed"`
	Start   time.Time     `json:"start"`
	Value   float64       `json:"value"` // mean intensity over its run
	Saving  float64       `json:"saving"`
	Set     bool          `json:"set,omitempty"` // it is the one that is set
}

// JobRun is the same Job in another run.
type JobRun struct {
	Run string `json:"run"`
	Job Job    `json:"job"`
}

// Explanation is what is known about one object.
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
	Unseen    []string       `json:"unseen,omitempty"` // what the user may not read
}

// Setting is a setting that holds for an object.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// Decision is what the same code that runs in the scheduler says now.
type Decision struct {
	Held   bool      `json:"held"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"` // CamelCase
	Text   string    `json:"text"`
	Saving float64   `json:"saving,omitempty"` // share
	Grams  float64   `json:"savedGrams,omitempty"`
}

// Comparison is what the signals of one site say of a start now and of the start that was chosen.
type Comparison struct {
	Site       string   `json:"site"`
	CarbonNow  *float64 `json:"carbonNow,omitempty"` // gCO2e/kWh at this moment
	CarbonOver *float64 `json:"carbonIfStartedNow,omitempty"`
	CarbonThen *float64 `json:"carbonIfStartedThen,omitempty"`
	PriceOver  *float64 `json:"priceIfStartedNow,omitempty"`
	PriceThen  *float64 `json:"priceIfStartedThen,omitempty"`
}

// SignalSource is what one figure rests on.
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

// Placement is how the nodes suit a pod now.
type Placement struct {
	Strategy string     `json:"strategy"`
	Note     string     `json:"note,omitempty"`
	Ranked   []NodeRank `json:"ranked"`
	Out      []NodeOut  `json:"out,omitempty"`
}

// NodeRank is a node that could take the pod. What running it there adds is estimated from the power profile.
type NodeRank struct {
	Rank      int      `json:"rank,omitempty"` // 0: the strategy has no opinion
	Node      string   `json:"node"`
	Site      string   `json:"site,omitempty"`
	Zone      string   `json:"zone,omitempty"`
	Profile   string   `json:"profile,omitempty"`
	Cost      *float64 `json:"cost,omitempty"` // in the strategy's own unit
	WattHours *float64 `json:"wattHours,omitempty"`
	Grams     *float64 `json:"grams,omitempty"`
}

// NodeOut is a node that could not take the pod.
type NodeOut struct {
	Node string `json:"node"`
	Why  string `json:"why"`
}

// Reported is an event of ours about an object.
type Reported struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
}

// UsedBudget is an EnergyBudget of a namespace, and how much of it is used.
type UsedBudget struct {
	Name        string     `json:"name"`
	Period      string     `json:"period"`
	Percent     float64    `json:"percent"`
	ClosedUntil *time.Time `json:"closedUntil,omitempty"` // new work that may wait does not start before
	Suspended   int32      `json:"suspended,omitempty"`   // Jobs
}

// Status is how bad a finding is.
type Status string

// How bad findings are.
const (
	StatusOK   Status = "ok"
	StatusWarn Status = "warn" // works, but not as it should
	StatusFail Status = "fail" // does not work
)

// Finding is the outcome of one check: what is, and what to do about it.
type Finding struct {
	Check   string `json:"check"`
	Status  Status `json:"status"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"`
}
