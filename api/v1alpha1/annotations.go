package v1alpha1

// Keys of annotations and labels. docs/reference/annotations.md is generated from the comments of these constants.
// The comment of a key has the form "value: effect".

// Prefix is the common prefix of all annotation and label keys of KubEnergy.
const Prefix = "kubenergy.io/"

// SystemNamespace is the namespace of the KubEnergy components and of the cluster-wide EnergyPolicy.
const SystemNamespace = "kubenergy-system"

// PolicyName is the name of the EnergyPolicy that applies to a namespace. Other names are rejected.
const PolicyName = "default"

// Annotations of pods, of Jobs and of pod templates of Jobs. For the start of a Job, its own annotations take
// precedence over those of its pod template. The node and the order in the queue only depend on the annotations of the
// pod. If any value is invalid, all annotations are ignored: the pod or Job is scheduled as if it had none, and an
// event reports the invalid value.
const (
	// duration, e.g. `6h`: maximum delay of the start after creation, and of an interruptible Job including all pauses
	// and repeated work; `0` starts the workload immediately
	AnnotationAllowedDelay = Prefix + "allowed-delay"
	// RFC 3339 time: deadline for the completion; no hold lasts beyond this time minus the expected duration
	AnnotationFinishBy = Prefix + "finish-by"
	// duration: expected run time; defaults to the learnt run time, or one hour
	AnnotationExpectedDuration = Prefix + "expected-duration"
	// `"true"`: start the workload immediately, regardless of all other settings
	AnnotationRunNow = Prefix + "run-now"
	// `"true"`: do not hold the workload and do not choose its node
	AnnotationSkip = Prefix + "skip"
	// name, e.g. `carbon`, `carbon+window` or `carbon+now/aging`: strategy that scores the nodes and, after the `+`,
	// start rule that chooses the start time; `+now` disables holding, and `/aging` schedules short pods first
	AnnotationStrategy = Prefix + "strategy"
	// g/kWh: hold the workload while the carbon intensity is above this value, unless the forecast never falls
	// below it before the deadline
	AnnotationCarbonThreshold = Prefix + "carbon-threshold"
	// 1 to 99: like `carbon-threshold`, but the threshold is a percentile of the next 24 hours; 25 waits for the
	// cleanest quarter
	AnnotationCarbonPercentile = Prefix + "carbon-percentile"
	// money per kWh: hold the workload while the price is above this value
	AnnotationPriceThreshold = Prefix + "price-threshold"
	// `"false"`: ignore the carbon intensity and consider only the price
	AnnotationCarbonCounts = Prefix + "carbon-counts"
	// watts: maximum power at full load of the nodes that the workload may run on
	AnnotationMaxPower = Prefix + "max-power-watts"
	// cores per watt: minimum efficiency of the nodes that the workload may run on
	AnnotationMinEfficiency = Prefix + "min-efficiency"
	// `inference`, `training`, `rendering` or `generic`: class of the GPU work, used to estimate the power of the
	// GPUs between idle and full load
	AnnotationGPUWorkloadType = Prefix + "gpu-workload-type"
	// 1 to 10: ratio of facility energy to node energy in the estimates of the workload, on all nodes
	AnnotationPUE = Prefix + "pue"
	// 0 to 1: weight of the speed in the strategy `hybrid`; 0 considers only energy, 1 considers only speed
	AnnotationPerformanceWeight = Prefix + "performance-weight"
	// duration, e.g. `2m`: work that an interruptible Job repeats each time it is resumed, e.g. to load its checkpoint;
	// defaults to 0
	AnnotationRestartCost = Prefix + "restart-cost"
	// duration: interval of the checkpoints of an interruptible Job that writes none on SIGTERM, so that a pause
	// loses the work since the last one
	AnnotationCheckpointInterval = Prefix + "checkpoint-interval"
	// 1 to 1000: maximum number of pauses of an interruptible Job; defaults to 1000
	AnnotationMaxPauses = Prefix + "max-pauses"
	// range, e.g. `1-8`: minimum and maximum number of pods between which the start rule `carbon-scaler`
	// [changes](../how-to/scaling.md) the `parallelism` of an interruptible Job; its expected duration, which is
	// required, refers to the minimum
	AnnotationReplicas = Prefix + "replicas"
	// `"true"`: on an indexed Job with `replicas` and as many completions as pods, its indexes are interchangeable
	// workers, so `completions` change together with `parallelism`; otherwise only `parallelism` changes
	AnnotationElasticIndexes = Prefix + "elastic-indexes"
	// 0 to 1, or numbers separated by commas: parallel fraction of the work of a Job with `replicas`, or its
	// throughput with the minimum number of pods, with one more, and so on; by default, it is proportional
	AnnotationSpeedup = Prefix + "speedup"
	// kWh: budget of the workload for its energy at the nodes over its lifetime
	AnnotationBudgetKWh = Prefix + "energy-budget-kwh"
	// `log`, `notify`, `annotate`, `label`, `event` or `suspend`: action when the budget of the workload is
	// exceeded; defaults to `log`
	AnnotationBudgetAction = Prefix + "energy-budget-action"
)

