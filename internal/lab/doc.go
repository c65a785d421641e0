// Package lab runs a complete Kubernetes control plane in the calling process: etcd, kube-apiserver,
// kube-controller-manager, any number of kube-schedulers with out-of-tree plugins, and simulated nodes (KWOK) on
// which pods start immediately and end after a given time. Pods with certain images are not simulated, but run as
// processes on this machine (package kubelet). It requires no container runtime, no root privileges and no
// downloads, and is intended for laptops, CI and tests of the real API machinery.
//
// A Redfish service turns nodes off and on (StartMachines): a node that is off sends no heartbeat, and booting
// takes time or fails.
//
// The lab does not run real containers, cannot be reached by other machines (by default the API server listens only
// on 127.0.0.1, and etcd on a socket inside Options.Dir), and its data does not survive a power failure (etcd does
// not fsync).
//
// # Restrictions
//
//  1. There can only be one Cluster per process. kube-controller-manager registers a process-wide informer name
//     that it never releases, so a second Start in the same process returns ErrStarted even after Stop. The tests
//     of a package share a Cluster, on which schedulers can be started and stopped any number of times.
//  2. Process-wide state is shared by all components: feature gates (a --feature-gates argument of one component
//     affects all), the output of klog, and the Prometheus registry (the /metrics of the API server include the
//     metrics of the schedulers and the controller manager, summed over all schedulers since the start). Stop does
//     not reset this state.
//  3. Leader election is always disabled, because kube-scheduler calls os.Exit when it loses or releases a lease.
//  4. Cancelling the context passed to Start or StartScheduler only stops waiting for readiness. Running
//     components are stopped by Stop and by the function returned by StartScheduler.
//  5. A few goroutines of upstream code (KWOK's event broadcaster, caches of client transports) outlive Stop. They
//     do not hold ports or files.
package lab
