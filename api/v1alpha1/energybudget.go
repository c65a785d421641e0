package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EnergyBudget limits what a namespace, or some of its workloads, may use in a period, and says what happens at which
// share of it. kubenergy-controller compares it with the ledger every few seconds.
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

// EnergyBudgetSpec says how much, in which time, for whom, and what happens then.
//
// +kubebuilder:validation:XValidation:rule="self.per != 'Workload' || self.period.type == 'Lifetime'",message="a budget per workload is for its lifetime"
// +kubebuilder:validation:XValidation:rule="self.per != 'Workload' || !has(self.scope) || !has(self.scope.clusters)",message="a budget per workload counts its own cluster alone: leave out scope.clusters"
// +kubebuilder:validation:XValidation:rule="self.per != 'Workload' || self.actions.all(a, a.do != 'HoldNewWork')",message="a budget per workload cannot hold new work"
type EnergyBudgetSpec struct {
	Limits BudgetLimits `json:"limits"`
	Period BudgetPeriod `json:"period"`
	// What counts; by default all of the namespace.
	// +optional
	Scope BudgetScope `json:"scope,omitempty"`
	// Whether all that counts shares the limits, or each Job, and each pod that is not run by a Job, has them for
	// itself.
	// +optional
	// +kubebuilder:validation:Enum=Scope;Workload
	// +kubebuilder:default=Scope
	Per string `json:"per,omitempty"`
	// What is done at which share of a limit. Without any the use is only counted.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Actions []BudgetAction `json:"actions,omitempty"`
}

// What a budget is for.
const (
	PerScope    = "Scope"
	PerWorkload = "Workload"
)

// BudgetLimits are what may be used. Of several limits the one counts of which most is used.
//
// +kubebuilder:validation:XValidation:rule="has(self.energyKWh) || has(self.carbonGrams) || has(self.cost)",message="give at least one limit"
type BudgetLimits struct {
	// Energy at the nodes, in kilowatt-hours.
	// +optional
	// +kubebuilder:validation:Minimum=0.000001
	// +kubebuilder:validation:Maximum=1000000000
	EnergyKWh *float64 `json:"energyKWh,omitempty"`
	// Emissions, in grams of CO2e, PUE included.
	// +optional
	// +kubebuilder:validation:Minimum=0.000001
	// +kubebuilder:validation:Maximum=1000000000000
	CarbonGrams *float64 `json:"carbonGrams,omitempty"`
	// Which carbon intensity the limit of emissions is about.
	// +optional
	// +kubebuilder:validation:Enum=Average;Marginal
	// +kubebuilder:default=Average
	CarbonSignal string `json:"carbonSignal,omitempty"`
	// Price of the energy, PUE included.
	// +optional
	Cost *BudgetCost `json:"cost,omitempty"`
}

// BudgetCost is an amount of money.
type BudgetCost struct {
	// What may be paid, in the currency.
	// +kubebuilder:validation:Minimum=0.000001
	// +kubebuilder:validation:Maximum=1000000000
	Amount float64 `json:"amount"`
	// ISO 4217 code. What was paid in another currency does not count; the status says so.
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency"`
}

// BudgetPeriod is the time that a limit is for.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Fixed' ? has(self.from) && has(self.to) && timestamp(self.from) < timestamp(self.to) : !has(self.from) && !has(self.to)",message="from and to, in this order, go with Fixed, and with nothing else"
type BudgetPeriod struct {
	// Day, Week (from Monday), Month and Year are those of the calendar in the time zone; what is used starts anew
	// with each. Fixed is the time between from and to. Lifetime is all of it.
	// +kubebuilder:validation:Enum=Day;Week;Month;Year;Fixed;Lifetime
	Type string `json:"type"`
	// IANA time zone of the calendar.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._+/-]+$`
	// +kubebuilder:default=UTC
	TimeZone string `json:"timeZone,omitempty"`
	// When a fixed period begins.
	// +optional
	From *metav1.Time `json:"from,omitempty"`
	// When a fixed period ends.
	// +optional
	To *metav1.Time `json:"to,omitempty"`
}

// The types of periods.
const (
	PeriodDay      = "Day"
	PeriodWeek     = "Week"
	PeriodMonth    = "Month"
	PeriodYear     = "Year"
	PeriodFixed    = "Fixed"
	PeriodLifetime = "Lifetime"
)

// BudgetScope selects workloads of the namespace. What is named by several must match all.
type BudgetScope struct {
	// Owners of pods, as the ledger names them: Job/import, CronJob/nightly, Deployment/shop.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=320
	// +kubebuilder:validation:items:Pattern=`^[A-Z][A-Za-z0-9]*/[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	// +listType=set
	Owners []string `json:"owners,omitempty"`
	// Values of the label by which the ledger tells teams apart.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:MinLength=1
	// +listType=set
	Teams []string `json:"teams,omitempty"`
	// Clusters of a federation in which use of a namespace of this name counts; a dot is the budget's own, by default
	// the only one. What is done is done in the budget's own.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^(\.|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`
	// +listType=set
	Clusters []string `json:"clusters,omitempty"`
}

