package hardware

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/energy"
)

//go:embed hardware.yaml
var bundledYAML []byte

//go:embed architectures.csv
var bundledArchitectures []byte

//go:embed cpus.csv
var bundledCPUs []byte

//go:embed instances.csv
var bundledInstances []byte

// Default returns the bundled catalogue: server CPUs since 2012, current GPUs, memory, and the instance types of AWS,
// Google Cloud and Azure. It is parsed when it is first asked for.
func Default() *Catalog { return bundled() }

var bundled = sync.OnceValue(func() *Catalog {
	c, err := parseBundled()
	if err != nil {
		panic(fmt.Sprintf("the bundled hardware catalogue is broken: %v", err)) // a test reads it
	}
	return c
})

func parseBundled() (*Catalog, error) {
	c := &Catalog{}
	if err := yaml.UnmarshalStrict(bundledYAML, c); err != nil {
		return nil, err
	}
	for model, gpu := range c.GPUs {
		if gpu.WorkloadTypes == nil {
			gpu.WorkloadTypes = typicalClasses
		}
		gpu.Source = cmp.Or(gpu.Source, "board power of the data sheet")
		gpu.Source += "; idle power is an estimate"
		c.GPUs[model] = gpu
	}
	for _, step := range []struct {
		table   []byte
		columns int
		take    func(row []string) error
	}{
		{bundledArchitectures, 5, c.takeArchitecture},
		{bundledCPUs, 2, c.takeCPU},
		{bundledInstances, 7, c.takeInstance},
	} {
		r := csv.NewReader(bytes.NewReader(step.table))
		r.Comment, r.FieldsPerRecord = '#', step.columns
		rows, err := r.ReadAll()
		if err != nil {
			return nil, err
		}
		for _, row := range rows[1:] {
			if err := step.take(row); err != nil {
				return nil, fmt.Errorf("%s: %w", strings.Join(row, ","), err)
			}
		}
	}
	return c, c.finish()
}

// typicalClasses are the shares of full power that Compute Gardener documents for an A100, and, for rendering, one
// between. They are estimates for every other board.
var typicalClasses = map[string]float64{"inference": 0.6, "rendering": 0.8, "training": 1}

const coefficients = "Cloud Carbon Footprint from SPECpower_ssj2008, per hardware thread"

// takeArchitecture enters watts per thread as a socket of one thread: whole servers were measured, and how many threads
// theirs had says nothing about the ones that others rent out.
func (c *Catalog) takeArchitecture(row []string) error {
	var values [3]float64
	for i := range values {
		var err error
		if values[i], err = strconv.ParseFloat(row[1+i], 64); err != nil {
			return err
		}
	}
	source := coefficients
	if note := row[4]; note != "" {
		source += "; " + note
	}
	c.CPUs[row[0]] = CPU{
		IdlePower: energy.Watts(values[0]), MaxPower: energy.Watts(values[1]), NumCores: 1, ThreadsPerCore: 1,
		MemoryGBPerThread: values[2], Source: source,
	}
	return nil
}

// takeCPU enters a model as another name of its architecture.
func (c *Catalog) takeCPU(row []string) error {
	cpu, ok := c.CPUs[row[1]]
	if !ok {
		return fmt.Errorf("unknown architecture %q", row[1])
	}
	cpu.Names = append(cpu.Names, row[0])
	c.CPUs[row[1]] = cpu
	return nil
}

func (c *Catalog) takeInstance(row []string) (err error) {
	provider, name := row[0], row[1]
	i := Instance{MemoryType: defaultMemory, GPUModel: row[5]}
	if i.CPUModel, err = c.mixed(strings.Split(row[4], ";")); err != nil {
		return err
	}
	if i.NumCPUs, err = strconv.ParseInt(row[2], 10, 64); err != nil {
		return err
	}
	gib, err := strconv.ParseFloat(row[3], 64)
	if err != nil {
		return err
	}
	i.TotalMemory = int64(gib * 1024)
	if row[6] != "" {
		if i.NumGPUs, err = strconv.ParseInt(row[6], 10, 64); err != nil {
			return err
		}
		if _, ok := c.GPUs[i.GPUModel]; !ok {
			return fmt.Errorf("unknown GPU %q", i.GPUModel)
		}
	}
	if c.Instances == nil {
		c.Instances = map[string]map[string]Instance{}
	}
	if c.Instances[provider] == nil {
		c.Instances[provider] = map[string]Instance{}
	}
	c.Instances[provider][name] = i
	return nil
}

// mixed returns the model that stands for hardware of any of some architectures, which is their mean: an order
// of such an instance gets the one or the other.
func (c *Catalog) mixed(architectures []string) (string, error) {
	if len(architectures) == 1 {
		if _, ok := c.CPUs[architectures[0]]; !ok {
			return "", fmt.Errorf("unknown architecture %q", architectures[0])
		}
		return architectures[0], nil
	}
	name := strings.Join(architectures, " or ")
	if _, known := c.CPUs[name]; known {
		return name, nil
	}
	mean := CPU{NumCores: 1, ThreadsPerCore: 1, Source: "mean of what the provider may give; " + coefficients}
	share := 1 / float64(len(architectures))
	for _, a := range architectures {
		cpu, ok := c.CPUs[a]
		if !ok {
			return "", fmt.Errorf("unknown architecture %q", a)
		}
		mean.IdlePower += energy.Watts(share) * cpu.IdlePower
		mean.MaxPower += energy.Watts(share) * cpu.MaxPower
		mean.MemoryGBPerThread += share * cpu.MemoryGBPerThread
	}
	c.CPUs[name] = mean
	return name, nil
}
