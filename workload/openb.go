package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/sched"
)

// The columns of the pods of Alibaba's cluster-trace-gpu-v2023, which is called openb.
const (
	openbMilliCPU  = "cpu_milli"
	openbMemory    = "memory_mib"
	openbGPUs      = "num_gpu"
	openbMilliGPU  = "gpu_milli" // of one GPU, where a pod wants less than one
	openbSpec      = "gpu_spec"  // models that will do, with | in between; empty: any
	openbQoS       = "qos"
	openbPhase     = "pod_phase"
	openbCreated   = "creation_time" // seconds
	openbDeleted   = "deletion_time"
	openbScheduled = "scheduled_time" // empty: never
)

// openbNeverScheduled is why a pod is left out: how long it would have run is unknown.
const openbNeverScheduled = "was never scheduled"

// labelGPUModel is the label of nodes that says which GPUs they have.
const labelGPUModel = "gpu-model"

// openbModels are the GPUs of that cluster. G2 and G3 are what it calls two that it does not name.
var openbModels = []string{"A10", "G2", "G3", "P100", "T4", "V100M16", "V100M32"}

func (t *Trace) readOpenB(file string, text []byte, start time.Time) error {
	return t.readTable(file, text,
		[]string{
			columnName, openbMilliCPU, openbMemory, openbGPUs, openbMilliGPU, openbCreated, openbDeleted,
			openbScheduled,
		},
		[]string{openbSpec, openbQoS, openbPhase}, func(in *rows) (string, error) { return t.openbPod(in, start) })
}

// openbPod parses the present row. With an error it names the field that is wrong. A part of a GPU is a whole one
// here: no two jobs share a device, which is what Kubernetes does without further help.
func (t *Trace) openbPod(in *rows, start time.Time) (field string, err error) {
	job := sched.Job{
		ID: strings.Clone(in.text(columnName)), AllowedDelay: NoDelayGiven, Queue: strings.Clone(in.text(openbQoS)),
	}
	created, err := seconds(in.text(openbCreated))
	if err != nil {
		return openbCreated, err
	}
	job.Submitted = start.Add(created)
	if job.Request.MilliCPU, err = cores(in.text(openbMilliCPU) + "m"); err != nil {
		return openbMilliCPU, err
	}
	if job.Request.Memory, err = size(in.text(openbMemory) + "Mi"); err != nil {
		return openbMemory, err
	}
	if job.Request.GPU, err = whole(in.text(openbGPUs)); err != nil {
		return openbGPUs, err
	}
	if err := checkShare(in.text(openbMilliGPU), job.Request.GPU); err != nil {
		return openbMilliGPU, err
	}
	job.Selector = openbSelector(in.text(openbSpec))
	deleted, err := seconds(in.text(openbDeleted))
	if err != nil {
		return openbDeleted, err
	}
	if in.text(openbScheduled) == "" {
		t.skip(openbNeverScheduled)
		return "", nil
	}
	scheduled, err := seconds(in.text(openbScheduled))
	switch {
	case err != nil:
		return openbScheduled, err
	case scheduled < created:
		return openbScheduled, fmt.Errorf("%q is before the creation", in.text(openbScheduled))
	case deleted < scheduled:
		return openbDeleted, fmt.Errorf("%q is before it was scheduled", in.text(openbDeleted))
	case deleted == scheduled:
		t.skip(noRunTime)
		return "", nil
	}
	job.Duration = deleted - scheduled
	t.Jobs = append(t.Jobs, job)
	return columnName, nil
}

// checkShare checks the part of a GPU that is asked for.
func checkShare(text string, gpus int64) error {
	share, err := whole(text)
	switch {
	case err != nil:
		return err
	case share > 1000:
		return fmt.Errorf("%q is more than a GPU", text)
	case share > 0 && gpus == 0:
		return fmt.Errorf("%q of no GPU", text)
	}
	return nil
}

// openbSelector returns the label that a node must carry to have one of the models of a spec.
func openbSelector(spec string) map[string]string {
	if spec == "" {
		return nil
	}
	models := strings.Split(strings.Clone(spec), "|")
	slices.Sort(models)
	models = slices.Compact(models)
	if len(models) == 1 {
		return map[string]string{labelGPUModel: models[0]}
	}
	return map[string]string{labelOneOf(models): "true"}
}

