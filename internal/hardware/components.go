package hardware

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Components contains the properties of a node that determine its power. Nodes with equal Components share one
// profile.
type Components struct {
	Provider string `json:"provider,omitempty"` // cloud provider of a virtual machine; empty for a physical machine
	Instance string `json:"instance,omitempty"` // instance type

	CPUModel string       `json:"cpuModel,omitempty"`
	CPUs     int64        `json:"cpus,omitempty"`          // hardware threads visible to the node
	Sockets  int64        `json:"sockets,omitempty"`       // of a physical machine; 0 to estimate it from the threads
	TDP      energy.Watts `json:"cpuTDPWatts,omitempty"`   // of a socket, if the model has no profile
	MaxGHz   float64      `json:"cpuMaxGHz,omitempty"`     // limit of the clock; 0 for none
	GPUModel string       `json:"gpuModel,omitempty"`      // several models are joined by " + "
	GPUs     int64        `json:"gpus,omitempty"`          // number counted by Kubernetes
	GPUShare float64      `json:"gpuShare,omitempty"`      // fraction of a board per GPU, if boards are partitioned
	GPUPower energy.Watts `json:"gpuPowerWatts,omitempty"` // of each GPU at full load, if annotated
	GPUPUE   float64      `json:"gpuPUERatio,omitempty"`   // PUE of the GPUs divided by that of the node
	Memory   int64        `json:"memoryBytes,omitempty"`   // installed memory, including the kernel's reserved part
	MemType  string       `json:"memoryType,omitempty"`    // defaults to DDR4
}

const (
	defaultMemory = "DDR4"
	gib           = 1 << 30
)

// TypicalMemory is used for types of memory that are not in the catalogue.
var TypicalMemory = Memory{IdlePowerPerGB: 0.15, MaxPowerPerGB: 0.39}

// idleShareOfTDP is the idle power of a CPU as a fraction of its TDP. If only the TDP is known, full load is
// assumed to draw the TDP, and idle about an eighth of it. This is the usual fit to servers measured at the socket.
const idleShareOfTDP = 0.12

// idleShareOfGPU is the idle power as a fraction of the full power, for a GPU of unknown model with annotated full
// power. Boards in the catalogue idle at 5 to 20 %.
const idleShareOfGPU = 0.1

// Profile returns the power model of k, which is the estimated sum of its components. The profile never sleeps,
// because sleep power is unknown. Equal components share the same pointer, which must not be modified.
//
// The CPU contributes its fraction of the socket by hardware threads; a physical machine has whole sockets. Memory
// that is included in the profile of the CPU is not counted again, and the power of the remaining memory depends on
// its usage.
//
// If the PUE of the GPUs differs from the PUE of the node, the power of the GPUs is scaled, so that multiplying it
// by the node's PUE gives the power at the facility.
func (c *Catalog) Profile(k Components) (*energy.Profile, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.profiles[k]; p != nil {
		return p, nil
	}
	p, err := c.sum(k)
	if err != nil {
		return nil, err
	}
	if len(c.profiles) >= maxProfiles {
		clear(c.profiles) // afterwards some hardware has two pointers, which is harmless
	}
	c.profiles[k] = p
	return p, nil
}

// maxProfiles limits the cached profiles, because labels are untrusted.
const maxProfiles = 1024

