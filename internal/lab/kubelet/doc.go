// Package kubelet runs pods as processes on this machine, like a kubelet without containers. If the image of a pod
// has the name of one of the given binaries, the binary is run with the container's arguments, environment,
// volumes, probes, restarts, grace period and service account.
//
// It is not a container runtime. securityContext, resources, hostname and the file system of the image have no
// effect, and all pods share the network of the machine. Unsupported features, such as host paths and exec probes,
// are reported in the status of the pod rather than ignored.
//
// The isolation of containers is emulated as follows:
//
//   - The path of a mount is replaced by the path of the volume's directory in arguments and in the environment. A
//     program cannot open a hard-coded path that occurs in neither.
//   - A port that is declared, probed, or passed to a flag named …port, …address or …listen is replaced by a free
//     port on 127.0.0.1, so that replicas do not conflict. The mapping is in the annotation lab-ports of the pod.
//   - NAME.NAMESPACE.svc:PORT, with or without .cluster.local, is replaced by localhost and a free port in
//     arguments and in the environment. Connections to that port are forwarded unchanged to a ready pod of the
//     Service, so the certificate of a pod must be valid for localhost. Services in files and other forms of their
//     names are not supported.
//   - The addresses in pod statuses and Endpoints are only reachable through [Network], which is used by the API
//     server's proxy.
//   - A service account that is mounted at the default path is also provided as a kubeconfig, in $KUBECONFIG and
//     as clientConnection.kubeconfig of a mounted KubeSchedulerConfiguration.
package kubelet
