package hardware

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// ReportedLabels are the node labels with values reported by the agent, and only by the agent.
var ReportedLabels = []string{
	v1alpha1.LabelCPUModel, v1alpha1.LabelCPUSockets, v1alpha1.LabelCPUCores, v1alpha1.LabelGPUModel,
	v1alpha1.LabelGPUCount, v1alpha1.LabelMachine, v1alpha1.LabelCloud, v1alpha1.LabelInstanceType,
}

// Labels returns the labels for the hardware reported by the agent of a node. The values are untrusted; invalid
// label values and implausible numbers are omitted.
func Labels(h *batch.Hardware) map[string]string {
	labels := map[string]string{}
	name := func(key, value string) {
		if value = labelValue(value); value != "" {
			labels[key] = value
		}
	}
	number := func(key string, value int) {
		if value > 0 && value <= 1<<16 {
			labels[key] = strconv.Itoa(value)
		}
	}
	name(v1alpha1.LabelCPUModel, h.CPU)
	name(v1alpha1.LabelMachine, h.Vendor+" "+h.Product)
	name(v1alpha1.LabelCloud, h.Cloud)
	name(v1alpha1.LabelInstanceType, h.Instance)
	if !h.Virtual {
		number(v1alpha1.LabelCPUSockets, h.Sockets)
		number(v1alpha1.LabelCPUCores, h.Cores)
	}
	boards := 0
	for model, count := range h.GPUs {
		boards += count
		if len(h.GPUs) == 1 {
			name(v1alpha1.LabelGPUModel, model)
		}
	}
	number(v1alpha1.LabelGPUCount, boards)
	return labels
}

// labelValue replaces characters that are invalid in label values with dashes. For example, "Intel(R) Xeon(R) Gold
// 6148 CPU @ 2.40GHz" becomes Intel-R-Xeon-R-Gold-6148-CPU-2.40GHz, which is recognised as the same CPU.
func labelValue(name string) string {
	const longest = 63
	parts := strings.FieldsFunc(name, func(c rune) bool {
		return !alphanumeric(c) && (c < 'A' || c > 'Z') && c != '.' && c != '_' && c != '+'
	})
	value := strings.ReplaceAll(strings.Join(parts, "-"), "+", "-"+plus)
	return strings.Trim(value[:min(len(value), longest)], "-._")
}

// Untold returns the labels of a node without the ones reported by its agent.
func Untold(labels map[string]string) map[string]string {
	labels = maps.Clone(labels)
	for _, key := range ReportedLabels {
		delete(labels, key)
	}
	return labels
}

// Guess returns a human-readable estimate of the power of a node, with the errors of similar profiles, or ""
// without a profile.
func Guess(p *energy.Profile, k Kind) string {
	if p == nil {
		return ""
	}
	boards := energy.Watts(k.Components.GPUs)
	text := fmt.Sprintf("%.0f W idle, %.0f W at full load, %v", float64(p.Idle+boards*p.GPUIdle),
		float64(p.Max+boards*p.GPUMax), p.Quality)
	if k.Error != nil {
		text += fmt.Sprintf(" by %s: half of such estimates were within %.0f %% and %.0f %%", k.Error.Basis,
			100*k.Error.IdleMedian, 100*k.Error.FullMedian)
	}
	return text
}