func (c *Catalog) sum(k Components) (*energy.Profile, error) {
	cpu, ok := c.CPUs[k.CPUModel]
	switch {
	case ok:
	case k.TDP > 0:
		cpu = CPU{
			IdlePower: idleShareOfTDP * k.TDP, MaxPower: k.TDP,
			Source: fmt.Sprintf("estimated from a TDP of %v W", float64(k.TDP)),
		}
	default:
		return nil, fmt.Errorf("CPU %q is not in the catalogue", k.CPUModel)
	}
	sockets, err := socketsOf(cpu, k)
	if err != nil {
		return nil, err
	}
	exp, err := exponent(cpu.PowerScaling)
	if err != nil {
		return nil, err
	}
	idle, full := sockets*cpu.IdlePower, sockets*cpu.IdlePower+sockets*capped(cpu, k.MaxGHz, exp)
	memory := energy.Watts(0)
	source := []string{
		fmt.Sprintf("%d threads of %s (%s)", k.CPUs, k.CPUModel, cmp.Or(cpu.Source, "from the catalogue")),
	}

	if gb := float64(k.Memory)/gib - cpu.MemoryGBPerThread*float64(k.CPUs); gb > 0 {
		m, name := c.memory(k.MemType)
		idle += m.BaseIdlePower + energy.Watts(gb)*m.IdlePowerPerGB
		full += m.BaseIdlePower + energy.Watts(gb)*m.MaxPowerPerGB
		memory = energy.Watts(gb) * (m.MaxPowerPerGB - m.IdlePowerPerGB)
		source = append(source, fmt.Sprintf("%.4g GB of %s", gb, name))
	}
	p := &energy.Profile{
		Name: c.name(k), Idle: cents(idle), Max: cents(full), Exponent: exp, Sleep: cents(idle),
		Quality: energy.Estimated,
	}
	p.Memory = min(cents(memory), p.Max-p.Idle)
	if k.GPUs > 0 {
		said, err := c.addGPUs(p, k)
		if err != nil {
			return nil, err
		}
		source = append(source, said)
	}
	if e := c.errorsOf(k); e != nil {
		source = append(source, e.String())
	}
	p.Source = strings.Join(source, "; ")
	if k.Instance != "" {
		p.Source = k.Provider + " " + k.Instance + ": " + p.Source
	}
	return p, p.Validate()
}

// socketsOf returns the number of sockets of the node, or its fraction of one.
func socketsOf(cpu CPU, k Components) (energy.Watts, error) {
	// A profile of a single thread does not describe a socket.
	if perThread := cpu.NumCores == 1 && cpu.ThreadsPerCore == 1; k.Sockets > 0 && !perThread {
		return energy.Watts(k.Sockets), nil
	}
	if cpu.NumCores == 0 {
		return 1, nil
	}
	if k.CPUs <= 0 {
		return 0, errors.New("the number of CPUs of the node is unknown")
	}
	threads := float64(cpu.NumCores * threadsPerCore(cpu, k.CPUModel))
	share := float64(k.CPUs) / threads
	if k.Provider == "" && k.CPUs >= cpu.NumCores {
		// A physical machine. With hyper-threading disabled it has half of the threads of the same sockets.
		share = max(1, math.Round(share))
	}
	return energy.Watts(share), nil
}

func threadsPerCore(cpu CPU, model string) int64 {
	// The first words of the names of common ARM CPUs.
	arm := []string{"arm", "ampere", "raspberry", "neoverse", "graviton"}
	if w := words(model); cpu.ThreadsPerCore == 0 && len(w) > 0 && slices.Contains(arm, w[0]) {
		return 1
	}
	return cmp.Or(max(0, cpu.ThreadsPerCore), 2)
}

// capped returns the difference between idle and full-load power of a socket with a clock of at most limit. Power
// depends on the clock linearly or quadratically, according to the profile.
func capped(cpu CPU, limit, exp float64) energy.Watts {
	span := cpu.MaxPower - cpu.IdlePower
	if top := cpu.FrequencyRangeGHz.Max; limit > 0 && limit < top {
		span *= energy.Watts(math.Pow(limit/top, exp))
	}
	return span
}

func (c *Catalog) memory(kind string) (Memory, string) {
	kind = cmp.Or(kind, defaultMemory)
	if m, ok := c.Memory[kind]; ok {
		return m, kind
	}
	return TypicalMemory, "unknown memory, assumed to be typical DDR4"
}

const mix = " + " // separates the models of a node with several GPU models

