// Package guest tests that a real machine is suspended and woken up. The machine is a QEMU guest with its own
// kernel, systemd, containerd and kubelet, and it is the only node of the lab's control plane. The package
// internal/power shuts it down and starts it through Redfish while a Job is waiting for it.
//
// The requirements are documented in package test/kit/guest. The test runs only if KUBENERGY_REAL is set, for
// example with `make power-real`.
package guest
