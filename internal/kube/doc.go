// Package kube converts between Kubernetes objects and the types of the core. It converts nodes to [sched.Node]
// (nodes.go), KubEnergy objects to a [View] (objects.go watches them, assembly.go converts them, and list_view.go
// lists them once), files with signals and power profiles to a View (files.go), and decisions to patches of Jobs
// (patch.go, budget_patch.go). The rules for delaying workloads are implemented by package policy and are part of a
// View.
//
// A View is immutable, and there is always one. Objects that cannot be read are treated as absent, and reading is
// retried. Until the EnergyPolicies have been loaded, a View is unsettled and no decisions are made
// (TestRefusedForGood, TestPatienceRunsOut). An invalid object or file does not affect others and is logged once
// (TestOneUnreadableObjectCostsItself, TestFilesFailOpen). Patches fail if the object has been replaced
// (TestSuspendAndResume).
package kube