// BudgetDeed is something that is done.
//
// +kubebuilder:validation:Enum=Log;Notify;Event;Annotate;Label;HoldNewWork;Suspend
type BudgetDeed string

// What can be done.
const (
	DeedLog         BudgetDeed = "Log"         // a line in the controller's log
	DeedNotify      BudgetDeed = "Notify"      // a call of a webhook
	DeedEvent       BudgetDeed = "Event"       // an event at the budget, or at the workload
	DeedAnnotate    BudgetDeed = "Annotate"    // annotations on the Jobs and pods that count
	DeedLabel       BudgetDeed = "Label"       // a label on them
	DeedHoldNewWork BudgetDeed = "HoldNewWork" // what may wait starts in the next period, or at its deadline
	DeedSuspend     BudgetDeed = "Suspend"     // Jobs that run are suspended: their pods are deleted
)

// BudgetAction is something that is done once in a period, when so much is used. HoldNewWork and Suspend last as long
// as it is.
//
// +kubebuilder:validation:XValidation:rule="!has(self.webhook) || self.do == 'Notify'",message="a webhook goes with Notify"
// +kubebuilder:validation:XValidation:rule="!(self.do in ['Annotate', 'Label']) || !has(self.at) || self.at >= 100",message="Annotate and Label say that all is used: at is at least 100"
type BudgetAction struct {
	// Share of the limit, in percent. Below 100 it is a warning.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=100
	At int32      `json:"at,omitempty"`
	Do BudgetDeed `json:"do"`
	// URL that Notify posts to, at a host that the controller's options allow; or secret:NAME, for the URL that
	// administrators keep under that name. By default the one of the controller's options.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?://|secret:[-._a-zA-Z0-9]+$)`
	Webhook string `json:"webhook,omitempty"`
}

// EnergyBudgetStatus is what was used, and what was done about it.
type EnergyBudgetStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Absent for a lifetime, as the end.
	// +optional
	PeriodStart *metav1.Time `json:"periodStart,omitempty"`
	// +optional
	PeriodEnd *metav1.Time `json:"periodEnd,omitempty"`
	// +optional
	Used *BudgetUse `json:"used,omitempty"`
	// Of a budget per workload: that of the workload that used most of it.
	// +optional
	Percent float64 `json:"percent"`
	// Share of the energy that comes from a model and not from a meter.
	// +optional
	EstimatedShare float64 `json:"estimatedShare,omitempty"`
	// Share of the energy of which the emissions are not known; the limit says nothing about it.
	// +optional
	UnchartedShare float64 `json:"unchartedShare,omitempty"`
	// The same for the price.
	// +optional
	UnpricedShare float64 `json:"unpricedShare,omitempty"`
	// When the ledger was asked. Who holds new work does not believe what is older than a few minutes.
	// +optional
	AsOf *metav1.Time `json:"asOf,omitempty"`
	// All of a limit is used.
	// +optional
	Exhausted bool `json:"exhausted,omitempty"`
	// New work that may wait does not start before then, if that is set.
	// +optional
	ClosedUntil *metav1.Time `json:"closedUntil,omitempty"`
	// Jobs that are suspended for this budget.
	// +optional
	Suspended int32 `json:"suspended,omitempty"`
	// What was done in this period. It is written down before it is done, so that two controllers never both do it.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Actions []BudgetActionTaken `json:"actions,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BudgetUse is what was used. What is unknown is absent.
type BudgetUse struct {
	// Energy at the nodes, in kilowatt-hours.
	EnergyKWh float64 `json:"energyKWh"`
	// Emissions, in grams of CO2e, PUE included.
	// +optional
	CarbonGrams *float64 `json:"carbonGrams,omitempty"`
	// In the currency of the limit.
	// +optional
	Cost *float64 `json:"cost,omitempty"`
}

// BudgetActionTaken is an action that was begun.
type BudgetActionTaken struct {
	At int32      `json:"at"`
	Do BudgetDeed `json:"do"`
	// Which webhook is called: secret:NAME, or the beginning of the SHA-256 of its URL, which may have a token in it.
	// +optional
	Webhook string `json:"webhook,omitempty"`
	// What was used when it was begun.
	Percent float64 `json:"percent"`
	// Generation of the budget that it is about.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// When it was begun, and by whom.
	Time metav1.Time `json:"time"`
	// +optional
	By string `json:"by,omitempty"`
	// How often it was tried.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// When it was done; absent as long as it is not.
	// +optional
	Done *metav1.Time `json:"done,omitempty"`
	// Why it was not done.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// ConditionWithinBudget says whether no limit of an EnergyBudget is used up. It is Unknown if the use is not known.
const ConditionWithinBudget = "WithinBudget"
