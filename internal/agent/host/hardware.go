package host

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// Hardware returns what the kernel says that the node is made of, from procfs and sysfs. It asks nothing over the
// network: clouds write their name, and some the type of the instance, into the firmware's tables.
func Hardware(proc, sys string) *batch.Hardware {
	h := &batch.Hardware{GPUs: map[string]int{}}
	cpuinfo, _ := os.ReadFile(filepath.Join(proc, "cpuinfo")) // what is not known is left out
	readCPUs(h, string(cpuinfo))
	if h.CPU == "" { // which containers do not see
		h.CPU = board(readText(proc, "device-tree/model"))
	}
	meminfo, _ := os.ReadFile(filepath.Join(proc, "meminfo"))
	if total := memTotal.FindSubmatch(meminfo); total != nil {
		kib, _ := strconv.ParseInt(string(total[1]), 10, 40)
		h.Memory = kib << 10
	}
	dmi := func(name string) string { return readText(sys, "class/dmi/id", name) }
	h.Vendor, h.Product = dmi("sys_vendor"), dmi("product_name")
	switch {
	case h.Vendor == "Amazon EC2":
		h.Cloud, h.Instance = "aws", h.Product
	case h.Vendor == "Google" && h.Product == "Google Compute Engine":
		h.Cloud = "gcp"
	case dmi("chassis_asset_tag") == azure:
		h.Cloud = "azure"
	}
	h.Virtual = h.Virtual || h.Cloud != "" && !strings.Contains(h.Instance, ".metal")
	readGPUs(h, proc, sys)
	return h
}

// azure is the asset tag of all of Azure's machines; Hyper-V elsewhere has the same vendor, but another tag.
const azure = "7783-7084-3265-9085-8269-3286-77"

var memTotal = regexp.MustCompile(`(?m)^MemTotal:\s+(\d{1,12}) kB$`)

// readCPUs reads /proc/cpuinfo, which has a paragraph for each thread.
func readCPUs(h *batch.Hardware, cpuinfo string) {
	sockets, cores := map[string]bool{}, map[string]bool{}
	socket, part := "", ""
	for line := range strings.Lines(cpuinfo) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == "flags" {
			h.Virtual = h.Virtual || slices.Contains(strings.Fields(value), "hypervisor")
		}
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "processor":
			h.Threads++
		case "model name":
			h.CPU = value
		case "Model": // of the board, as a Raspberry Pi has it; ARM has part numbers in the place of names
			h.CPU = board(value)
		case "physical id":
			socket = value
			sockets[socket] = true
		case "core id":
			cores[socket+"/"+value] = true
		case "CPU implementer":
			part = value
		case "CPU part":
			part += " " + value
		}
	}
	h.Sockets, h.Cores = len(sockets), len(cores)
	if name := armParts[part]; name != "" {
		h.CPU = name
	}
}

func board(model string) string {
	name, _, _ := strings.Cut(model, " Rev ")
	return name
}

// armParts are the CPUs of servers by implementer and part number, as ARM has none of their names in cpuinfo.
var armParts = map[string]string{
	"0x41 0xd0c": "ARM Neoverse N1", "0x41 0xd40": "ARM Neoverse V1", "0x41 0xd49": "ARM Neoverse N2",
	"0x41 0xd4f": "ARM Neoverse V2", "0xc0 0xac3": "AmpereOne", "0xc0 0xac4": "AmpereOne",
}

// readGPUs counts boards by the names that NVIDIA's and AMD's drivers have for them. One without its driver does no
// work.
func readGPUs(h *batch.Hardware, proc, sys string) {
	// The patterns are valid ones.
	nvidia, _ := filepath.Glob(filepath.Join(proc, "driver/nvidia/gpus/*/information"))
	amd, _ := filepath.Glob(filepath.Join(sys, "bus/pci/devices/*/product_name"))
	for _, path := range append(nvidia, amd...) {
		if model := strings.TrimSpace(strings.TrimPrefix(readText(path), "Model:")); model != "" {
			h.GPUs[model]++
		}
	}
}

// readText returns the first line of a small file, "" if there is none.
func readText(path ...string) string {
	text, _ := os.ReadFile(filepath.Join(path...)) // what is not known is left out
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.Trim(line, " \t\x00")
}
