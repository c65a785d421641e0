package energy

import "strings"

// Consumers are named by strings that sort and that need no table to be understood:
//
//	pod/UID/CONTAINER  a container of a pod
//	pod/UID            what a pod used beyond its living containers: its sandbox, and containers that ended
//	vm/NAME            a virtual machine
//	cgroup/PATH        another control group that was asked for, as a Slurm step
//	system             everything else that runs on the node: the kernel, daemons, the kubelet
const (
	podPrefix    = "pod/"
	vmPrefix     = "vm/"
	cgroupPrefix = "cgroup/"

	// System is the consumer for what runs on a node outside of pods, virtual machines and named groups.
	System = "system"
)

// ContainerID returns the consumer of a container; with an empty container, of the pod itself.
func ContainerID(podUID, container string) string {
	if container == "" {
		return podPrefix + podUID
	}
	return podPrefix + podUID + "/" + container
}

// VMID returns the consumer of a virtual machine.
func VMID(name string) string { return vmPrefix + name }

// CgroupID returns the consumer of another control group.
func CgroupID(path string) string { return cgroupPrefix + path }

// PodOf returns the pod and the container that a consumer belongs to; the container is empty for the pod itself.
func PodOf(consumer string) (podUID, container string, ok bool) {
	rest, ok := strings.CutPrefix(consumer, podPrefix)
	if !ok {
		return "", "", false
	}
	podUID, container, _ = strings.Cut(rest, "/")
	return podUID, container, podUID != ""
}

// VMOf returns the name of the virtual machine that a consumer is.
func VMOf(consumer string) (name string, ok bool) {
	name, ok = strings.CutPrefix(consumer, vmPrefix)
	return name, ok && name != ""
}

// CgroupOf returns the path of the control group that a consumer is.
func CgroupOf(consumer string) (path string, ok bool) {
	path, ok = strings.CutPrefix(consumer, cgroupPrefix)
	return path, ok && path != ""
}
