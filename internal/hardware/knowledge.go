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

// Knowledge is one entry of the hybrid scheduler's knowledge base.
type Knowledge struct {
	NodeName              string       `json:"nodeName"`
	PerformanceRate       float64      `json:"performanceRate"`
	PowerConsumptionWatts energy.Watts `json:"powerConsumptionWatts"`
	IdlePowerWatts        energy.Watts `json:"idlePowerWatts"`
}

// Suffixes that the knowledge base appends to node names, to tell a node's CPU from its GPU.
const (
	SuffixCPU = "-cpu"
	SuffixGPU = "-gpu"
)

// OnGPU returns the class of work that a job of a class belongs to if it asks for GPUs: in the knowledge base, a node
// does the same work at different rates on its CPU and on its GPU.
func OnGPU(class string) string {
	if class == "" {
		return ""
	}
	return class + "/gpu" // no label value has a slash, so no class is called so
}

// ReadKnowledgeBase reads profiles.yaml of the hybrid scheduler, or the ConfigMap that holds it: measured rates and
// power by class of work and node.
//
// An entry is about the node of exactly its name. An entry whose name ends in -cpu or -gpu is also about the node whose
// name is the rest: of jobs without GPUs the one, of jobs with GPUs the other; the latter stand under [OnGPU] of their
// class. The entry of exactly the name comes first. No other likeness counts: "rpi" takes nothing from "rpi2-cpu".
//
// Entries that make no sense are left out, and warned of.
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
				warnings = append(warnings, fmt.Sprintf("%s, entry %d, %s appears twice: the first one counts", class,
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
