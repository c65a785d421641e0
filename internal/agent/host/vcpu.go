package host

import (
	"os"
	"strconv"
	"strings"
)

// machineShare returns the requested CPU of a virtual machine in millicores: 1,000 for each virtual CPU. The sum
// over all machines may exceed the node's CPUs; the distribution by requests scales it down. If the number of
// virtual CPUs is unknown, the weight is used: the default weights of both versions, 1,024 and 100, count as one
// CPU, so a machine with n virtual CPUs counts as one n-th of its size.
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

// maxVCPUs exceeds the number of virtual CPUs of any machine; QEMU supports 4,096.
const maxVCPUs = 8192

// countVCPUs counts libvirt's groups of virtual CPUs, and reports whether the number has changed.
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

// vcpusOf returns the number of virtual CPUs in a QEMU command line, or 0 if it is unknown.
func vcpusOf(cmdline []byte) int {
	value, ok := option(cmdline, "smp")
	if !ok {
		return 1 // QEMU's default without -smp
	}
	return smpOption(value)
}

// smpOption parses the value of -smp, e.g. "4", "cpus=4,maxcpus=8", or a topology such as "sockets=2,cores=4".
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
		case v == 0: // not specified
		case key == "cpus":
			cpus = v
		case key == "maxcpus":
			most = v
		default: // sockets, cores, threads and intermediate levels
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
