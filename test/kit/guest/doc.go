// Package guest makes virtual machines for tests that need whole ones: a kernel, systemd, containerd and a kubelet of
// their own, or a kernel alone.
//
// The disk is made once and kept in the user's cache folder, kubenergy/guest-HASH; nothing of it is in the repository.
// Its operating system is the Debian that this machine has, from the same archive. Where /dev/kvm cannot be opened, or
// the processor does not virtualise, guests are emulated, which is several times slower.
//
// Tests need root, Debian, qemu-system-x86, qemu-utils, e2fsprogs and mmdebstrap. They run where KUBENERGY_REAL is set,
// and say why where they cannot.
package guest
