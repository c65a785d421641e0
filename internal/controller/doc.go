// Package controller implements the kubenergy-controller. It writes the status of GridZones, PowerProfiles and
// EnergyPolicies, counts the Jobs that would be held in shadow mode, releases held Jobs that no scheduler released,
// records the batches of agents, estimates the usage of nodes without an agent, and serves the HTTP API.
//
// This package builds the components and runs them. Each component is a package below this one and receives its
// dependencies from this package.
//
// # Replicas
//
// Every replica releases overdue Jobs and records the current carbon intensities and prices. Everything else is
// done by the holder of the Lease kubenergy-controller. Only the leader calls providers, writes statuses and
// counts.
//
// # Limits
//
// The controller never holds a Job and never decides where a workload runs. It writes the status of its own kinds,
// Events, a ConfigMap with the calls to providers and their pauses, and the patch that resumes a held Job. It sets
// no finalizers, so that its objects can be deleted while it is not running.
//
// # Failures
//
// If the controller fails, the scheduler uses the last status until it expires and then decides without it. Holds
// end at their deadline without the controller.
package controller
