package v1alpha1

// The keys of our annotations and labels. docs/reference/annotations.md is made of the comments here: of each key what
// its value is and, after a colon, what it does.

// Prefix begins the keys of all our annotations and labels.
const Prefix = "kubenergy.io/"

// SystemNamespace is where our own components run, and where the EnergyPolicy of the whole cluster stands.
const SystemNamespace = "kubenergy-system"

// PolicyName is that of the one EnergyPolicy in a namespace that counts.
const PolicyName = "default"

// Annotations of pods, of Jobs and of pod templates of Jobs. A Job's own annotation comes before that of its template.
// If any value makes no sense, none of them counts: the pod or Job is scheduled as if it had none, and an event names
// the value.
const (
	// duration, as `6h`: how long after its creation the start may be put off; with `0` it starts at once
	AnnotationAllowedDelay = Prefix + "allowed-delay"
	// RFC 3339 time: when it must have finished; no hold lasts beyond this time less the expected duration
	AnnotationFinishBy = Prefix + "finish-by"
	// duration: how long it will run; without it, one hour
	AnnotationExpectedDuration = Prefix + "expected-duration"
	// `"true"`: start now, whatever else is said
	AnnotationRunNow = Prefix + "run-now"
	// `"true"`: neither hold it nor choose its node
	AnnotationSkip = Prefix + "skip"
	// name, as `carbon` or `carbon+window`: the strategy that scores nodes for it and, after the `+`, decides when it
	// starts; `+now` holds nothing
	AnnotationStrategy = Prefix + "strategy"
	// g/kWh: hold it while the carbon intensity is above, unless no forecast falls to it in time
	AnnotationCarbonThreshold = Prefix + "carbon-threshold"
	// 1 to 99: the same with a percentile of the next 24 hours; 25 waits for the cleanest quarter
	AnnotationCarbonPercentile = Prefix + "carbon-percentile"
	// money per kWh: hold it while the price is above
	AnnotationPriceThreshold = Prefix + "price-threshold"
	// `"false"`: price alone matters
	AnnotationCarbonCounts = Prefix + "carbon-counts"
	// watts: only nodes whose full power is at most this
	AnnotationMaxPower = Prefix + "max-power-watts"
	// cores per watt: only nodes that are at least so efficient
	AnnotationMinEfficiency = Prefix + "min-efficiency"
	// `inference`, `training`, `rendering` or `generic`: which share of its GPUs' power range it is expected to draw
	AnnotationGPUWorkloadType = Prefix + "gpu-workload-type"
	// 1 to 10: energy of the facility per energy of the node in its estimates, wherever it runs
	AnnotationPUE = Prefix + "pue"
	// 0 to 1: for the strategy `hybrid`; 0 weighs energy alone, 1 speed alone
	AnnotationPerformanceWeight = Prefix + "performance-weight"
	// kWh: a budget of its own, for the energy at its nodes over its lifetime
	AnnotationBudgetKWh = Prefix + "energy-budget-kwh"
	// `log`, `notify`, `annotate`, `label`, `event` or `suspend`: what happens when that budget is used up; without it,
	// `log`
	AnnotationBudgetAction = Prefix + "energy-budget-action"
)

// Labels of pods and Jobs.
const (
	// `batch`, `service`, `stateful`, `system` or `generic`: which overrides of a policy hold for it; without it, the
	// kind of its owner says
	LabelWorkloadType = Prefix + "workload-type"
	// `true`: on a Job of a Karmada federation, it may be moved to another cluster while it runs, and starts anew there
	LabelInterruptible = Prefix + "interruptible"
	// name: its class of benchmarks, for the strategy `hybrid`
	LabelWorkloadClass = Prefix + "workload-class"
	// name: the team that is charged; on a namespace, the team of all pods in it
	LabelTeam = Prefix + "team"
	// name: the team that is charged, where the label above is missing
	LabelPartOf = "app.kubernetes.io/part-of"
)

// Labels of nodes and namespaces.
const (
	// `off`, `shadow`, `advise` or `enforce`: on a namespace, its mode; its presence opts the namespace in
	LabelMode = Prefix + "mode"
	// name of a PowerProfile: on a node, what it draws; without it, the PowerProfile that selects the node, else what
	// its hardware labels say, else the default one
	LabelPowerProfile = Prefix + "power-profile"
	// name of a GridZone: on a node, the grid that feeds it; without it, the zone of its cloud region, else the default
	// one
	LabelSite = Prefix + "site"
	// `"true"`: on a node, its machine may be sent to sleep where the cluster's configuration binds it
	LabelMaySleep = Prefix + "may-sleep"
)

