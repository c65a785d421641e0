package energy

import "strings"

// Consumers are identified by strings that sort and are readable without a lookup table:
//
//	pod/UID/CONTAINER  a container of a pod
//	pod/UID            usage of a pod beyond its running containers: its sandbox, and containers that ended
//	vm/NAME            a virtual machine
//	cgroup/PATH        another configured control group, e.g. a Slurm step
//	system             everything else on the node: the kernel, daemons, the kubelet
const (
	podPrefix    = "pod/"
	vmPrefix     = "vm/"
	cgroupPrefix = "cgroup/"

	// System is the consumer for everything that runs on a node outside of pods, virtual machines and configured
	// groups.
	System = "system"
)

// ContainerID returns the consumer ID of a container, or of the pod itself if container is empty.
func ContainerID(podUID, container string) string {
	if container == "" {
		return podPrefix + podUID
	}
	return podPrefix + podUID + "/" + container
}

// VMID returns the consumer ID of a virtual machine.
func VMID(name string) string { return vmPrefix + name }

// CgroupID returns the consumer ID of another control group.
func CgroupID(path string) string { return cgroupPrefix + path }

// PodOf returns the pod and the container of a consumer. The container is empty for the pod itself.
func PodOf(consumer string) (podUID, container string, ok bool) {
	rest, ok := strings.CutPrefix(consumer, podPrefix)
	if !ok {
		return "", "", false
	}
	podUID, container, _ = strings.Cut(rest, "/")
	return podUID, container, podUID != ""
}

// VMOf returns the name of the virtual machine that the consumer represents.
func VMOf(consumer string) (name string, ok bool) {
	name, ok = strings.CutPrefix(consumer, vmPrefix)
	return name, ok && name != ""
}

// CgroupOf returns the path of the control group that the consumer represents.
func CgroupOf(consumer string) (path string, ok bool) {
	path, ok = strings.CutPrefix(consumer, cgroupPrefix)
	return path, ok && path != ""
}
