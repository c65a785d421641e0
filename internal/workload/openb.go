package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// The columns of the pods of Alibaba's cluster-trace-gpu-v2023, called openb.
const (
	openbMilliCPU  = "cpu_milli"
	openbMemory    = "memory_mib"
	openbGPUs      = "num_gpu"
	openbMilliGPU  = "gpu_milli" // of one GPU, if a pod requests less than one
	openbSpec      = "gpu_spec"  // acceptable models, separated by |; empty for any
	openbQoS       = "qos"
	openbPhase     = "pod_phase"
	openbCreated   = "creation_time" // seconds
	openbDeleted   = "deletion_time"
	openbScheduled = "scheduled_time" // empty if never scheduled
)

// openbNeverScheduled is the reason for skipping a pod with an unknown run time because it never ran.
const openbNeverScheduled = "was never scheduled"

// labelGPUModel is the node label with the model of the GPUs.
const labelGPUModel = "gpu-model"

// openbModels contains the GPU models of that cluster. G2 and G3 are its placeholders for two undisclosed models.
var openbModels = []string{"A10", "G2", "G3", "P100", "T4", "V100M16", "V100M32"}

var openb = format{
	name: "openb", id: columnName, optional: []string{openbSpec, openbQoS, openbPhase}, add: (*Trace).openbPod,
	required: []string{
		columnName, openbMilliCPU, openbMemory, openbGPUs, openbMilliGPU, openbCreated, openbDeleted, openbScheduled,
	},
}

// openbPod adds the job of one row. A fraction of a GPU is rounded up to a whole one, because Kubernetes does not
// share a device between pods by default.
func (t *Trace) openbPod(row *rows, start time.Time) {
	created := parsed(row, openbCreated, seconds)
	job := sched.Job{
		ID: strings.Clone(row.text(columnName)), AllowedDelay: NoDelayGiven, Queue: strings.Clone(row.text(openbQoS)),
		Submitted: start.Add(created), Request: openbResources(row, openbGPUs, milliCores),
	}
	row.refuse(openbMilliGPU, checkShare(parsed(row, openbMilliGPU, whole), job.Request.GPU))
	job.Selector = openbSelector(row.text(openbSpec))
	deleted := parsed(row, openbDeleted, seconds)
	if row.text(openbScheduled) == "" {
		t.skip(row, openbNeverScheduled)
		return
	}
	scheduled := parsed(row, openbScheduled, seconds)
	switch {
	case scheduled < created:
		row.refuse(openbScheduled, fmt.Errorf("%q is before the creation", row.text(openbScheduled)))
	case deleted < scheduled:
		row.refuse(openbDeleted, fmt.Errorf("%q is before the scheduled time", row.text(openbDeleted)))
	case deleted == scheduled:
		t.skip(row, noRunTime)
		return
	}
	job.Duration = deleted - scheduled
	t.Jobs = append(t.Jobs, job)
}

var milliCores = inUnit("m", cores)

func openbResources(row *rows, gpus string, cpu func(string) (int64, error)) sched.Resources {
	return sched.Resources{
		MilliCPU: parsed(row, openbMilliCPU, cpu), Memory: parsed(row, openbMemory, inUnit("Mi", size)),
		GPU: parsed(row, gpus, whole),
	}
}

// checkShare validates the requested thousandths of a GPU.
func checkShare(share, gpus int64) error {
	switch {
	case share > 1000:
		return fmt.Errorf("\"%d\" exceeds 1000, which is one GPU", share)
	case share > 0 && gpus == 0:
		return fmt.Errorf("\"%d\" is requested without a GPU", share)
	}
	return nil
}

// openbSelector returns the label required on a node so that it has one of the models in spec.
func openbSelector(spec string) map[string]string {
	if spec == "" {
		return nil
	}
	models := slices.Compact(slices.Sorted(strings.SplitSeq(strings.Clone(spec), "|")))
	if len(models) == 1 {
		return map[string]string{labelGPUModel: models[0]}
	}
	return map[string]string{labelOneOf(models): "true"}
}

// labelOneOf returns the label of nodes with one of several GPU models. It is required because a selector can only
// match a single value.
func labelOneOf(models []string) string { return labelGPUModel + "-of." + strings.Join(models, "_") }

// openbLabels returns the labels of a node with GPUs of one model: the label of the model, and the labels of all
// combinations of models that include it.
func openbLabels(model string) map[string]string {
	labels := map[string]string{labelGPUModel: model}
	for chosen := range 1 << len(openbModels) {
		var models []string
		for i, m := range openbModels {
			if chosen>>i&1 == 1 {
				models = append(models, m)
			}
		}
		if len(models) > 1 && slices.Contains(models, model) {
			labels[labelOneOf(models)] = "true"
		}
	}
	return labels
}

// The columns of the nodes of openb.
const (
	openbNode  = "sn"
	openbGPU   = "gpu"
	openbModel = "model"
)

// The hardware of openb nodes is not published. Their power is estimated from the mean power of a virtual core of a
// current server, idle and fully used, in the coefficients of Cloud Carbon Footprint. The nodes never sleep.
const (
	openbIdlePerCore = energy.Watts(0.74)
	openbFullPerCore = energy.Watts(3.5)
)

// gpuModels contains idle and full-load power by model. Full load is the board power in the vendor's data sheet,
// and idle is about a tenth of it, in line with published measurements. G2 and G3 are assumed to be similar to a
// V100 and an A100, based on the number of eight per node.
var gpuModels = map[string]struct{ idle, full energy.Watts }{
	"A10":     {15, 150},
	"G2":      {30, 300},
	"G3":      {50, 400},
	"P100":    {25, 250},
	"T4":      {10, 70},
	"V100M16": {30, 300},
	"V100M32": {30, 300},
}

// openbNodes returns a function that creates openb nodes at one site. Nodes of the same kind share their labels and
// profile.
func openbNodes(site *sched.Site) func(*rows) []sched.Node {
	type kind struct {
		capacity sched.Resources
		model    string
	}
	known := map[kind]*sched.Node{}
	return func(row *rows) []sched.Node {
		k := kind{openbResources(row, openbGPU, positive(milliCores)), strings.Clone(row.text(openbModel))}
		if known[k] == nil {
			known[k] = openbKind(row, k.capacity, k.model)
			known[k].Site = site
		}
		n := *known[k]
		n.Name = strings.Clone(row.text(openbNode))
		return []sched.Node{n}
	}
}

func openbKind(row *rows, capacity sched.Resources, name string) *sched.Node {
	model, ok := gpuModels[name]
	if !ok && name != "" || name == "" && capacity.GPU > 0 {
		row.refuse(openbModel, fmt.Errorf("unknown GPU %q: have %s", name,
			strings.Join(slices.Sorted(maps.Keys(gpuModels)), ", ")))
	}
	cores := energy.Watts(capacity.MilliCPU) / 1000
	p := &energy.Profile{
		Name: fmt.Sprintf("openb-%d-cores", capacity.MilliCPU/1000), Idle: openbIdlePerCore * cores,
		Max: openbFullPerCore * cores, Exponent: 1, Sleep: openbIdlePerCore * cores, Quality: energy.Estimated,
		Source: "mean power of virtual cores by Cloud Carbon Footprint, board power of GPUs by their data sheets",
	}
	n := &sched.Node{Capacity: capacity, Free: capacity, Profile: p, Speed: 1}
	if name != "" {
		p.Name += "-" + name
		p.GPUIdle, p.GPUMax = model.idle, model.full
		n.Labels = openbLabels(name)
	}
	row.refuse(openbMilliCPU, p.Validate())
	return n
}
