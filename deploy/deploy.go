// Package deploy holds the manifests that a cluster is given, for programs that set up one themselves.
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

// HoldAdmission is the policy that suspends Jobs which may wait.
//
//go:embed hold/admission.yaml
var HoldAdmission []byte
