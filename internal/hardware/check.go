package hardware

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
)

func (c *Catalog) check() error {
	var errs []error
	for name, pue := range map[string]float64{"defaultPUE": c.DefaultPUE, "defaultGPUPUE": c.DefaultGPUPUE} {
		if pue != 0 && !validPUE(pue) {
			errs = append(errs, fmt.Errorf("%s is %v: want 1 to %d", name, pue, maxPUE))
		}
	}
	errs = append(errs, checkAll("cpuProfiles", c.CPUs)...)
	errs = append(errs, checkAll("gpuProfiles", c.GPUs)...)
	errs = append(errs, checkAll("memProfiles", c.Memory)...)
	for provider, types := range c.Instances {
		errs = append(errs, checkAll("cloudInstanceMapping "+provider, types)...)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func checkAll[V interface{ check() error }](table string, all map[string]V) (errs []error) {
	for name, entry := range all {
		if err := entry.check(); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", table, name, err))
		}
	}
	return errs
}

const (
	maxPUE   = 10
	maxWatts = 100_000 // of one component; higher values indicate another unit
)

func validPUE(pue float64) bool { return pue >= 1 && pue <= maxPUE }

func checkPower(idle, full energy.Watts) error {
	switch {
	case !(idle >= 0 && idle <= maxWatts):
		return fmt.Errorf("idle power is %v W: want 0 to %d", float64(idle), maxWatts)
	case !(full >= idle && full <= maxWatts):
		return fmt.Errorf("max power is %v W: want at least the idle power of %v W and at most %d", float64(full),
			float64(idle), maxWatts)
	}
	return nil
}

func (p CPU) check() error {
	if err := checkPower(p.IdlePower, p.MaxPower); err != nil {
		return err
	}
	_, err := exponent(p.PowerScaling)
	switch {
	case err != nil:
		return err
	case p.NumCores < 0 || p.ThreadsPerCore < 0:
		return errors.New("numCores and threadsPerCore: want numbers that are not negative")
	case !(p.MemoryGBPerThread >= 0) || math.IsInf(p.MemoryGBPerThread, 0):
		return fmt.Errorf("memoryGBPerThread is %v: want a number that is not negative", p.MemoryGBPerThread)
	}
	return p.FrequencyRangeGHz.check()
}

func (r Range) check() error {
	if !(r.Min >= 0 && r.Max >= r.Min && r.Max <= maxGHz) {
		return fmt.Errorf("frequencyRangeGHz is %v to %v: want min to max, at most %d", r.Min, r.Max, maxGHz)
	}
	return nil
}

const maxGHz = 20

// exponent returns the exponent of P(u) = idle + (max − idle)·u^exponent.
func exponent(scaling string) (float64, error) {
	switch scaling {
	case "", "linear":
		return 1, nil
	case "quadratic":
		return 2, nil
	}
	return 0, fmt.Errorf("powerScaling is %q: want linear or quadratic", scaling)
}

func (p GPU) check() error {
	if err := checkPower(p.IdlePower, p.MaxPower); err != nil {
		return err
	}
	for _, class := range slices.Sorted(maps.Keys(p.WorkloadTypes)) {
		if share := p.WorkloadTypes[class]; !(share >= 0 && share <= 1) {
			return fmt.Errorf("workloadTypes %s is %v: want 0 to 1, a fraction of max power", class, share)
		}
	}
	_, err := exponent(p.PowerScaling)
	return errors.Join(err, p.FrequencyRangeGHz.check())
}

func (m Memory) check() error {
	if err := checkPower(m.IdlePowerPerGB, m.MaxPowerPerGB); err != nil {
		return fmt.Errorf("per GB: %w", err)
	}
	return checkPower(m.BaseIdlePower, m.BaseIdlePower)
}

func (i Instance) check() error {
	switch {
	case i.CPUModel == "":
		return errors.New("cpuModel is missing")
	case i.NumCPUs < 0 || i.NumCores < 0 || i.NumGPUs < 0 || i.TotalMemory < 0:
		return errors.New("numCPUs, numGPUs and totalMemory: want numbers that are not negative")
	case i.NumCPUs > 0 && i.NumCores > 0 && i.NumCPUs != i.NumCores:
		return fmt.Errorf("numCPUs is %d and numCores is %d: want equal values", i.NumCPUs, i.NumCores)
	case i.NumGPUs > 0 && i.GPUModel == "":
		return errors.New("numGPUs without a gpuModel")
	case !(i.CPUTDPWatts >= 0 && i.CPUTDPWatts <= maxWatts):
		return fmt.Errorf("cpuTdpWatts is %v: want 0 to %d", float64(i.CPUTDPWatts), maxWatts)
	}
	return nil
}

// warn collects the fields that have no effect.
func (c *Catalog) warn() {
	used := map[string]int{}
	var unknown []string
	for _, p := range c.CPUs {
		if p.BaseFrequencyGHz != 0 {
			used["cpuProfiles baseFrequencyGHz: max power applies to the whole frequency range"]++
		}
	}
	for _, p := range c.GPUs {
		if p.BaseFrequencyGHz != 0 || p.PowerScaling != "" || p.FrequencyRangeGHz != (Range{}) {
			used["gpuProfiles baseFrequencyGHz, powerScaling, frequencyRangeGHz: the clock of GPUs is not modelled"]++
		}
	}
	for provider, types := range c.Instances {
		for name, i := range types {
			if i.MemChannels != 0 {
				used["cloudInstanceMapping memChannels: memory power depends on its size"]++
			}
			if !c.knows(c.mapped(i.CPUModel)) && i.CPUTDPWatts == 0 {
				unknown = append(unknown,
					fmt.Sprintf("cloudInstanceMapping %s %s: cpuModel %q is not in the catalogue, "+
						"and there is no cpuTdpWatts: nodes of the type remain unknown", provider, name, i.CPUModel))
			}
		}
	}
	slices.Sort(unknown)
	c.warnings = unknown
	for _, what := range slices.Sorted(maps.Keys(used)) {
		c.warnings = append(c.warnings, fmt.Sprintf("ignored in %d entries: %s", used[what], what))
	}
}
