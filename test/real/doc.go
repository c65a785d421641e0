// Package real meters pods of a real kubelet. They are run by containerd and runc in real control groups, which the
// agent discovers.
//
// The machine is not modified. containerd and the kubelet run in separate mount and PID namespaces, in which the
// directories and kernel settings that they write to are replaced. All of their processes exit with the first
// process of these namespaces, even if the test is killed. Pods share the host network, so no bridges or firewall
// rules are created. All other state is below one temporary directory and one control group.
//
// The test requires root, containerd with runc, and control groups of version 1. For control groups of version 2,
// the kubelet requires a machine with all controllers enabled in the unified hierarchy, which has not been tested.
// The test runs only if KUBENERGY_REAL is set, for example with `make e2e-real`, and the skip message lists missing
// requirements.
package real
