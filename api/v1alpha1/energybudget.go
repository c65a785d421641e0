package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EnergyBudget limits the consumption of a namespace, or of some of its workloads, in a period and defines the
// actions to take when a percentage of the limit is used. kubenergy-controller compares the budget with the ledger
// every few seconds.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=eb,categories=kubenergy
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Period",type=string,JSONPath=`.spec.period.type`
// +kubebuilder:printcolumn:name="Used %",type=number,JSONPath=`.status.percent`
// +kubebuilder:printcolumn:name="kWh",type=number,JSONPath=`.status.used.energyKWh`,priority=1
// +kubebuilder:printcolumn:name="gCO2e",type=number,JSONPath=`.status.used.carbonGrams`,priority=1
// +kubebuilder:printcolumn:name="Cost",type=number,JSONPath=`.status.used.cost`,priority=1
// +kubebuilder:printcolumn:name="Estimated",type=number,JSONPath=`.status.estimatedShare`,priority=1
// +kubebuilder:printcolumn:name="Within budget",type=string,JSONPath=`.status.conditions[?(@.type=="WithinBudget")].status`
// +kubebuilder:printcolumn:name="Suspended",type=integer,JSONPath=`.status.suspended`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EnergyBudget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec EnergyBudgetSpec `json:"spec"`
	// +optional
	Status EnergyBudgetStatus `json:"status,omitempty"`
}

// EnergyBudgetList is a list of EnergyBudgets.
//
// +kubebuilder:object:root=true
type EnergyBudgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EnergyBudget `json:"items"`
}

// EnergyBudgetSpec defines the limits, the period, the scope and the actions of an EnergyBudget.
//
// +kubebuilder:validation:XValidation:rule="self.per != 'Workload' || self.period.type == 'Lifetime'",message="period.type must be Lifetime if per is Workload"
// +kubebuilder:validation:XValidation:rule="self.per != 'Workload' || !has(self.scope) || !has(self.scope.clusters)",message="scope.clusters must not be set if per is Workload"
// +kubebuilder:validation:XValidation:rule="self.per != 'Workload' || self.actions.all(a, a.do != 'HoldNewWork')",message="HoldNewWork is not supported if per is Workload"
type EnergyBudgetSpec struct {
	Limits BudgetLimits `json:"limits"`
	Period BudgetPeriod `json:"period"`
	// scope selects the workloads that count towards the limits. Defaults to all workloads of the namespace.
	// +optional
	Scope BudgetScope `json:"scope,omitempty"`
	// per determines whether the limits apply to the total of all selected workloads (Scope) or separately to each
	// Job and to each pod that is not controlled by a Job (Workload).
	// +optional
	// +kubebuilder:validation:Enum=Scope;Workload
	// +kubebuilder:default=Scope
	Per string `json:"per,omitempty"`
	// actions lists the actions to take when a percentage of a limit is used. If empty, the consumption is only
	// recorded in the status.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Actions []BudgetAction `json:"actions,omitempty"`
}

// Possible values of EnergyBudgetSpec.Per.
const (
	PerScope    = "Scope"
	PerWorkload = "Workload"
)

// BudgetLimits defines the maximum consumption. If several limits are set, the limit with the highest utilization
// applies.
//
// +kubebuilder:validation:XValidation:rule="has(self.energyKWh) || has(self.carbonGrams) || has(self.cost)",message="at least one limit is required"
type BudgetLimits struct {
	// energyKWh is the maximum energy at the nodes, in kilowatt-hours.
	// +optional
	// +kubebuilder:validation:Minimum=0.000001
	// +kubebuilder:validation:Maximum=1000000000
	EnergyKWh *float64 `json:"energyKWh,omitempty"`
	// carbonGrams is the maximum amount of emissions, in grams of CO2e, including the PUE.
	// +optional
	// +kubebuilder:validation:Minimum=0.000001
	// +kubebuilder:validation:Maximum=1000000000000
	CarbonGrams *float64 `json:"carbonGrams,omitempty"`
	// carbonSignal is the kind of carbon intensity that the limit of emissions is based on.
	// +optional
	// +kubebuilder:validation:Enum=Average;Marginal
	// +kubebuilder:default=Average
	CarbonSignal string `json:"carbonSignal,omitempty"`
	// cost is the maximum cost of the energy, including the PUE.
	// +optional
	Cost *BudgetCost `json:"cost,omitempty"`
}

