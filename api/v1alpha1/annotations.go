package v1alpha1

// Prefix begins the keys of all our annotations and labels.
const Prefix = "kubenergy.io/"

// SystemNamespace is where our own components run, and where the EnergyPolicy of the whole cluster stands.
const SystemNamespace = "kubenergy-system"

// PolicyName is that of the one EnergyPolicy in a namespace that counts.
const PolicyName = "default"

// What people write on a pod, on a Job or on its pod template.
const (
	AnnotationAllowedDelay      = Prefix + "allowed-delay"      // how long the start may be put off: a Go duration
	AnnotationFinishBy          = Prefix + "finish-by"          // deadline of the finish, RFC 3339
	AnnotationExpectedDuration  = Prefix + "expected-duration"  // a Go duration
	AnnotationRunNow            = Prefix + "run-now"            // "true": whatever else is said, do not hold it
	AnnotationSkip              = Prefix + "skip"               // "true": nor choose its node
	AnnotationStrategy          = Prefix + "strategy"           // a strategy of package sched, as in "carbon"
	AnnotationCarbonThreshold   = Prefix + "carbon-threshold"   // hold while above: gCO2e/kWh
	AnnotationCarbonPercentile  = Prefix + "carbon-percentile"  // hold while above: percentile of the next 24 hours
	AnnotationPriceThreshold    = Prefix + "price-threshold"    // hold while above: money per kWh
	AnnotationCarbonCounts      = Prefix + "carbon-counts"      // "false": price alone
	AnnotationMaxPower          = Prefix + "max-power-watts"    // only nodes whose full power is at most this
	AnnotationMinEfficiency     = Prefix + "min-efficiency"     // only nodes that are at least so efficient
	AnnotationGPUWorkloadType   = Prefix + "gpu-workload-type"  // inference, training, rendering or generic
	AnnotationPUE               = Prefix + "pue"                // facility energy ÷ node energy, wherever it runs
	AnnotationPerformanceWeight = Prefix + "performance-weight" // of the strategy hybrid: 0 (energy) to 1 (speed)

	// A budget of its own: energy at its nodes, over its lifetime.
	AnnotationBudgetKWh = Prefix + "energy-budget-kwh"
	// log, notify, annotate, label, event or suspend; by default log
	AnnotationBudgetAction = Prefix + "energy-budget-action"
)

// Labels on pods.
const (
	LabelWorkloadType  = Prefix + "workload-type"  // batch, service, stateful, system or generic
	LabelWorkloadClass = Prefix + "workload-class" // class of benchmarks, for the strategy hybrid
	// The ledger, and so the scope of a budget, tells teams apart by the first of these that is there.
	LabelTeam   = Prefix + "team"
	LabelPartOf = "app.kubernetes.io/part-of"
)

// What the hold loop writes.
const (
	// "true" on Jobs that we suspended: what is selected, checked and uninstalled by
	LabelHeld             = Prefix + "held"
	AnnotationHeldUntil   = Prefix + "held-until"
	AnnotationHeldReason  = Prefix + "held-reason"
	AnnotationLatestStart = Prefix + "latest-start" // the deadline of the hold
	AnnotationReleasedAt  = Prefix + "released-at"  // its presence makes the release final
)

// What the owner of a cluster writes on nodes and namespaces.
const (
	LabelPowerProfile = Prefix + "power-profile"
	LabelSite         = Prefix + "site" // name of a GridZone
	LabelMode         = Prefix + "mode" // off, shadow, advise or enforce; its presence opts a namespace in
)

// What is written on Jobs and pods when a budget is used up.
const (
	AnnotationBudgetExceeded   = Prefix + "energy-budget-exceeded"    // "true"; the same as a label
	AnnotationBudgetExceededBy = Prefix + "energy-budget-exceeded-by" // kWh
	// what was done about a budget of its own, and when it was begun
	AnnotationBudgetActions = Prefix + "energy-budget-actions"

	// on Jobs that a budget suspended: its name, or that of a budget of its own
	LabelBudgetSuspended = Prefix + "budget-suspended"
	// the value of that label: that budget does not suspend this Job again
	AnnotationBudgetReleased      = Prefix + "budget-released"
	AnnotationBudgetSuspendedTill = Prefix + "budget-suspended-until"
)
