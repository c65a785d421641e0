// Package kubelet runs pods as processes of this machine: what a kubelet does, without containers. A pod whose image is
// named like one of the given binaries is carried out by that binary, with the container's arguments, environment,
// volumes, probes, restarts, grace period and account.
//
// What it refuses to be: a container runtime. securityContext, resources, hostname and the image's own file system mean
// nothing here; all pods share the machine's network. What a pod asks for and cannot have, such as a host path or a
// probe that runs a command, is refused in its status and not left out in silence.
//
// What stands in for a container's isolation:
//
//   - A mount's path is replaced by that of the volume's folder wherever it stands in arguments and in the environment.
//     A program that opens a fixed path which neither names does not find it.
//   - A port that is declared, probed, or given to a flag called …port, …address or …listen becomes a free port on
//     127.0.0.1, so that replicas do not collide. The annotation lab-ports of the pod says which.
//   - NAME.NAMESPACE.svc:PORT, with or without .cluster.local, becomes localhost and a free port wherever it stands in
//     arguments and in the environment. A connection there is handed on, as it is, to a ready pod that the Service
//     selects. A certificate that a pod serves must therefore name localhost. Files that name a Service, and other
//     forms of its name, reach nothing.
//   - A pod's status and Endpoints name an address that leads to its ports through [Network] alone, which is how the
//     API server's proxy reaches it.
//   - An account that is mounted where in-cluster clients look for it is also given as a kubeconfig, in $KUBECONFIG
//     and as clientConnection.kubeconfig of a mounted KubeSchedulerConfiguration.
package kubelet