// BudgetCost is an amount of money.
type BudgetCost struct {
	// amount is the maximum cost, in the given currency.
	// +kubebuilder:validation:Minimum=0.000001
	// +kubebuilder:validation:Maximum=1000000000
	Amount float64 `json:"amount"`
	// currency is an ISO 4217 code. Costs in other currencies do not count towards the limit and are reported in
	// the status.
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency"`
}

// BudgetPeriod is the period to which a limit applies.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Fixed' ? has(self.from) && has(self.to) && timestamp(self.from) < timestamp(self.to) : !has(self.from) && !has(self.to)",message="from and to are required for Fixed and not allowed for other types, and from must be before to"
type BudgetPeriod struct {
	// type is the type of the period. Day, Week (from Monday), Month and Year follow the calendar in the time zone,
	// and the consumption is reset at the start of each period. Fixed is the time between from and to. Lifetime is
	// the entire lifetime of the workloads.
	// +kubebuilder:validation:Enum=Day;Week;Month;Year;Fixed;Lifetime
	Type string `json:"type"`
	// timeZone is the IANA time zone of the calendar.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._+/-]+$`
	// +kubebuilder:default=UTC
	TimeZone string `json:"timeZone,omitempty"`
	// from is the start of a fixed period.
	// +optional
	From *metav1.Time `json:"from,omitempty"`
	// to is the end of a fixed period.
	// +optional
	To *metav1.Time `json:"to,omitempty"`
}

// Possible values of BudgetPeriod.Type.
const (
	PeriodDay      = "Day"
	PeriodWeek     = "Week"
	PeriodMonth    = "Month"
	PeriodYear     = "Year"
	PeriodFixed    = "Fixed"
	PeriodLifetime = "Lifetime"
)

// BudgetScope selects workloads of the namespace. A workload must match all fields that are set.
type BudgetScope struct {
	// owners lists owners of pods in the notation of the ledger: Job/import, CronJob/nightly, Deployment/shop.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=320
	// +kubebuilder:validation:items:Pattern=`^[A-Z][A-Za-z0-9]*/[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	// +listType=set
	Owners []string `json:"owners,omitempty"`
	// teams lists values of the label that identifies teams in the ledger.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:MinLength=1
	// +listType=set
	Teams []string `json:"teams,omitempty"`
	// clusters lists the clusters of a federation in which the consumption of the namespace with the same name
	// counts. A dot is the cluster of the budget, which is the default. Actions are only taken in the cluster of
	// the budget.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^(\.|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`
	// +listType=set
	Clusters []string `json:"clusters,omitempty"`
}

// BudgetDeed is the type of a budget action.
//
// +kubebuilder:validation:Enum=Log;Notify;Event;Annotate;Label;HoldNewWork;Suspend
type BudgetDeed string

// Possible types of budget actions.
const (
	DeedLog         BudgetDeed = "Log"         // writes to the log of the controller
	DeedNotify      BudgetDeed = "Notify"      // calls a webhook
	DeedEvent       BudgetDeed = "Event"       // emits an event for the budget or the workload
	DeedAnnotate    BudgetDeed = "Annotate"    // annotates the selected Jobs and pods
	DeedLabel       BudgetDeed = "Label"       // labels the selected Jobs and pods
	DeedHoldNewWork BudgetDeed = "HoldNewWork" // delays flexible work until the next period or its deadline
	DeedSuspend     BudgetDeed = "Suspend"     // suspends running Jobs, which deletes their pods
)