// labelOneOf is the label of nodes whose GPUs are of any of several models: a selector can ask for one value only.
func labelOneOf(models []string) string { return labelGPUModel + "-of." + strings.Join(models, "_") }

// openbLabels returns the labels of a node with GPUs of one model: itself, and every choice of models that it is one
// of.
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

// The nodes of openb are not named: what a virtual core of a present server draws stands in for them, with nothing
// running and with all of it busy, as the Cloud Carbon Footprint coefficients have it on average. They do not sleep.
const (
	openbIdlePerCore = energy.Watts(0.74)
	openbFullPerCore = energy.Watts(3.5)
)

// gpuModels are idle power and that at full load. Full load is the board power of the vendor's data sheet, and idle
// about a tenth of it, as published measurements of such cards have it. G2 and G3 are taken for cards of the size of
// a V100 and an A100, of which nodes of that time have eight.
var gpuModels = map[string]struct{ idle, full energy.Watts }{
	"A10":     {15, 150},
	"G2":      {30, 300},
	"G3":      {50, 400},
	"P100":    {25, 250},
	"T4":      {10, 70},
	"V100M16": {30, 300},
	"V100M32": {30, 300},
}

// openbKinds makes each kind of node of openb once, so that its nodes share labels and profile.
type openbKinds map[openbKind]*sched.Node

type openbKind struct {
	capacity sched.Resources
	model    string
}

// node parses the present row. With an error it names the field that is wrong.
func (known openbKinds) node(in *rows, site *sched.Site) (n sched.Node, field string, err error) {
	var kind openbKind
	if kind.capacity.MilliCPU, err = cores(in.text(openbMilliCPU) + "m"); err == nil && kind.capacity.MilliCPU == 0 {
		err = fmt.Errorf("%q must be more than 0", in.text(openbMilliCPU))
	}
	if err != nil {
		return n, openbMilliCPU, err
	}
	if kind.capacity.Memory, err = size(in.text(openbMemory) + "Mi"); err != nil {
		return n, openbMemory, err
	}
	if kind.capacity.GPU, err = whole(in.text(openbGPU)); err != nil {
		return n, openbGPU, err
	}
	kind.model = strings.Clone(in.text(openbModel))
	model, ok := gpuModels[kind.model]
	if !ok && kind.model != "" || kind.model == "" && kind.capacity.GPU > 0 {
		return n, openbModel, fmt.Errorf("unknown GPU %q: have %s", kind.model,
			strings.Join(slices.Sorted(maps.Keys(gpuModels)), ", "))
	}
	if known[kind] == nil {
		cores := energy.Watts(kind.capacity.MilliCPU) / 1000
		p := &energy.Profile{
			Name: fmt.Sprintf("openb-%d-cores", kind.capacity.MilliCPU/1000), Idle: openbIdlePerCore * cores,
			Max: openbFullPerCore * cores, Exponent: 1,
			Quality: energy.Estimated,
			Source:  "mean power of virtual cores by Cloud Carbon Footprint, board power of GPUs by their data sheets",
		}
		p.Sleep = p.Idle
		made := &sched.Node{Site: site, Capacity: kind.capacity, Free: kind.capacity, Profile: p, Speed: 1}
		if kind.model != "" {
			p.Name += "-" + kind.model
			p.GPUIdle, p.GPUMax = model.idle, model.full
			made.Labels = openbLabels(kind.model)
		}
		if err := p.Validate(); err != nil {
			return n, openbMilliCPU, err
		}
		known[kind] = made
	}
	n = *known[kind]
	n.Name = strings.Clone(in.text(openbNode))
	return n, "", nil
}

// readOpenBNodes reads the list of nodes of openb, all of them at one site.
func readOpenBNodes(file string, text []byte, site *sched.Site) ([]sched.Node, error) {
	in, err := newRows(file, text, []string{openbNode, openbMilliCPU, openbMemory, openbGPU, openbModel}, nil)
	if err != nil {
		return nil, err
	}
	var nodes []sched.Node
	seen, known := ids{}, openbKinds{}
	err = in.each(func() (string, error) {
		n, field, err := known.node(in, site)
		if err != nil {
			return field, err
		}
		nodes = append(nodes, n)
		return openbNode, seen.add(n.Name)
	})
	if err != nil {
		return nil, err
	}
	return nodes, nil
}
