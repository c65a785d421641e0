// Package deploy holds the manifests that a cluster is given, for programs that set up one themselves. All of them
// are generated from the Helm chart. What machines outside of clusters are given, units of systemd and a domain of
// libvirt, is written by hand.
package deploy

import _ "embed"

// SchedulerConfig is the KubeSchedulerConfiguration of kubenergy-scheduler as a second scheduler.
//
//go:embed scheduler/config.yaml
var SchedulerConfig []byte

// DefaultSchedulerConfig is that of kubenergy-scheduler in place of the cluster's own.
//
//go:embed scheduler/config-default.yaml
var DefaultSchedulerConfig []byte

// HoldAdmission is the policy that suspends Jobs which may wait, and its binding. It looks at the EnergyPolicy of the
// cluster, and does nothing without one; see package charts for its kind.
//
//go:embed hold/admission.yaml
var HoldAdmission []byte

// Everything is what installing the chart with its defaults creates, but our kinds.
//
//go:embed kubenergy.yaml
var Everything []byte

// Agent is what runs the agent on every node.
//
//go:embed agent/daemonset.yaml
var Agent []byte
