package hardware

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Catalog is what is known about hardware: the contents of a hardware-profiles.yaml. Build it with [Default] or
// [WithFile]; after that it is read only, and any number of goroutines may ask it.
//
// Fields that carry no power are accepted, so that files of Compute Gardener load as they are; [Catalog.Warnings] lists
// those without effect. Fields marked "ours" are additions to that format.
type Catalog struct {
	// DefaultPUE is that of nodes that name none; 0: that of the site.
	DefaultPUE float64 `json:"defaultPUE,omitempty"`
	// DefaultGPUPUE holds for GPUs of nodes that name none; 0: that of the node.
	DefaultGPUPUE float64 `json:"defaultGPUPUE,omitempty"`
	// CPUModels maps vendor and "family-model", as Node Feature Discovery labels them, to a key of CPUs. A key of the
	// family alone is a fallback.
	CPUModels map[string]map[string]string `json:"cpuModelMappings,omitempty"`
	CPUs      map[string]CPU               `json:"cpuProfiles,omitempty"`
	GPUs      map[string]GPU               `json:"gpuProfiles,omitempty"`
	Memory    map[string]Memory            `json:"memProfiles,omitempty"`
	// Instances maps provider (aws, gcp, azure, or the scheme of another one's provider ID) and type to components.
	Instances map[string]map[string]Instance `json:"cloudInstanceMapping,omitempty"`

	warnings    []string
	errors      map[string]*Errors // of profiles, by what they rest on
	generations []Generation
	cpus        map[string]string // spellings of a name → key of CPUs; "" where several models share one
	gpus        map[string]string
	instances   map[string]map[string]string // provider → type in lower case → type
	slugs       map[string]int               // how many models or instance types share a form of their names

	mu       sync.Mutex
	profiles map[Components]*energy.Profile
}

// CPU is the power model of one socket.
type CPU struct {
	IdlePower energy.Watts `json:"idlePower"`
	MaxPower  energy.Watts `json:"maxPower"`
	// NumCores are the physical cores of the socket. Without them the socket is the node, however many CPUs it counts.
	NumCores int64 `json:"numCores,omitempty"`
	// BaseFrequencyGHz has no effect: max power is that of the whole range.
	BaseFrequencyGHz float64 `json:"baseFrequencyGHz,omitempty"`
	// PowerScaling says how power grows over the range from idle to full load: linear, or quadratic.
	PowerScaling string `json:"powerScaling,omitempty"`
	// FrequencyRangeGHz bounds the clock. A node that is annotated with a lower maximum draws less at full load.
	FrequencyRangeGHz Range `json:"frequencyRangeGHz,omitzero"`

	// ThreadsPerCore is ours: hardware threads that a core shows as CPUs. By default 2; 1 for ARM.
	ThreadsPerCore int64 `json:"threadsPerCore,omitempty"`
	// MemoryGBPerThread is ours: memory whose power the profile contains, since whole servers were measured.
	MemoryGBPerThread float64 `json:"memoryGBPerThread,omitempty"`
	// Names is ours: what the model is also called.
	Names []string `json:"names,omitempty"`
	// Generic is ours: the profile stands in for hardware that is not known better.
	Generic bool `json:"generic,omitempty"`
	// Source is ours: where the numbers come from.
	Source string `json:"source,omitempty"`

	// What it rests on: model (results of this one), TDP and generation (results of that), TDP, threads (watts of its
	// generation by the thread), family, or stand-in (watts of another generation); "": it was written by hand.
	basis string
}

// GPU is the power model of one board.
type GPU struct {
	IdlePower energy.Watts `json:"idlePower"`
	MaxPower  energy.Watts `json:"maxPower"`
	// WorkloadTypes are the shares of max power that classes of work draw: inference, training, rendering.
	WorkloadTypes map[string]float64 `json:"workloadTypes,omitempty"`

	// Without effect: how power follows the clock of a GPU is not modelled.
	BaseFrequencyGHz  float64 `json:"baseFrequencyGHz,omitempty"`
	PowerScaling      string  `json:"powerScaling,omitempty"`
	FrequencyRangeGHz Range   `json:"frequencyRangeGHz,omitzero"`

	Names  []string `json:"names,omitempty"`  // ours: what the model is also called
	Source string   `json:"source,omitempty"` // ours: where the numbers come from
}

// Memory is the power model of a type of memory.
type Memory struct {
	IdlePowerPerGB energy.Watts `json:"idlePowerPerGB"`
	MaxPowerPerGB  energy.Watts `json:"maxPowerPerGB"`
	BaseIdlePower  energy.Watts `json:"baseIdlePower,omitempty"` // of the modules, whatever their size
}

// Range is one of frequencies, in GHz.
type Range struct {
	Min float64 `json:"min,omitempty"`
	Max float64 `json:"max,omitempty"`
}

// Instance is what a type of virtual machine is made of.
type Instance struct {
	CPUModel    string       `json:"cpuModel"`
	NumCPUs     int64        `json:"numCPUs,omitempty"`  // hardware threads that the instance sees; 0: as the node says
	NumCores    int64        `json:"numCores,omitempty"` // another word for numCPUs in files that exist
	GPUModel    string       `json:"gpuModel,omitempty"`
	NumGPUs     int64        `json:"numGPUs,omitempty"`
	MemoryType  string       `json:"memoryType,omitempty"`
	TotalMemory int64        `json:"totalMemory,omitempty"` // MiB; 0: as the node says
	MemChannels int64        `json:"memChannels,omitempty"` // without effect
	CPUTDPWatts energy.Watts `json:"cpuTdpWatts,omitempty"` // of the socket, for a cpuModel without a profile
}

