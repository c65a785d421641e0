// Package kube converts between Kubernetes' objects and the core's: nodes into [sched.Node] (nodes.go), the objects of
// our API into a [View] (objects.go watches them, assembly.go reads them one by one, list_view.go takes one look),
// files of signals and power profiles into a View (files.go), and decisions into patches of Jobs (patch.go,
// budget_patch.go). What a workload may wait for is said by package policy, whose rules are part of a View.
//
// A View never changes, and there is always one. What cannot be read counts as absent and is tried again; before the
// EnergyPolicies are known, a View is unsettled and nothing is decided (TestRefusedForGood, TestPatienceRunsOut). An
// object or a file that makes no sense costs itself alone, and is logged once (TestOneUnreadableObjectCostsItself,
// TestFilesFailOpen). Patches fail where the object is not the one that was seen (TestSuspendAndResume).
package kube