// Labels of pods and Jobs.
const (
	// `batch`, `service`, `stateful`, `system` or `generic`: workload type that selects overrides of the policy;
	// defaults to a type derived from the kind of the owner
	LabelWorkloadType = Prefix + "workload-type"
	// `true`: on a Job, allow pausing it while it runs, by a start rule that [pauses](../how-to/pauses.md) Jobs;
	// on a Job of a Karmada federation, allow moving it to another cluster, where it restarts
	LabelInterruptible = Prefix + "interruptible"
	// name: class of benchmarks for the strategy `hybrid`
	LabelWorkloadClass = Prefix + "workload-class"
	// name: team that is charged; on a namespace, the default for all pods in the namespace
	LabelTeam = Prefix + "team"
	// name: team that is charged if the label above is not set
	LabelPartOf = "app.kubernetes.io/part-of"
)

// Labels of nodes and namespaces.
const (
	// `off`, `shadow`, `advise` or `enforce`: on a namespace, its mode; setting the label opts the namespace in
	LabelMode = Prefix + "mode"
	// name of a PowerProfile: on a node, its power model; defaults to the PowerProfile that selects the node, then
	// to a profile derived from its hardware labels, then to the default PowerProfile
	LabelPowerProfile = Prefix + "power-profile"
	// name of a GridZone: on a node, its grid zone; defaults to the zone of its cloud region, then to the default
	// GridZone
	LabelSite = Prefix + "site"
	// `"true"`: on a node, allow putting its machine to sleep if kubenergy-power is configured for the machine
	LabelMaySleep = Prefix + "may-sleep"
)

// Keys that KubEnergy sets on nodes with machines that can sleep.
const (
	// label, `stopping`, `asleep` or `booting`: power state of the machine; a node without the label is awake
	LabelPowerState = Prefix + "power-state"
	// record: start and reason of the power state, the times at which the machine was put to sleep during the last
	// day, and the number of failed boots
	AnnotationPower = Prefix + "power"
	// key of a taint with the effect NoSchedule: the machine is asleep or about to be put to sleep
	TaintAsleep = Prefix + "asleep"
)

// Keys that KubEnergy sets on nodes for the hardware that the agents report. The first reported value is kept until
// the label is removed. Values set by users take precedence: see [hardware](../how-to/hardware.md).
const (
	// label, name: CPU model
	LabelCPUModel = Prefix + "cpu-model"
	// label, number: number of CPU sockets; not set on virtual machines
	LabelCPUSockets = Prefix + "cpu-sockets"
	// label, number: number of CPU cores; not set on virtual machines
	LabelCPUCores = Prefix + "cpu-cores"
	// label, name: GPU model, if all GPUs are of the same model
	LabelGPUModel = Prefix + "gpu-model"
	// label, number: number of GPUs
	LabelGPUCount = Prefix + "gpu-count"
	// label, name: vendor and model of the machine
	LabelMachine = Prefix + "machine"
	// label, `aws`, `azure` or `gcp`: cloud provider
	LabelCloud = Prefix + "cloud"
	// label, name: instance type of the cloud provider
	LabelInstanceType = Prefix + "instance-type"
	// text: estimated power at idle and at full load, and the error of earlier estimates
	AnnotationPowerGuess = Prefix + "power-guess"
)

