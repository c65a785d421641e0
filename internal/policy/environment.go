package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Defaults according to the documentation of Compute Gardener. Its code uses 150 g/kWh, but users rely on the
// documentation.
const (
	gardenerThreshold = 200.0
	gardenerIdle      = energy.Watts(100) // of nodes of unknown hardware
	gardenerMax       = energy.Watts(400)
)

// aliasSchedulers returns the terms that the scheduler names of other systems imply.
func aliasSchedulers() map[string]Terms {
	return map[string]Terms{
		GardenerSchedulerName: {
			said: termDelay | termRule | termCarbon, AllowedDelay: 24 * time.Hour, When: "threshold",
			Limits: sched.Limits{Carbon: gardenerThreshold},
		},
		HybridSchedulerName: {said: termStrategy, Where: "hybrid-idle"},
	}
}

// variables contains the environment variables of Compute Gardener that affect the scheduler and the controller.
// Invalid values are ignored.
var variables = map[string]func(e *environment, value string) error{
	"CARBON_ENABLED": func(e *environment, value string) error {
		ignored, err := readNot(value)
		if err == nil {
			e.gardener.Limits.NoCarbon, e.gardener.said = ignored, e.gardener.said|termCarbonCounts
		}
		return err
	},
	"CARBON_INTENSITY_THRESHOLD": keep(between[grid.Intensity](0, maxIntensity),
		func(e *environment) *grid.Intensity { return &e.gardener.Limits.Carbon }),
	"MAX_SCHEDULING_DELAY": keep(readDuration, func(e *environment) *time.Duration { return &e.gardener.AllowedDelay }),
	"PRICING_ENABLED":      keep(readBool, func(e *environment) *bool { return &e.pricing }),
	"PRICING_SCHEDULES_PATH": func(e *environment, value string) error {
		text, err := e.file(value)
		if err == nil {
			e.offPeak, err = offPeakRate(text)
		}
		return err
	},
	"NODE_DEFAULT_IDLE_POWER": keep(readWatts, func(e *environment) **energy.Watts { return &e.idle }),
	"NODE_DEFAULT_MAX_POWER":  keep(readWatts, func(e *environment) **energy.Watts { return &e.max }),
	"HARDWARE_PROFILES_PATH": func(e *environment, value string) error {
		text, err := e.file(value)
		if err != nil {
			return err
		}
		if e.catalog, err = hardware.WithFile(text); err != nil {
			return err
		}
		for _, w := range e.catalog.Warnings() {
			e.warn("HARDWARE_PROFILES_PATH: %s", w)
		}
		return nil
	},
}

const nodePowerPrefix = "NODE_POWER_CONFIG_"

type environment struct {
	readFile  func(path string) ([]byte, error) // nil if files are not accessible
	gardener  Terms
	pricing   bool
	offPeak   *float64
	idle, max *energy.Watts // nil if not set
	nodes     map[string]*energy.Profile
	catalog   *hardware.Catalog
	found     []Finding
}

func (e *environment) warn(format string, args ...any) {
	e.found = append(e.found, Finding{Said: fmt.Sprintf(format, args...)})
}

// errUnseen is returned for a variable that refers to a file if files are not accessible.
var errUnseen = errors.New("the file is not accessible")

func (e *environment) file(path string) ([]byte, error) {
	if e.readFile == nil {
		return nil, errUnseen
	}
	return e.readFile(path)
}

// AliasEnvironment returns the defaults as modified by the environment variables of Compute Gardener, and findings
// for variables that are invalid or have no effect on the program. Findings that depend on policies or zones are
// returned by [FindKey] and [FindDelay]. If readFile is nil, variables that refer to files are ignored.
func AliasEnvironment(program string, environ []string, readFile func(path string) ([]byte, error),
	d Defaults,
) (Defaults, []Finding) {
	all := aliasSchedulers()
	maps.Copy(all, d.Schedulers)
	e := environment{readFile: readFile, gardener: all[GardenerSchedulerName], nodes: map[string]*energy.Profile{}}
	set := setVariables(environ)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if err := e.read(name, set[name]); err != nil && !errors.Is(err, errUnseen) {
			e.warn("environment variable %s is %s: %v", name, excerpt(set[name]), err)
		}
	}
	if e.pricing && e.offPeak != nil {
		t := &e.gardener
		t.Limits.Price, t.Limits.HasPrice, t.said = grid.Price(*e.offPeak), true, t.said|termPrice
	}
	if e.idle != nil || e.max != nil {
		idle, most := cmp.Or(e.idle, new(gardenerIdle)), cmp.Or(e.max, new(gardenerMax))
		if err := e.give("", *idle, *most, "NODE_DEFAULT_IDLE_POWER, NODE_DEFAULT_MAX_POWER"); err != nil {
			e.warn("environment variables NODE_DEFAULT_IDLE_POWER and NODE_DEFAULT_MAX_POWER: %v", err)
		}
	}
	all[GardenerSchedulerName] = e.gardener
	d.Schedulers, d.NodePower, d.Hardware = all, e.nodes, e.catalog
	return d, append(e.found, findVariables(program, set)...)
}

func (e *environment) read(name, value string) error {
	if read, ok := variables[name]; ok {
		return read(e, value)
	}
	if node, ok := strings.CutPrefix(name, nodePowerPrefix); ok {
		idle, most, err := hardware.ParseNodePower(value)
		if err != nil {
			return err
		}
		return e.give(node, idle, most, name)
	}
	return nil
}

// give sets the power of a node, or of all nodes of unknown hardware if node is "".
func (e *environment) give(node string, idle, most energy.Watts, source string) error {
	p := &energy.Profile{Name: "environment", Idle: idle, Max: most, Sleep: idle, Source: source}
	if node != "" {
		p.Name += "-" + node
	}
	if err := p.Validate(); err != nil {
		return err
	}
	e.nodes[node] = p
	return nil
}

func readWatts(value string) (*energy.Watts, error) {
	v, err := readNumber(value, 0, 1e6)
	return new(energy.Watts(v)), err
}

// offPeakRate returns the highest off-peak rate in the schedules of Compute Gardener. Work waits while the price is
// higher.
func offPeakRate(text []byte) (*float64, error) {
	var file struct {
		Schedules []struct {
			OffPeakRate *float64 `json:"offPeakRate"`
		} `json:"schedules"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if len(file.Schedules) == 0 {
		return nil, errors.New("the file has no schedules")
	}
	rate := math.Inf(-1)
	for i, s := range file.Schedules {
		switch {
		case s.OffPeakRate == nil:
			return nil, fmt.Errorf("schedules[%d]: offPeakRate is missing", i)
		case !(math.Abs(*s.OffPeakRate) <= maxPrice):
			return nil, fmt.Errorf("schedules[%d]: offPeakRate is %v: want %v to %v", i, *s.OffPeakRate, -maxPrice,
				maxPrice)
		}
		rate = max(rate, *s.OffPeakRate)
	}
	return &rate, nil
}