// addGPUs sets the GPU fields of p to the mean over the GPUs of k.
func (c *Catalog) addGPUs(p *energy.Profile, k Components) (source string, err error) {
	models := strings.Split(k.GPUModel, mix)
	share, pue := energy.Watts(cmp.Or(k.GPUShare, 1)), energy.Watts(cmp.Or(k.GPUPUE, 1))
	classes := map[string]energy.Watts{} // power by class, for classes that all models have
	seen := map[string]int{}
	var idle, full energy.Watts
	for _, model := range models {
		gpu, ok := c.GPUs[model]
		switch {
		case ok:
		case k.GPUPower > 0:
			gpu = GPU{IdlePower: idleShareOfGPU * k.GPUPower / share, MaxPower: k.GPUPower / share}
		default:
			return "", fmt.Errorf("GPU %q is not in the catalogue", model)
		}
		idle += gpu.IdlePower / energy.Watts(len(models))
		full += gpu.MaxPower / energy.Watts(len(models))
		for class, part := range gpu.WorkloadTypes {
			classes[class] += energy.Watts(part) * gpu.MaxPower / energy.Watts(len(models))
			seen[class]++
		}
		source = gpu.Source
	}
	scale := energy.Watts(1)
	if k.GPUPower > 0 {
		scale = k.GPUPower / (share * full)
		source = "full power as annotated"
	}
	for class, power := range classes {
		if seen[class] != len(models) || full == idle {
			continue
		}
		if p.GPUClasses == nil {
			p.GPUClasses = map[string]float64{}
		}
		// Convert a fraction of full power to a fraction of the range above idle.
		p.GPUClasses[class] = rounded(float64(min(max((power-idle)/(full-idle), 0), 1)), 1e4)
	}
	p.GPUMax = cents(full * share * scale * pue)
	p.GPUIdle = min(cents(idle*share*pue), p.GPUMax)
	said := fmt.Sprintf("%d × %s", k.GPUs, k.GPUModel)
	if k.GPUShare > 0 {
		said += fmt.Sprintf(", each %.3g of a board", k.GPUShare)
	}
	return said + " (" + cmp.Or(source, "from the catalogue") + ")", nil
}

// name returns the name of the profile of k: a descriptive DNS label, made unique by a hash if necessary.
func (c *Catalog) name(k Components) string {
	parts := []string{slug(k.Provider + "-" + k.Instance)}
	plain, ok := c.instanceComponents(k.Provider, k.Instance)
	detailed := plain != k
	if ok && plain.CPUModel == k.CPUModel {
		plain.CPUs, plain.Memory = k.CPUs, k.Memory // the type leaves these to the node
	} else {
		parts = slices.DeleteFunc([]string{slug(k.Provider), slug(k.CPUModel)}, func(s string) bool { return s == "" })
		plain = Components{
			Provider: k.Provider, CPUModel: k.CPUModel, CPUs: k.CPUs, GPUModel: k.GPUModel, GPUs: k.GPUs,
			Memory: k.Memory,
		}
	}
	if detailed {
		parts = append(parts, fmt.Sprintf("%dc-%dg", k.CPUs, k.Memory/gib))
		if k.GPUs > 0 {
			parts = append(parts, fmt.Sprintf("%dx-%s", k.GPUs, slug(k.GPUModel)))
		}
	}
	unique := plain == k
	name := strings.Join(parts, "-")
	for _, model := range append(strings.Split(k.GPUModel, mix), k.CPUModel, k.Provider+"-"+k.Instance) {
		unique = unique && c.slugs[slug(model)] <= 1
	}
	const longest = 63 // bytes of a label value and of a DNS label
	if unique && len(name) <= longest {
		return name
	}
	// Hash the JSON encoding, so that new optional fields do not change the names of existing hardware.
	h := fnv.New32a()
	if err := json.NewEncoder(h).Encode(k); err != nil {
		panic(err) // numbers that are not finite are rejected when they are parsed
	}
	tail := fmt.Sprintf("-%08x", h.Sum32())
	return strings.TrimRight(name[:min(len(name), longest-len(tail))], "-") + tail
}

// cents rounds to hundredths of a watt, which is more than sufficient.
func cents(w energy.Watts) energy.Watts { return energy.Watts(rounded(float64(w), 100)) }

func rounded(v, parts float64) float64 { return math.Round(v*parts) / parts }
