// Package real meters pods of a real kubelet: containerd and runc run them, their control groups are the kernel's,
// and the agent finds them there without being told.
//
// The machine stays as it is. containerd and the kubelet live in namespaces of mounts and processes of their own,
// where the folders and kernel settings that they would write to are others; with the first process of these
// namespaces all that they started ends, also when the test is killed. Pods share the machine's network, so that no
// bridge and no firewall rule is made. Everything else stands below one temporary folder and one control group.
//
// The test needs root, containerd with runc, and control groups of version 1 (the kubelet's control groups of version
// 2 need a machine whose controllers are bound to it, which was not tried here). It runs where KUBENERGY_REAL is
// set, as `make e2e-real` does, and says why where it cannot.
package real
