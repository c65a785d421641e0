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

// Components is what a node is made of, as far as its power depends on it. Nodes of equal Components have one profile.
type Components struct {
	Provider string `json:"provider,omitempty"` // of the cloud that owns the machine; its nodes are parts of servers
	Instance string `json:"instance,omitempty"` // its type

	CPUModel string       `json:"cpuModel,omitempty"`
	CPUs     int64        `json:"cpus,omitempty"`          // hardware threads that the node sees
	Sockets  int64        `json:"sockets,omitempty"`       // of a machine of its own; 0: guessed from the threads
	TDP      energy.Watts `json:"cpuTDPWatts,omitempty"`   // of a socket, where the model has no profile
	MaxGHz   float64      `json:"cpuMaxGHz,omitempty"`     // where the clock is capped; 0: it is not
	GPUModel string       `json:"gpuModel,omitempty"`      // several are joined by " + "
	GPUs     int64        `json:"gpus,omitempty"`          // that Kubernetes counts
	GPUShare float64      `json:"gpuShare,omitempty"`      // of a board in each of them, where boards are partitioned
	GPUPower energy.Watts `json:"gpuPowerWatts,omitempty"` // of each at full load, where the owner says so
	GPUPUE   float64      `json:"gpuPUERatio,omitempty"`   // PUE of the GPUs divided by that of the node
	Memory   int64        `json:"memoryBytes,omitempty"`   // of the machine, not what its kernel left of it
	MemType  string       `json:"memoryType,omitempty"`    // "" reads as DDR4
}

const (
	defaultMemory = "DDR4"
	gib           = 1 << 30
)

// TypicalMemory is what holds for types of memory that the catalogue lacks.
var TypicalMemory = Memory{IdlePowerPerGB: 0.15, MaxPowerPerGB: 0.39}

// Where only the TDP of a CPU is known, full load draws about that, and idle about an eighth: the usual fit to servers
// measured at the socket.
const idleShareOfTDP = 0.12

// Of a GPU of unknown model whose full power the owner says. Boards of the catalogue idle at 5 to 20 %.
const idleShareOfGPU = 0.1

// Profile returns the power model of k: the sum of its parts. It is estimated. It never sleeps, because it
// is unknown what the node draws then. Equal components get one and the same pointer: read only.
//
// The CPU's part is its share of the socket by hardware threads: all of it for machines of their own, which have whole
// sockets. Memory whose power the CPU's profile contains is not counted again; that of the rest follows its use.
//
// A GPU's PUE other than the node's is folded into the watts of the GPUs, so that the PUE of the node times those is
// what the facility draws for them.
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
		clear(c.profiles) // from now on there are two pointers for some hardware, which is no harm
	}
	c.profiles[k] = p
	return p, nil
}

// maxProfiles bounds what labels can make us remember.
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
		fmt.Sprintf("%d threads of %s (%s)", k.CPUs, k.CPUModel, cmp.Or(cpu.Source, "as the catalogue says")),
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

// socketsOf returns how many sockets, or which part of one, the node has.
func socketsOf(cpu CPU, k Components) (energy.Watts, error) {
	// A profile of one thread is of no socket.
	if perThread := cpu.NumCores == 1 && cpu.ThreadsPerCore == 1; k.Sockets > 0 && !perThread {
		return energy.Watts(k.Sockets), nil
	}
	if cpu.NumCores == 0 {
		return 1, nil
	}
	if k.CPUs <= 0 {
		return 0, errors.New("how many CPUs the node has is not known")
	}
	threads := float64(cpu.NumCores * threadsPerCore(cpu, k.CPUModel))
	share := float64(k.CPUs) / threads
	if k.Provider == "" && k.CPUs >= cpu.NumCores {
		// A machine of its own. With hyper-threading off it shows half of the threads, of the same sockets.
		share = max(1, math.Round(share))
	}
	return energy.Watts(share), nil
}

func threadsPerCore(cpu CPU, model string) int64 {
	// the first word of the names of ARM CPUs that are in use
	arm := []string{"arm", "ampere", "raspberry", "neoverse", "graviton"}
	if w := words(model); cpu.ThreadsPerCore == 0 && len(w) > 0 && slices.Contains(arm, w[0]) {
		return 1
	}
	return cmp.Or(max(0, cpu.ThreadsPerCore), 2)
}

// capped is the range from idle to full load of a socket whose clock may not exceed limit: power follows the clock,
// linearly or squared, as the profile says.
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
	return TypicalMemory, "memory, taken as typical DDR4"
}

const mix = " + " // joins the models of a node with several

// addGPUs sets the GPU fields of p to those of the mean GPU of k.
func (c *Catalog) addGPUs(p *energy.Profile, k Components) (source string, err error) {
	models := strings.Split(k.GPUModel, mix)
	share, pue := energy.Watts(cmp.Or(k.GPUShare, 1)), energy.Watts(cmp.Or(k.GPUPUE, 1))
	classes := map[string]energy.Watts{} // power in a class, if all models have it
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
		// From a share of full power to one of the range above idle.
		p.GPUClasses[class] = rounded(float64(min(max((power-idle)/(full-idle), 0), 1)), 1e4)
	}
	p.GPUMax = cents(full * share * scale * pue)
	p.GPUIdle = min(cents(idle*share*pue), p.GPUMax)
	said := fmt.Sprintf("%d × %s", k.GPUs, k.GPUModel)
	if k.GPUShare > 0 {
		said += fmt.Sprintf(", each %.3g of a board", k.GPUShare)
	}
	return said + " (" + cmp.Or(source, "as the catalogue says") + ")", nil
}

// name of the profile of k: a DNS label that says what it is, made different by a hash where it would not be otherwise.
func (c *Catalog) name(k Components) string {
	parts := []string{slug(k.Provider + "-" + k.Instance)}
	plain, ok := c.instanceComponents(k.Provider, k.Instance)
	detailed := plain != k
	if ok && plain.CPUModel == k.CPUModel {
		plain.CPUs, plain.Memory = k.CPUs, k.Memory // where the type leaves them to the node
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
	const longest = 63 // bytes of a label value, and of a DNS label
	if unique && len(name) <= longest {
		return name
	}
	// As JSON, so that fields to come do not change the names of hardware that has none of them.
	h := fnv.New32a()
	if err := json.NewEncoder(h).Encode(k); err != nil {
		panic(err) // numbers that are not finite are refused where they are read
	}
	tail := fmt.Sprintf("-%08x", h.Sum32())
	return strings.TrimRight(name[:min(len(name), longest-len(tail))], "-") + tail
}

// cents keeps hundredths of a watt, more than any of this is worth.
func cents(w energy.Watts) energy.Watts { return energy.Watts(rounded(float64(w), 100)) }

func rounded(v, parts float64) float64 { return math.Round(v*parts) / parts }
