package hardware

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/csv"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/energy"
)

//go:embed hardware.yaml *.csv
var tables embed.FS

// Default returns the bundled catalogue: CPUs of servers and PCs, current GPUs, memory, and the instance types of AWS,
// Google Cloud and Azure. It is parsed when it is first asked for.
func Default() *Catalog { return bundled() }

var bundled = sync.OnceValue(func() *Catalog {
	c, err := FromTables(tables)
	if err != nil {
		panic(fmt.Sprintf("the bundled hardware catalogue is broken: %v", err)) // a test reads it
	}
	return c
})

// FromTables reads a catalogue from the files that the bundled one consists of: hardware.yaml and the tables that
// build/hardware writes.
func FromTables(files fs.FS) (*Catalog, error) {
	c := &Catalog{}
	text, err := fs.ReadFile(files, "hardware.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, c)
	}
	if err != nil {
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
		table   string
		columns int
		take    func(row []string) error
	}{
		{"errors.csv", 4, c.takeErrors},
		{"architectures.csv", 6, c.takeArchitecture},
		{"cpus.csv", 6, c.takeCPU},
		{"instances.csv", 7, c.takeInstance},
	} {
		text, err := fs.ReadFile(files, step.table)
		if err != nil {
			return nil, err
		}
		r := csv.NewReader(bytes.NewReader(text))
		r.Comment, r.FieldsPerRecord = '#', step.columns
		rows, err := r.ReadAll()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.table, err)
		}
		for _, row := range rows[1:] {
			if err := step.take(row); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", step.table, strings.Join(row, ","), err)
			}
		}
	}
	return c, c.finish()
}

// typicalClasses are the shares of full power that Compute Gardener documents for an A100, and, for rendering, one
// between. They are estimates for every other board.
var typicalClasses = map[string]float64{"inference": 0.6, "rendering": 0.8, "training": 1}

func (c *Catalog) takeErrors(row []string) (err error) {
	e := &Errors{Basis: row[0]}
	if e.Results, err = strconv.Atoi(row[1]); err != nil {
		return err
	}
	if c.errors == nil {
		c.errors = map[string]*Errors{}
	}
	c.errors[e.Basis] = e
	return numbers(row[2:], &e.IdleMedian, &e.FullMedian)
}

func numbers(row []string, into ...*float64) (err error) {
	for i, v := range into {
		if *v, err = strconv.ParseFloat(row[i], 64); err != nil {
			return err
		}
	}
	return nil
}

// takeArchitecture enters watts per thread as a socket of one thread: which models of the generation clouds rent out,
// and how many threads those have, is not known.
func (c *Catalog) takeArchitecture(row []string) error {
	var idle, full float64
	if err := numbers(row[2:], &idle, &full); err != nil {
		return err
	}
	if row[1] != "" {
		pattern, err := regexp.Compile("^(?:" + row[1] + ")$")
		if err != nil {
			return err
		}
		c.generations = append(c.generations, generation{pattern, row[0]})
	}
	c.CPUs[row[0]] = CPU{
		IdlePower: energy.Watts(idle), MaxPower: energy.Watts(full), NumCores: 1, ThreadsPerCore: 1,
		Source: "per hardware thread, " + row[5], basis: row[4], Generic: row[4] == "family",
	}
	return nil
}

// takeCPU enters a model: watts of a socket without memory. Models of no cores are never in machines of several
// sockets.
func (c *Catalog) takeCPU(row []string) (err error) {
	var idle, full float64
	if err := numbers(row[2:], &idle, &full); err != nil {
		return err
	}
	cpu := CPU{
		IdlePower: energy.Watts(idle), MaxPower: energy.Watts(full), basis: row[4],
		Source: "SPECpower_ssj2008 by a TDP of " + row[5] + " W",
	}
	if cpu.basis == "model" {
		cpu.Source = row[5] + " results of SPECpower_ssj2008"
	}
	cpu.NumCores, err = strconv.ParseInt(row[1], 10, 64)
	c.CPUs[row[0]] = cpu
	return err
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
	mean := CPU{
		NumCores: 1, ThreadsPerCore: 1, Source: "mean of what the provider may give, per hardware thread",
		basis: "threads",
	}
	share := 1 / float64(len(architectures))
	for _, a := range architectures {
		cpu, ok := c.CPUs[a]
		if !ok {
			return "", fmt.Errorf("unknown architecture %q", a)
		}
		mean.IdlePower += energy.Watts(share) * cpu.IdlePower
		mean.MaxPower += energy.Watts(share) * cpu.MaxPower
	}
	c.CPUs[name] = mean
	return name, nil
}
