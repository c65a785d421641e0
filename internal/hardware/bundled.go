package hardware

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"sync"

	"sigs.k8s.io/yaml"
)

//go:embed hardware.yaml
var written []byte

//go:embed tables.json
var generated []byte

// Default returns the bundled catalogue: CPUs of servers and PCs, current GPUs, memory, and the instance types of
// AWS, Google Cloud and Azure. It is parsed on first use.
func Default() *Catalog { return bundled() }

var bundled = sync.OnceValue(func() *Catalog {
	t := new(Tables)
	err := json.Unmarshal(generated, t)
	var c *Catalog
	if err == nil {
		c, err = t.Catalog(written)
	}
	if err != nil {
		panic(fmt.Sprintf("the bundled hardware catalogue is invalid: %v", err)) // covered by a test
	}
	return c
})

// Tables is the generated part of the bundled catalogue, written by hack/hardware: CPUs and instance types in the
// format of user files, and additional fields that this format lacks.
type Tables struct {
	Attribution string                         `json:"attribution"`
	Errors      []*Errors                      `json:"errors"`
	Generations []Generation                   `json:"generations"`
	CPUs        map[string]TableCPU            `json:"cpuProfiles"`
	Instances   map[string]map[string]Instance `json:"cloudInstanceMapping"`
}

// A Generation maps CPU models without a profile of their own to an architecture, which is a key of CPUs.
type Generation struct {
	Models       string `json:"models"` // a pattern of whole names in the form returned by [Spell]
	Architecture string `json:"architecture"`

	names *regexp.Regexp
}

// TableCPU is a CPU with the basis of its profile.
type TableCPU struct {
	CPU
	Basis string `json:"basis"`
}

// Catalog returns the catalogue of the tables and a manually written file.
func (t *Tables) Catalog(file []byte) (*Catalog, error) {
	c := &Catalog{Instances: t.Instances, generations: t.Generations, errors: map[string]*Errors{}}
	if err := yaml.UnmarshalStrict(file, c); err != nil {
		return nil, err
	}
	for model, gpu := range c.GPUs {
		if gpu.WorkloadTypes == nil {
			gpu.WorkloadTypes = typicalClasses
		}
		gpu.Source = cmp.Or(gpu.Source, "board power of the data sheet") + "; idle power is estimated"
		c.GPUs[model] = gpu
	}
	for _, e := range t.Errors {
		c.errors[e.Basis] = e
	}
	for model, cpu := range t.CPUs {
		cpu.basis = cpu.Basis
		c.CPUs[model] = cpu.CPU
	}
	for i := range c.generations {
		var err error
		if c.generations[i].names, err = regexp.Compile("^(?:" + c.generations[i].Models + ")$"); err != nil {
			return nil, err
		}
	}
	return c, c.finish()
}

// typicalClasses are the fractions of full power that Compute Gardener documents for an A100, and an intermediate
// value for rendering. They are estimates for all other boards.
var typicalClasses = map[string]float64{"inference": 0.6, "rendering": 0.8, "training": 1}