// Keys that KubEnergy sets on Jobs.
const (
	// label, `"true"`: the Job was suspended by KubEnergy and not by its user; used to find Jobs to release or to
	// clean up
	LabelHeld = Prefix + "held"
	// RFC 3339 time: planned start
	AnnotationHeldUntil = Prefix + "held-until"
	// text: reason for the hold
	AnnotationHeldReason = Prefix + "held-reason"
	// RFC 3339 time: deadline of the hold
	AnnotationLatestStart = Prefix + "latest-start"
	// RFC 3339 time: time of the release; a Job with this annotation is not held again, but may be paused
	AnnotationReleasedAt = Prefix + "released-at"
	// UID: Job that was paused or scaled; on another Job, e.g. a copy, the next four annotations are ignored
	AnnotationPaused = Prefix + "paused"
	// duration: work before the last pause or change of replicas, without repeated and lost work; run time with the
	// minimum number of pods if the Job has `replicas`
	AnnotationWorked = Prefix + "worked"
	// RFC 3339 time: last change of the number of replicas in the current run
	AnnotationScaledAt = Prefix + "scaled-at"
	// number: pauses so far
	AnnotationPauses = Prefix + "pauses"
	// duration: run time that pauses have cost, which is repeated or lost work
	AnnotationLostWork = Prefix + "lost-work"
	// user who called `POST /ingest`, or `kubenergy-slurm/UID`: submitter; in the second form, kubenergy-slurm
	// created the Job for the job with this UID
	AnnotationSubmittedBy = Prefix + "submitted-by"
	// `kubernetes`, `slurm` or `any`: backends on which kubenergy-slurm may run a Job that was created by `POST
	// /ingest`
	AnnotationBackend = Prefix + "backend"
	// `kubernetes/NAME` or `slurm/NUMBER`: backend and name of the submitted job; the name is empty while the
	// submission is in progress
	AnnotationRunsOn = Prefix + "runs-on"
	// `release`, `hold` or `cancel`: next pending operation
	AnnotationNextStep = Prefix + "next-step"
	// `"true"`: the Job was moved to the other backend before it started and is not moved again
	AnnotationMoved = Prefix + "moved"
)

// Keys that KubEnergy sets on Jobs and pods when their budget is exceeded.
const (
	// `"true"`, an annotation or a label: the budget is exceeded
	AnnotationBudgetExceeded = Prefix + "energy-budget-exceeded"
	// kWh: energy beyond the budget
	AnnotationBudgetExceededBy = Prefix + "energy-budget-exceeded-by"
	// record: actions that were taken for the budget of the workload, with their times
	AnnotationBudgetActions = Prefix + "energy-budget-actions"
	// label, name of a budget: budget that suspended the Job; `Own` is the budget of the Job itself
	LabelBudgetSuspended = Prefix + "budget-suspended"
	// name of a budget: budget that does not suspend the Job again because a user resumed the Job
	AnnotationBudgetReleased = Prefix + "budget-released"
	// RFC 3339 time: time at which a suspended Job is resumed
	AnnotationBudgetSuspendedTill = Prefix + "budget-suspended-until"
)

// Annotations of pods in the lab.
const (
	// seconds, e.g. `1.5`: run time of the pod on a simulated node; by default, the pod runs until it is deleted
	AnnotationLabRunSeconds = Prefix + "lab-run-seconds"
	// `8443=40124,…`, set by the lab: local port for each port of the pod
	AnnotationLabPorts = Prefix + "lab-ports"
)

// Labels of objects that `kubenergy experiment` creates.
const (
	// name of a run: on a namespace, the experiment that created the namespace and will delete it
	LabelExperiment = Prefix + "experiment"
	// name: on a pod, its entry in the load of the experiment
	LabelExperimentLoad = Prefix + "experiment-load"
	// name: on a pod, its service or Job within the entry
	LabelExperimentApp = Prefix + "experiment-app"
)
