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

// Catalog contains the power models of known hardware, in the format of a hardware-profiles.yaml. Use [Default] or
// [WithFile] to create it. It is read-only afterwards and safe for concurrent use.
//
// Fields that do not affect power are accepted, so that files of Compute Gardener can be loaded without changes;
// [Catalog.Warnings] lists the ones without effect. Fields documented as extensions are not part of that format.
type Catalog struct {
	// DefaultPUE is the PUE of nodes without one; 0 for the PUE of the site.
	DefaultPUE float64 `json:"defaultPUE,omitempty"`
	// DefaultGPUPUE is the PUE of GPUs of nodes without one; 0 for the PUE of the node.
	DefaultGPUPUE float64 `json:"defaultGPUPUE,omitempty"`
	// CPUModels maps vendor and "family-model", in the form of Node Feature Discovery labels, to a key of CPUs. A
	// key with only the family is a fallback.
	CPUModels map[string]map[string]string `json:"cpuModelMappings,omitempty"`
	CPUs      map[string]CPU               `json:"cpuProfiles,omitempty"`
	GPUs      map[string]GPU               `json:"gpuProfiles,omitempty"`
	Memory    map[string]Memory            `json:"memProfiles,omitempty"`
	// Instances maps provider (aws, gcp, azure, or the scheme of another provider ID) and type to components.
	Instances map[string]map[string]Instance `json:"cloudInstanceMapping,omitempty"`

	warnings    []string
	errors      map[string]*Errors // by basis of the profiles
	generations []Generation
	cpus        map[string]string // spellings of a name → key of CPUs; "" if shared by several models
	gpus        map[string]string
	instances   map[string]map[string]string // provider → type in lower case → type
	slugs       map[string]int               // number of models or instance types with the same slug

	mu       sync.Mutex
	profiles map[Components]*energy.Profile
}

// CPU is the power model of one socket.
type CPU struct {
	IdlePower energy.Watts `json:"idlePower"`
	MaxPower  energy.Watts `json:"maxPower"`
	// NumCores is the number of physical cores of the socket. If it is 0, the profile covers the whole node,
	// regardless of its number of CPUs.
	NumCores int64 `json:"numCores,omitempty"`
	// BaseFrequencyGHz has no effect, because max power applies to the whole frequency range.
	BaseFrequencyGHz float64 `json:"baseFrequencyGHz,omitempty"`
	// PowerScaling is the growth of power between idle and full load: linear or quadratic.
	PowerScaling string `json:"powerScaling,omitempty"`
	// FrequencyRangeGHz is the range of the clock. A node with an annotation of a lower maximum draws less power at
	// full load.
	FrequencyRangeGHz Range `json:"frequencyRangeGHz,omitzero"`

	// ThreadsPerCore is an extension: the number of hardware threads per core. It defaults to 2, and to 1 for ARM.
	ThreadsPerCore int64 `json:"threadsPerCore,omitempty"`
	// MemoryGBPerThread is an extension: the memory included in the power of the profile, because whole servers were
	// measured.
	MemoryGBPerThread float64 `json:"memoryGBPerThread,omitempty"`
	// Names is an extension: other names of the model.
	Names []string `json:"names,omitempty"`
	// Generic is an extension: the profile is a fallback for hardware without a specific profile.
	Generic bool `json:"generic,omitempty"`
	// Source is an extension: the source of the numbers.
	Source string `json:"source,omitempty"`

	// The basis of the profile: model (results of this model), TDP and generation (results of the generation), TDP,
	// threads (watts per thread of the generation), family, or stand-in (watts of another generation); empty if it
	// was written manually.
	basis string
}

// GPU is the power model of one board.
type GPU struct {
	IdlePower energy.Watts `json:"idlePower"`
	MaxPower  energy.Watts `json:"maxPower"`
	// WorkloadTypes contains the fraction of max power by class of work: inference, training, rendering.
	WorkloadTypes map[string]float64 `json:"workloadTypes,omitempty"`

	// No effect: the dependence of power on the clock of a GPU is not modelled.
	BaseFrequencyGHz  float64 `json:"baseFrequencyGHz,omitempty"`
	PowerScaling      string  `json:"powerScaling,omitempty"`
	FrequencyRangeGHz Range   `json:"frequencyRangeGHz,omitzero"`

	Names  []string `json:"names,omitempty"`  // extension: other names of the model
	Source string   `json:"source,omitempty"` // extension: source of the numbers
}

// Memory is the power model of a type of memory.
type Memory struct {
	IdlePowerPerGB energy.Watts `json:"idlePowerPerGB"`
	MaxPowerPerGB  energy.Watts `json:"maxPowerPerGB"`
	BaseIdlePower  energy.Watts `json:"baseIdlePower,omitempty"` // of the modules, independent of their size
}

// Range is a range of frequencies in GHz.
type Range struct {
	Min float64 `json:"min,omitempty"`
	Max float64 `json:"max,omitempty"`
}

// Instance contains the components of a type of virtual machine.
type Instance struct {
	CPUModel    string       `json:"cpuModel"`
	NumCPUs     int64        `json:"numCPUs,omitempty"`  // hardware threads; 0 for the number reported by the node
	NumCores    int64        `json:"numCores,omitempty"` // alias of numCPUs in existing files
	GPUModel    string       `json:"gpuModel,omitempty"`
	NumGPUs     int64        `json:"numGPUs,omitempty"`
	MemoryType  string       `json:"memoryType,omitempty"`
	TotalMemory int64        `json:"totalMemory,omitempty"` // MiB; 0 for the amount reported by the node
	MemChannels int64        `json:"memChannels,omitempty"` // without effect
	CPUTDPWatts energy.Watts `json:"cpuTdpWatts,omitempty"` // of the socket, for a cpuModel without a profile
}

// WithFile returns the bundled catalogue extended with a hardware-profiles.yaml, or with a ConfigMap that contains
// one. Unknown fields are errors, because their author expects them to have an effect.
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

// unwrap returns the value of a key of a ConfigMap, or the text itself if it is not a ConfigMap.
func unwrap(text []byte, key string) ([]byte, error) {
	var wrapper struct {
		Kind string            `json:"kind"`
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal(text, &wrapper); err != nil || wrapper.Kind != "ConfigMap" {
		return text, nil //nolint:nilerr // not a ConfigMap; the caller decodes the text strictly
	}
	value, ok := wrapper.Data[key]
	if !ok {
		return nil, fmt.Errorf("the ConfigMap has no key %s: it has %s", key,
			strings.Join(slices.Sorted(maps.Keys(wrapper.Data)), ", "))
	}
	return []byte(value), nil
}

// Warnings returns the parts of a file that have no effect, sorted.
func (c *Catalog) Warnings() []string { return c.warnings }

// merge returns a catalogue with all entries. If several entries have the same key, the last one takes precedence,
// so that user files override the bundled catalogue.
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

// preferLast assigns spellings shared by several models to the model of the last catalogue that contains the
// spelling. For example, a user's "NVIDIA A100" replaces the bundled board of that name.
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

// finish validates c and builds its indexes.
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

// index maps the spellings of each model's key and other names to its key. A spelling shared by several models maps
// to "".
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