// BudgetAction is an action that is taken once in a period, when the given percentage of a limit is used.
// HoldNewWork and Suspend remain in effect while the consumption exceeds this percentage.
//
// +kubebuilder:validation:XValidation:rule="!has(self.webhook) || self.do == 'Notify'",message="webhook is only supported for Notify"
// +kubebuilder:validation:XValidation:rule="!(self.do in ['Annotate', 'Label']) || !has(self.at) || self.at >= 100",message="at must be at least 100 for Annotate and Label"
type BudgetAction struct {
	// at is the percentage of the limit at which the action is taken. Values below 100 are warnings.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=100
	At int32      `json:"at,omitempty"`
	Do BudgetDeed `json:"do"`
	// webhook is the URL to which Notify sends a POST request. The host must be allowed by the options of the
	// controller. secret:NAME refers to a URL that administrators store under this name. Defaults to the webhook in
	// the options of the controller.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?://|secret:[-._a-zA-Z0-9]+$)`
	Webhook string `json:"webhook,omitempty"`
}

// EnergyBudgetStatus defines the observed state of EnergyBudget.
type EnergyBudgetStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// periodStart is the start of the current period. Absent for a lifetime, like periodEnd.
	// +optional
	PeriodStart *metav1.Time `json:"periodStart,omitempty"`
	// +optional
	PeriodEnd *metav1.Time `json:"periodEnd,omitempty"`
	// +optional
	Used *BudgetUse `json:"used,omitempty"`
	// percent is the utilization of the most used limit. For a budget per workload, it is the utilization of the
	// workload with the highest utilization.
	// +optional
	Percent float64 `json:"percent"`
	// estimatedShare is the fraction of the energy that was estimated by a model instead of measured by a meter.
	// +optional
	EstimatedShare float64 `json:"estimatedShare,omitempty"`
	// unchartedShare is the fraction of the energy with unknown emissions, which does not count towards the limit
	// of emissions.
	// +optional
	UnchartedShare float64 `json:"unchartedShare,omitempty"`
	// unpricedShare is the fraction of the energy with an unknown price, which does not count towards the cost
	// limit.
	// +optional
	UnpricedShare float64 `json:"unpricedShare,omitempty"`
	// asOf is the time of the last query of the ledger. HoldNewWork ignores a status that is older than a few
	// minutes.
	// +optional
	AsOf *metav1.Time `json:"asOf,omitempty"`
	// exhausted is true if a limit is fully used.
	// +optional
	Exhausted bool `json:"exhausted,omitempty"`
	// closedUntil is the earliest start of new flexible work. If not set, new work is not delayed by this budget.
	// +optional
	ClosedUntil *metav1.Time `json:"closedUntil,omitempty"`
	// suspended is the number of Jobs that are suspended by this budget.
	// +optional
	Suspended int32 `json:"suspended,omitempty"`
	// actions lists the actions that were taken in this period. An action is recorded before it is taken, so that
	// two controllers never take the same action.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Actions []BudgetActionTaken `json:"actions,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BudgetUse is the consumption in a period. Unknown values are absent.
type BudgetUse struct {
	// energyKWh is the energy at the nodes, in kilowatt-hours.
	EnergyKWh float64 `json:"energyKWh"`
	// carbonGrams is the amount of emissions, in grams of CO2e, including the PUE.
	// +optional
	CarbonGrams *float64 `json:"carbonGrams,omitempty"`
	// cost is the cost of the energy, in the currency of the limit.
	// +optional
	Cost *float64 `json:"cost,omitempty"`
}

// BudgetActionTaken records an action that was started.
type BudgetActionTaken struct {
	At int32      `json:"at"`
	Do BudgetDeed `json:"do"`
	// webhook identifies the webhook that is called: secret:NAME, or a prefix of the SHA-256 of its URL, because
	// the URL may contain a token.
	// +optional
	Webhook string `json:"webhook,omitempty"`
	// percent is the utilization of the limit when the action was started.
	Percent float64 `json:"percent"`
	// generation is the generation of the budget when the action was started.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// time is the time at which the action was started.
	Time metav1.Time `json:"time"`
	// +optional
	By string `json:"by,omitempty"`
	// attempts is the number of attempts.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// done is the time of completion. Absent until the action is completed.
	// +optional
	Done *metav1.Time `json:"done,omitempty"`
	// message is the reason why the action was not completed.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// ConditionWithinBudget indicates whether all limits of an EnergyBudget are met. It is Unknown if the consumption
// is unknown.
const ConditionWithinBudget = "WithinBudget"
