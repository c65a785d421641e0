// Package guest sends a real machine to sleep and wakes it: a guest of QEMU with a kernel, systemd, containerd and a
// kubelet of its own, which is the only node of the lab's control plane. It is shut down and started through Redfish by
// what does so on a cluster, internal/power, while a Job waits for it.
//
// Package test/kit/guest says what it needs. It runs where KUBENERGY_REAL is set, as `make power-real` does.
package guest
