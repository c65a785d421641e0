// Package lab runs a whole Kubernetes control plane in the calling process: etcd, kube-apiserver,
// kube-controller-manager, any number of kube-schedulers with out-of-tree plugins, and simulated
// nodes (KWOK) on which pods start at once and end when they are told to. Pods of chosen images are no
// simulation: they run as processes of this machine (package kubelet). No container runtime, no root, no
// download: it is for laptops, CI and tests that want the real API machinery.
//
// A Redfish service turns nodes off and on (StartMachines): one that is off sends no heartbeat, and one
// that boots takes its time or fails.
//
// What it refuses to be: a cluster that runs real containers, one that others may reach (the API
// server listens on 127.0.0.1 only, etcd on a socket inside Options.Dir), or one whose data survives
// a power cut (etcd does not fsync).
//
// # What the caller must know
//
//  1. One Cluster per process, ever. kube-controller-manager registers a process-wide informer name
//     that it never gives back, so a second Start in the same process returns ErrStarted even after
//     Stop. Tests of one package share a Cluster; schedulers can be started and stopped on it as often
//     as wanted.
//  2. Process-wide state is shared by all components: feature gates (a --feature-gates argument of one
//     component is seen by all), klog's destination, the Prometheus registry (the API server's
//     /metrics shows the scheduler's and the controller-manager's metrics too, summed over all
//     schedulers that ever ran). None of it is reset by Stop.
//  3. Leader election is off, always: kube-scheduler calls os.Exit when it loses or gives back a lease.
//  4. Cancelling the context given to Start or StartScheduler ends the waiting for readiness and
//     nothing else. What runs is ended by Stop and by the function that StartScheduler returns.
//  5. A few goroutines of upstream code (KWOK's event broadcaster, caches of client transports)
//     outlive Stop. They hold no port and no file.
package lab