// What KubEnergy writes on nodes whose machines sleep.
const (
	// label, `stopping`, `asleep` or `booting`: what the machine does; without it, it is awake
	LabelPowerState = Prefix + "power-state"
	// record: since when it does so and why, when it was sent to sleep in the last day, and how many boots failed
	AnnotationPower = Prefix + "power"
	// key of a taint of effect NoSchedule: the machine sleeps, or is about to
	TaintAsleep = Prefix + "asleep"
)

// What KubEnergy writes on nodes of their hardware, as their agents tell it. What was told first holds until you take
// the label off; what you say yourself comes before it: see [hardware](../how-to/hardware.md).
const (
	// label, name: the model of its CPUs
	LabelCPUModel = Prefix + "cpu-model"
	// label, number: its sockets; a virtual machine has none
	LabelCPUSockets = Prefix + "cpu-sockets"
	// label, number: its cores; a virtual machine has none
	LabelCPUCores = Prefix + "cpu-cores"
	// label, name: the model of its GPUs, if they are of one
	LabelGPUModel = Prefix + "gpu-model"
	// label, number: its GPUs
	LabelGPUCount = Prefix + "gpu-count"
	// label, name: maker and model of the machine
	LabelMachine = Prefix + "machine"
	// label, `aws`, `azure` or `gcp`: the cloud that it is a machine of
	LabelCloud = Prefix + "cloud"
	// label, name: its type in that cloud
	LabelInstanceType = Prefix + "instance-type"
	// text: what it is guessed to draw idle and at full load, and how far such guesses were off
	AnnotationPowerGuess = Prefix + "power-guess"
)

// What KubEnergy writes on Jobs.
const (
	// label, `"true"`: KubEnergy has suspended the Job, not its user; releasing and uninstalling look for it
	LabelHeld = Prefix + "held"
	// RFC 3339 time: when it is planned to start
	AnnotationHeldUntil = Prefix + "held-until"
	// text: why it waits
	AnnotationHeldReason = Prefix + "held-reason"
	// RFC 3339 time: the deadline of the hold
	AnnotationLatestStart = Prefix + "latest-start"
	// RFC 3339 time: when it was released; what has it is never held again
	AnnotationReleasedAt = Prefix + "released-at"
	// name of a user, who called `POST /ingest`; or `kubenergy-slurm/UID`: kubenergy-slurm created the Job for its own
	// job of that UID
	AnnotationSubmittedBy = Prefix + "submitted-by"
	// `kubernetes`, `slurm` or `any`: where a Job that `POST /ingest` created may run, with kubenergy-slurm
	AnnotationBackend = Prefix + "backend"
	// `kubernetes/NAME` or `slurm/NUMBER`: where it was sent; without a name, it is being sent
	AnnotationRunsOn = Prefix + "runs-on"
	// `release`, `hold` or `cancel`: what is to be done about it next
	AnnotationNextStep = Prefix + "next-step"
	// `"true"`: it was moved from one to the other before it started, and is not moved again
	AnnotationMoved = Prefix + "moved"
)

// What KubEnergy writes on Jobs and pods when a budget is used up.
const (
	// `"true"`, an annotation or a label: its budget is used up
	AnnotationBudgetExceeded = Prefix + "energy-budget-exceeded"
	// kWh: by how much
	AnnotationBudgetExceededBy = Prefix + "energy-budget-exceeded-by"
	// record: what was done about a budget of its own, and when
	AnnotationBudgetActions = Prefix + "energy-budget-actions"
	// label, name of a budget: the budget that suspended the Job; `Own` is one of its own
	LabelBudgetSuspended = Prefix + "budget-suspended"
	// name of a budget: this budget does not suspend the Job again, because a user has released it
	AnnotationBudgetReleased = Prefix + "budget-released"
	// RFC 3339 time: when a suspended Job goes on
	AnnotationBudgetSuspendedTill = Prefix + "budget-suspended-until"
)

// Annotations of pods in the lab.
const (
	// seconds, as `1.5`: how long the pod runs on a simulated node; without it, until it is deleted
	AnnotationLabRunSeconds = Prefix + "lab-run-seconds"
	// `8443=40124,…`, written by the lab: the port of this machine that each port of the pod is reached at
	AnnotationLabPorts = Prefix + "lab-ports"
)

// Labels of what `kubenergy experiment` makes.
const (
	// name of a run: on a namespace, an experiment has made it and removes it
	LabelExperiment = Prefix + "experiment"
	// name: on a pod, the entry of the experiment's load that it is of
	LabelExperimentLoad = Prefix + "experiment-load"
	// name: on a pod, its service or Job in that entry
	LabelExperimentApp = Prefix + "experiment-app"
)
