// Package deploy provides the Kubernetes manifests of KubEnergy to programs that set up clusters. The manifests are
// generated from the Helm chart. The files for machines outside of clusters, such as systemd units and libvirt
// domains, are maintained manually.
package deploy

import _ "embed"

// SchedulerConfig is the KubeSchedulerConfiguration of kubenergy-scheduler as a second scheduler.
//
//go:embed scheduler/config.yaml
var SchedulerConfig []byte

// DefaultSchedulerConfig is the KubeSchedulerConfiguration of kubenergy-scheduler as a replacement for the default
// scheduler.
//
//go:embed scheduler/config-default.yaml
var DefaultSchedulerConfig []byte

// HoldAdmission is the mutating admission policy, with its binding, that suspends Jobs that may be delayed. It
// reads the EnergyPolicy of the cluster and has no effect without one. Package charts provides the
// CustomResourceDefinition of EnergyPolicy.
//
//go:embed hold/admission.yaml
var HoldAdmission []byte

// Everything contains all objects that the chart creates with its default values, except for the
// CustomResourceDefinitions.
//
//go:embed kubenergy.yaml
var Everything []byte

// Agent is the DaemonSet of the agent with its related objects.
//
//go:embed agent/daemonset.yaml
var Agent []byte
