package hardware

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Knowledge is an entry of the knowledge base of the hybrid scheduler.
type Knowledge struct {
	NodeName              string       `json:"nodeName"`
	PerformanceRate       float64      `json:"performanceRate"`
	PowerConsumptionWatts energy.Watts `json:"powerConsumptionWatts"`
	IdlePowerWatts        energy.Watts `json:"idlePowerWatts"`
}

// Suffixes of node names in the knowledge base that distinguish the CPU of a node from its GPU.
const (
	SuffixCPU = "-cpu"
	SuffixGPU = "-gpu"
)

// OnGPU returns the class of work for jobs of the given class that request GPUs. In the knowledge base, a node does
// the same work at different rates on its CPU and on its GPU.
func OnGPU(class string) string {
	if class == "" {
		return ""
	}
	return class + "/gpu" // label values cannot contain a slash, so the name is unique
}

// ReadKnowledgeBase decodes profiles.yaml of the hybrid scheduler, or the ConfigMap that contains it. It returns
// measured rates and power by class of work and node.
//
// An entry applies to the node with exactly its name. An entry with the suffix -cpu or -gpu also applies to the
// node named by the rest: -cpu to jobs without GPUs, and -gpu to jobs with GPUs, which are stored under [OnGPU] of
// their class. An entry with the exact name takes precedence. Partial matches are ignored: "rpi" does not match
// "rpi2-cpu".
//
// Invalid entries are skipped with a warning.
func ReadKnowledgeBase(profilesYAML []byte) (byClass map[string]map[string]energy.Benchmark, warnings []string,
	err error,
) {
	text, err := unwrap(profilesYAML, "profiles.yaml")
	if err != nil {
		return nil, nil, fmt.Errorf("reading the knowledge base: %w", err)
	}
	var entries map[string][]Knowledge
	if err := yaml.UnmarshalStrict(text, &entries); err != nil {
		return nil, nil, fmt.Errorf("reading the knowledge base: %w", err)
	}
	byClass = map[string]map[string]energy.Benchmark{}
	for _, class := range slices.Sorted(maps.Keys(entries)) {
		exact := map[string]energy.Benchmark{}
		for i, e := range entries[class] {
			b := energy.Benchmark{Rate: e.PerformanceRate, Power: e.PowerConsumptionWatts, Idle: e.IdlePowerWatts}
			if err := checkKnowledge(e); err != nil {
				warnings = append(warnings, fmt.Sprintf("%s, entry %d, %s: %v", class, i, quoted(e.NodeName), err))
				continue
			}
			if _, twice := exact[e.NodeName]; twice {
				warnings = append(warnings, fmt.Sprintf("%s, entry %d: %s is duplicate, the first entry is used", class,
					i, quoted(e.NodeName)))
				continue
			}
			exact[e.NodeName] = b
		}
		cpu, gpu := maps.Clone(exact), maps.Clone(exact)
		for name, b := range exact {
			for suffix, of := range map[string]map[string]energy.Benchmark{SuffixCPU: cpu, SuffixGPU: gpu} {
				node, found := strings.CutSuffix(name, suffix)
				if _, taken := exact[node]; found && node != "" && !taken {
					of[node] = b
				}
			}
		}
		byClass[class], byClass[OnGPU(class)] = cpu, gpu
	}
	return byClass, warnings, nil
}

func checkKnowledge(e Knowledge) error {
	const most = 1e12
	switch {
	case e.NodeName == "":
		return errors.New("nodeName is missing")
	case !(e.PerformanceRate >= 0 && e.PerformanceRate <= most):
		return fmt.Errorf("performanceRate is %v: want a number that is not negative", e.PerformanceRate)
	}
	return checkPower(e.IdlePowerWatts, e.PowerConsumptionWatts)
}
