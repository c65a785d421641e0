// Package nodes installs a release on two real kubelets on this machine. It uses the images built by make images
// and the released manifests, following the documentation. Containers run with containerd and runc, kube-proxy
// implements Services, agents meter real control groups, and requests pass through the proxy of the API server.
//
// All processes run in separate network, mount and PID namespaces that are removed when the test ends, even if it
// is killed. The control plane runs in the namespaces of the test and is connected to a bridge, and each node runs
// in nested namespaces. Energy counters are files written by the test, because nodes on one machine would share the
// counters of the kernel. Network policies are not enforced because the CNI plugins do not support them.
//
// The nodes use the control group version of the machine. Version 2 has not been tested here, but package guest
// uses it.
//
// The test requires root and the Debian packages containerd, runc, containernetworking-plugins, nftables and
// iproute2. With qemu-user-static, it also runs the images for ARM. It runs only if KUBENERGY_REAL is set, for
// example with `make e2e-nodes`, and the skip message lists missing requirements.
package nodes
