// Package nodes installs what is shipped on two real kubelets of this machine: our images, as make images builds them,
// by our manifests, as documents say. containerd and runc run them, kube-proxy leads to Services, a kernel's control
// groups are metered, and requests come through the API server's proxy.
//
// All of it stands in namespaces of networks, mounts and processes of its own, which end with the test, also where that
// is killed: the control plane where the test is, on a bridge, and each node in namespaces below. Energy counters are
// files that the test writes, for nodes of one machine would share those of the kernel. Network policies are not carried
// out: the plugins that join pods here know none.
//
// Nodes take control groups as the machine has them: version 1, or version 2, which was not tried here. The kubelet of
// package guest has version 2.
//
// The test needs root, and of Debian containerd, runc, containernetworking-plugins, nftables and iproute2; with
// qemu-user-static it also runs the images for ARM. It runs where KUBENERGY_REAL is set, as `make e2e-nodes` does, and
// says why where it cannot.
package nodes