// WithFile returns the bundled catalogue with what a hardware-profiles.yaml, or the ConfigMap that holds one, adds to
// it. Reading is strict: a field that the format does not have is an error, because its author believes it to have an
// effect.
func WithFile(data []byte) (*Catalog, error) {
	users, err := read(data)
	if err != nil {
		return nil, err
	}
	return merge(Default(), users)
}

func read(data []byte) (*Catalog, error) {
	data, err := unwrap(data, "hardware-profiles.yaml")
	if err != nil {
		return nil, fmt.Errorf("reading hardware profiles: %w", err)
	}
	c := &Catalog{}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, fmt.Errorf("reading hardware profiles: %w", err)
	}
	if err := c.finish(); err != nil {
		return nil, fmt.Errorf("reading hardware profiles: %w", err)
	}
	return c, nil
}

// unwrap returns the value of a key of a ConfigMap, or the text itself if it is not one.
func unwrap(text []byte, key string) ([]byte, error) {
	var wrapper struct {
		Kind string            `json:"kind"`
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal(text, &wrapper); err != nil || wrapper.Kind != "ConfigMap" {
		return text, nil //nolint:nilerr // whatever it is, it is not a ConfigMap; the caller reads it strictly
	}
	value, ok := wrapper.Data[key]
	if !ok {
		return nil, fmt.Errorf("the ConfigMap has no key %s: it has %s", key,
			strings.Join(slices.Sorted(maps.Keys(wrapper.Data)), ", "))
	}
	return []byte(value), nil
}

// Warnings returns what a file says without effect, in order.
func (c *Catalog) Warnings() []string { return c.warnings }

// merge returns a catalogue of all entries. Of entries of one key the last one wins: what users write.
func merge(catalogues ...*Catalog) (*Catalog, error) {
	all := &Catalog{
		CPUModels: map[string]map[string]string{}, CPUs: map[string]CPU{}, GPUs: map[string]GPU{},
		Memory: map[string]Memory{}, Instances: map[string]map[string]Instance{},
		errors: map[string]*Errors{},
	}
	for _, c := range catalogues {
		all.DefaultPUE = cmp.Or(c.DefaultPUE, all.DefaultPUE)
		all.DefaultGPUPUE = cmp.Or(c.DefaultGPUPUE, all.DefaultGPUPUE)
		mergeNested(all.CPUModels, c.CPUModels)
		maps.Copy(all.CPUs, c.CPUs)
		maps.Copy(all.GPUs, c.GPUs)
		maps.Copy(all.Memory, c.Memory)
		mergeNested(all.Instances, c.Instances)
		all.generations = append(all.generations, c.generations...)
		maps.Copy(all.errors, c.errors)
	}
	if err := all.finish(); err != nil {
		return nil, fmt.Errorf("merging hardware profiles: %w", err)
	}
	all.preferLast(catalogues)
	return all, nil
}

func mergeNested[V any](into, from map[string]map[string]V) {
	for outer, inner := range from {
		if into[outer] == nil {
			into[outer] = map[string]V{}
		}
		maps.Copy(into[outer], inner)
	}
}

// preferLast gives spellings that several models share to the model of the last catalogue that has one of them: a
// user's "NVIDIA A100" is meant to replace the bundled board of that name.
func (c *Catalog) preferLast(catalogues []*Catalog) {
	for _, part := range catalogues {
		for _, index := range [...]struct{ all, of map[string]string }{{c.cpus, part.cpus}, {c.gpus, part.gpus}} {
			for spelling, model := range index.of {
				if model != "" {
					index.all[spelling] = model
				}
			}
		}
	}
}

// finish checks c and builds its indexes.
func (c *Catalog) finish() error {
	if err := c.check(); err != nil {
		return err
	}
	c.slugs = map[string]int{}
	c.instances = map[string]map[string]string{}
	c.profiles = map[Components]*energy.Profile{}
	c.cpus = index(c.slugs, c.CPUs, func(p CPU) []string { return p.Names }, cpuSpellings)
	c.gpus = index(c.slugs, c.GPUs, func(p GPU) []string { return p.Names }, gpuSpellings)
	for provider, types := range c.Instances {
		c.instances[provider] = make(map[string]string, len(types))
		for name := range types {
			c.slugs[slug(provider+"-"+name)]++
			c.instances[provider][strings.ToLower(name)] = name
		}
	}
	c.warn()
	return nil
}

// index notes what each model may be found under: the spellings of its key and of its other names. One that several
// models share belongs to none.
func index[V any](slugs map[string]int, all map[string]V, others func(V) []string, spellings func(string) []string,
) map[string]string {
	found := map[string]string{}
	for model, profile := range all {
		slugs[slug(model)]++
		for _, name := range append([]string{model}, others(profile)...) {
			for _, spelling := range spellings(name) {
				if other, taken := found[spelling]; taken && other != model {
					found[spelling] = ""
				} else if spelling != "" {
					found[spelling] = model
				}
			}
		}
	}
	return found
}
