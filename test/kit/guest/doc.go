// Package guest creates virtual machines for tests that need a complete machine, either with its own kernel,
// systemd, containerd and kubelet, or with only a kernel.
//
// The disk is built once and cached in the user's cache directory as kubenergy/guest-HASH. It is not part of the
// repository. The operating system is the Debian release of the machine that runs the tests, installed from the
// same archive. If /dev/kvm cannot be opened or the processor does not support virtualization, guests are emulated,
// which is several times slower.
//
// The tests require root, Debian, qemu-system-x86, qemu-utils, e2fsprogs and mmdebstrap. They run only if
// KUBENERGY_REAL is set, and the skip message lists the missing requirements.
package guest
