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

// Hardware returns the hardware of the node as reported by procfs and sysfs. It sends no network requests: clouds
// put their name, and some also the instance type, into the firmware tables.
func Hardware(proc, sys string) *batch.Hardware {
	h := &batch.Hardware{GPUs: map[string]int{}}
	cpuinfo, _ := os.ReadFile(filepath.Join(proc, "cpuinfo")) // unknown values are omitted
	readCPUs(h, string(cpuinfo))
	if h.CPU == "" { // device-tree is not visible in containers
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

// azure is the asset tag of all Azure machines. Hyper-V outside of Azure uses the same vendor but a different tag.
const azure = "7783-7084-3265-9085-8269-3286-77"

var memTotal = regexp.MustCompile(`(?m)^MemTotal:\s+(\d{1,12}) kB$`)

// readCPUs parses /proc/cpuinfo, which has a paragraph per thread.
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
		case "Model": // board, e.g. of a Raspberry Pi; ARM reports part numbers instead of CPU names
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

// armParts maps implementer and part numbers to CPU names, because /proc/cpuinfo does not contain names on ARM.
var armParts = map[string]string{
	"0x41 0xd0c": "ARM Neoverse N1", "0x41 0xd40": "ARM Neoverse V1", "0x41 0xd49": "ARM Neoverse N2",
	"0x41 0xd4f": "ARM Neoverse V2", "0xc0 0xac3": "AmpereOne", "0xc0 0xac4": "AmpereOne",
}

// readGPUs counts the GPUs by the model names that NVIDIA's and AMD's drivers report. GPUs without a driver cannot
// be used and are not counted.
func readGPUs(h *batch.Hardware, proc, sys string) {
	// The patterns are valid, so Glob returns no error.
	nvidia, _ := filepath.Glob(filepath.Join(proc, "driver/nvidia/gpus/*/information"))
	amd, _ := filepath.Glob(filepath.Join(sys, "bus/pci/devices/*/product_name"))
	for _, path := range append(nvidia, amd...) {
		if model := strings.TrimSpace(strings.TrimPrefix(readText(path), "Model:")); model != "" {
			h.GPUs[model]++
		}
	}
}

// readText returns the first line of a small file, or "" if it cannot be read.
func readText(path ...string) string {
	text, _ := os.ReadFile(filepath.Join(path...)) // unknown values are omitted
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.Trim(line, " \t\x00")
}
