// Package guest sends a real machine to sleep and wakes it: a guest of QEMU with a kernel, systemd, containerd and a
// kubelet of its own, which is the only node of the lab's control plane. It is shut down and started through Redfish by
// what does so on a cluster, controller/power, while a Job waits for it.
//
// The guest's disk is made once and kept in the user's cache folder, kubenergy/guest-HASH; nothing of it is in the
// repository. Its operating system is the Debian that this machine has, from the same archive. Where /dev/kvm cannot be
// opened, or the processor does not virtualise, the guest is emulated, which is several times slower.
//
// The test needs root, Debian, qemu-system-x86, qemu-utils, e2fsprogs and mmdebstrap. It runs where KUBENERGY_REAL is
// set, as `make power-real` does, and says why where it cannot.
package guest
