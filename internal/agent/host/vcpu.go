package host

import (
	"os"
	"strconv"
	"strings"
)

// What a virtual machine requests is what it was given: 1,000 thousandths for each virtual CPU. Machines may have
// more of them together than the node has CPUs, and sharing by requests scales that down. Where their number
// cannot be seen, only the proportion of weights is known: both versions' default, 1,024 and 100, is then read as one
// CPU, so that a machine of n virtual CPUs counts as one n-th of what it is.
func (n *node) machineShare() uint64 {
	switch {
	case n.vcpus > 0:
		return 1000 * uint64(n.vcpus)
	case n.role == process:
		return 1000
	case n.hier.version == 2:
		return n.weight * 10
	}
	return n.weight * 1000 / 1024
}

// maxVCPUs is more than any machine has: QEMU knows 4,096.
const maxVCPUs = 8192

// countVCPUs counts the groups that libvirt makes for virtual CPUs, and reports if there is another number of them.
func (n *node) countVCPUs() bool {
	for _, dir := range []string{n.dir + "/libvirt", n.dir} {
		if count := vcpuGroups(dir); count > 0 {
			changed := n.vcpus != count
			n.vcpus = count
			return changed
		}
	}
	return false
}

func vcpuGroups(dir string) int {
	f, err := os.Open(dir)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	entries, _ := f.ReadDir(maxVCPUs)
	count := 0
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "vcpu")
		if _, err := strconv.ParseUint(number, 10, 16); ok && err == nil && e.IsDir() {
			count++
		}
	}
	return count
}

// vcpusOf returns the number of virtual CPUs that a QEMU command line says; 0 if it cannot be told.
func vcpusOf(cmdline []byte) int {
	value, ok := option(cmdline, "smp")
	if !ok {
		return 1 // what QEMU gives without -smp
	}
	return smpOption(value)
}

// smpOption reads the value of -smp: "4", "cpus=4,maxcpus=8", or a topology whose product it is, "sockets=2,cores=4".
func smpOption(value string) int {
	cpus, most, product := 0, 0, 1
	for i, part := range strings.Split(value, ",") {
		key, number, isPair := strings.Cut(part, "=")
		if !isPair && i == 0 {
			key, number = "cpus", part
		}
		v, err := strconv.Atoi(number)
		if err != nil || v < 0 || v > maxVCPUs {
			return 0
		}
		switch {
		case v == 0: // not given
		case key == "cpus":
			cpus = v
		case key == "maxcpus":
			most = v
		default: // sockets, cores, threads and what is between them
			product = min(product*v, maxVCPUs+1)
		}
	}
	switch {
	case cpus > 0:
		return cpus
	case most > 0:
		return most
	case product <= maxVCPUs:
		return product
	}
	return 0
}
