package hardware

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/humanize"
)

const gardener = "compute-gardener-scheduler.kubernetes.io/"

// Annotations of nodes that are written by the tools of Compute Gardener. They take precedence over the labels
// below.
const (
	// name: model of the CPU
	annotationCPUModel = gardener + "cpu-model"
	// GHz: maximum frequency of its CPUs
	annotationCPUMaxGHz = gardener + "cpu-max-frequency"
	// names separated by commas, or `none`: models of the GPUs
	annotationGPUModel = gardener + "gpu-model"
	// number: number of GPUs
	annotationGPUCount = gardener + "gpu-count"
	// watts: maximum total power of its GPUs
	annotationGPUPower = gardener + "gpu-total-power"
	// number, 1 or more: ratio of the energy of the facility to the energy of the node
	annotationPUE = gardener + "pue"
	// number, 1 or more: the same ratio for its GPUs; requires the annotation above
	annotationGPUPUE = gardener + "gpu-pue"
)

// Labels of nodes that identify their hardware. The instance type takes precedence over CPU labels. cpu-model and
// gpu-model can also be annotations.
const (
	// name: model of the CPU
	labelCPUModel = "node.kubernetes.io/cpu-model"
	// name: model of the GPUs
	labelGPUModel = "node.kubernetes.io/gpu-model"
	// name: instance type of a cloud provider
	labelInstance = "node.kubernetes.io/instance-type"
	// name, vendor, family and model of the CPU: written by Node Feature Discovery
	labelNFD = "feature.node.kubernetes.io/cpu-model."
	// product, count and replicas of the GPUs: written by NVIDIA GPU Feature Discovery
	labelNVIDIA = "nvidia.com/gpu."
	// name: model of the GPUs, written by the AMD node labeller
	labelAMDProduct = "amd.com/gpu.product-name"
	// name: model of the GPUs, written by GKE, with their number in `gke-accelerator-count`
	labelGKEProduct = "cloud.google.com/gke-accelerator"
)

// withoutEffect contains annotations of Compute Gardener that do not affect power here.
var withoutEffect = []string{"cpu-base-frequency", "cpu-min-frequency", "cpu-dynamic-frequency-enabled"}

// Kind is the recognised hardware of a node, with the labels or annotations used to recognise it.
type Kind struct {
	Name       string     `json:"name,omitempty"` // of the profile; empty if there is none
	Components Components `json:"components"`
	CPUFrom    string     `json:"cpuFrom,omitempty"` // label or annotation that identified the CPU; empty if unknown
	GPUFrom    string     `json:"gpuFrom,omitempty"`
	// Fallback is set if the profile is a fallback: the vendor is known, but the hardware is not.
	Fallback bool `json:"fallback,omitempty"`
	// Error contains the measured errors of profiles of this kind; nil if unknown.
	Error *Errors `json:"error,omitempty"`
	// PUE of the node; 0 if unknown, so that the PUE of the site applies.
	PUE     float64 `json:"pue,omitempty"`
	PUEFrom string  `json:"pueFrom,omitempty"`
	// Notes lists the values that were not recognised or have no effect.
	Notes []string `json:"notes,omitempty"`
}

// String returns a one-line description of k.
func (k Kind) String() string {
	var parts []string
	if k.CPUFrom != "" {
		what := k.Components.CPUModel
		if k.Components.Instance != "" {
			what = k.Components.Provider + " " + k.Components.Instance
		}
		if k.Fallback {
			what += ", a stand-in"
		}
		parts = append(parts, what+" by "+k.CPUFrom)
	} else {
		parts = append(parts, "unknown CPU")
	}
	if k.GPUFrom != "" && k.GPUFrom != k.CPUFrom {
		parts = append(parts, fmt.Sprintf("%d × %s by %s", k.Components.GPUs, k.Components.GPUModel, k.GPUFrom))
	}
	return strings.Join(append(parts, k.Notes...), "; ")
}

func (k *Kind) note(format string, args ...any) {
	k.Notes = append(k.Notes, fmt.Sprintf(format, args...))
}

// Detect recognises the hardware of a node by its labels and annotations, spec.providerID, and capacity: logical
// CPUs, bytes of memory, and GPUs. It returns the profile of the hardware, or false if the CPU or the GPUs are
// unknown. A partial profile, or the profile of other hardware, is never returned. The profile is shared and must
// not be modified.
//
// The CPU is identified by the first of the following that is in the catalogue: the annotation of Compute Gardener,
// the annotation or label node.kubernetes.io/cpu-model, the instance type, the model name of Node Feature
// Discovery, the model name reported by the agent, the family and model of Node Feature Discovery, and, as a
// fallback, only the family. The instance type takes precedence over the detected CPU, because it determines the
// fraction of a server, and because CPUs of several generations share a family and model. GPUs are identified by
// the annotation, the annotation or label node.kubernetes.io/gpu-model, the labels nvidia.com/gpu.product,
// amd.com/gpu.product-name and cloud.google.com/gke-accelerator, the instance type, and the agent. Values that are
// not in the catalogue are noted and skipped.
func (c *Catalog) Detect(labels, annotations map[string]string, providerID string, cpus, memory,
	gpus int64,
) (*energy.Profile, Kind, bool) {
	d := detection{catalog: c, labels: labels, annotations: annotations, cpus: cpus, memory: memory, gpus: gpus}
	d.place(providerID)
	cpuKnown := d.cpu()
	gpuKnown := d.gpu()
	d.pue()
	d.limits()
	if !cpuKnown || !gpuKnown {
		return nil, d.kind, false
	}
	p, err := c.Profile(d.kind.Components)
	if err != nil {
		d.kind.note("%v", err)
		return nil, d.kind, false
	}
	d.kind.Name, d.kind.Error = p.Name, c.errorsOf(d.kind.Components)
	return p, d.kind, true
}

// detection is the state of a single call of Detect.
type detection struct {
	catalog             *Catalog
	labels, annotations map[string]string
	cpus, memory, gpus  int64

	kind     Kind
	instance Components // of the instance type, if it is known
	typed    bool       // whether the instance type is known
	typeName string     // value of the label
	typeFrom string     // key of the label
}

// place looks up the instance type.
func (d *detection) place(providerID string) {
	provider, _, _ := strings.Cut(providerID, "://")
	if provider == "gce" {
		provider = "gcp"
	}
	d.typeName, d.typeFrom = d.labels[labelInstance], labelInstance
	if d.typeName == "" && d.labels[v1alpha1.LabelInstanceType] != "" {
		d.typeName, d.typeFrom = d.labels[v1alpha1.LabelInstanceType], v1alpha1.LabelInstanceType
	}
	if _, known := d.catalog.Instances[provider]; !known { // unknown schemes such as k3s://
		provider = cmp.Or(d.labels[v1alpha1.LabelCloud], provider)
	}
	if provider == "" && d.typeName != "" {
		provider = d.catalog.providerOf(d.typeName)
	}
	if _, known := d.catalog.Instances[provider]; !known {
		return // not a known cloud provider
	}
	d.kind.Components.Provider = provider
	if name, ok := d.catalog.instances[provider][strings.ToLower(d.typeName)]; ok {
		d.instance, d.typed = d.catalog.instanceComponents(provider, name)
	}
}

// providerOf returns the only provider with an instance type of the given name, or "".
func (c *Catalog) providerOf(instance string) (provider string) {
	for p, types := range c.instances {
		if _, ok := types[strings.ToLower(instance)]; ok {
			if provider != "" {
				return ""
			}
			provider = p
		}
	}
	return provider
}

// instanceComponents returns the components of an instance type.
func (c *Catalog) instanceComponents(provider, name string) (Components, bool) {
	i, ok := c.Instances[provider][name]
	if !ok {
		return Components{}, false
	}
	k := Components{
		Provider: provider, Instance: name, CPUModel: c.mapped(i.CPUModel), CPUs: cmp.Or(i.NumCPUs, i.NumCores),
		GPUModel: i.GPUModel, GPUs: i.NumGPUs, Memory: i.TotalMemory << 20, MemType: i.MemoryType,
	}
	if !c.knows(k.CPUModel) {
		k.TDP = i.CPUTDPWatts
	}
	if k.GPUModel != "" && k.GPUs == 0 {
		k.GPUs = 1
	}
	if spelling, _, _ := readGPU(k.GPUModel); c.gpus[spelling] != "" {
		k.GPUModel = c.gpus[spelling]
	}
	return k, true
}

// cpu determines the CPU model of the node and its number of CPUs.
func (d *detection) cpu() bool {
	k := &d.kind.Components
	model, from := d.named("annotation", d.annotations, annotationCPUModel, labelCPUModel)
	if model == "" {
		model, from = d.named("label", d.labels, labelCPUModel)
	}
	switch {
	case model != "":
	case d.typed && (d.catalog.knows(d.instance.CPUModel) || d.instance.TDP > 0):
		d.kind.CPUFrom = "label " + d.typeFrom
		k.Instance, k.CPUModel, k.TDP = d.instance.Instance, d.instance.CPUModel, d.instance.TDP
		k.CPUs, k.Memory = cmp.Or(d.instance.CPUs, d.cpus), cmp.Or(d.instance.Memory, installed(d.memory))
		k.MemType = d.instance.MemType
		d.kind.Fallback = d.catalog.CPUs[k.CPUModel].Generic
		return true
	default:
		if model, from = d.discovered(); model == "" {
			switch {
			case d.typed:
				d.kind.note("the CPU of instance type %s, %s, is not in the catalogue", quoted(d.typeName),
					quoted(d.instance.CPUModel))
			case d.typeName != "":
				d.kind.note("instance type %s is not in the catalogue", quoted(d.typeName))
			}
			if len(d.kind.Notes) == 0 {
				d.kind.note("no annotation, instance type, Node Feature Discovery or agent identifies the hardware")
			}
			return false
		}
	}
	d.kind.CPUFrom, k.CPUModel = from, model
	d.kind.Fallback = d.kind.Fallback || d.catalog.CPUs[model].Generic
	k.CPUs, k.Memory = d.cpus, installed(d.memory)
	d.sockets()
	return true
}

// sockets sets the number of sockets reported by the node's agent if it differs from the number estimated from the
// threads.
func (d *detection) sockets() {
	const most = 64
	k := &d.kind.Components
	reported, err := strconv.ParseInt(d.labels[v1alpha1.LabelCPUSockets], 10, 64)
	if err != nil || reported < 1 || reported > most || k.Provider != "" {
		return
	}
	if guessed, err := socketsOf(d.catalog.CPUs[k.CPUModel], *k); err != nil || guessed != energy.Watts(reported) {
		k.Sockets = reported
	}
}

// named returns the CPU model in the first annotation or label with a value in the catalogue.
func (d *detection) named(what string, texts map[string]string, keys ...string) (model, from string) {
	for _, key := range keys {
		name := texts[key]
		if name == "" || strings.EqualFold(name, "unknown") {
			continue
		}
		if model = d.catalog.mapped(name); d.catalog.knows(model) {
			return model, what + " " + key
		}
		d.kind.note("%s %s is %s, which is not in the catalogue", what, key, quoted(name))
	}
	return "", ""
}

// discovered determines the CPU from the labels of Node Feature Discovery and of the agent.
func (d *detection) discovered() (model, from string) {
	if model, from = d.named("label", d.labels, labelNFD+"name", v1alpha1.LabelCPUModel); model != "" {
		return model, from
	}
	vendor, family, id := d.labels[labelNFD+"vendor_id"], d.labels[labelNFD+"family"], d.labels[labelNFD+"id"]
	if vendor == "" || family == "" {
		return "", ""
	}
	models := d.catalog.CPUModels[vendor]
	if model = models[family+"-"+id]; id != "" && model != "" {
		return d.catalog.mapped(model), "labels " + labelNFD + "*"
	}
	if model = models[family]; model != "" {
		d.kind.Fallback = true
		return d.catalog.mapped(model), "only the CPU family in labels " + labelNFD + "*"
	}
	d.kind.note("%s CPU of family %s, model %s is not in the catalogue", quoted(vendor), quoted(family), quoted(id))
	return "", ""
}

// knows reports whether the catalogue contains a profile of a CPU.
func (c *Catalog) knows(model string) bool {
	_, ok := c.CPUs[model]
	return ok
}

// mapped returns the key of a CPU for any spelling of its name, or the name itself if there is none.
func (c *Catalog) mapped(model string) string {
	if c.knows(model) {
		return model
	}
	for _, s := range cpuSpellings(model) {
		if known := c.cpus[s]; known != "" {
			return known
		}
	}
	for _, g := range c.generations {
		if g.names.MatchString(Spell(model)) {
			return g.Architecture
		}
	}
	return model
}

// installed returns the installed memory of a machine, given the memory reported by the kernel, which reserves one
// or two per cent. Modules have round sizes. Nodes of the same kind with different kernels therefore get the same
// profile.
func installed(memory int64) int64 {
	if memory <= 0 {
		return 0
	}
	gb := float64(memory) / gib
	step := max(1, math.Exp2(math.Floor(math.Log2(gb)))/16)
	return int64(math.Ceil(gb/step)*step) * gib
}

// pue sets the node's PUE, and the ratio of the PUE of its GPUs to it.
func (d *detection) pue() {
	node, nodeFrom := d.readPUE(annotationPUE, d.catalog.DefaultPUE, "defaultPUE")
	gpus, _ := d.readPUE(annotationGPUPUE, d.catalog.DefaultGPUPUE, "defaultGPUPUE")
	d.kind.PUE, d.kind.PUEFrom = node, nodeFrom
	switch {
	case gpus == 0 || d.kind.Components.GPUs == 0 || gpus == node:
	case node == 0:
		d.kind.note("annotation %s has no effect without %s", annotationGPUPUE, annotationPUE)
	default:
		d.kind.Components.GPUPUE = rounded(gpus/node, 1e4)
	}
}

// AnnotatedPUE returns the PUE in the annotations of a node, or 0. It applies regardless of the source of the
// node's power.
func AnnotatedPUE(annotations map[string]string) float64 {
	if pue, err := strconv.ParseFloat(strings.TrimSpace(annotations[annotationPUE]), 64); err == nil && validPUE(pue) {
		return pue
	}
	return 0
}

func (d *detection) readPUE(annotation string, otherwise float64, name string) (float64, string) {
	if pue := d.annotated(annotation, fmt.Sprint("1 to ", maxPUE), validPUE); pue > 0 {
		return pue, "annotation " + annotation
	}
	if otherwise > 0 {
		return otherwise, name + " of the hardware profiles"
	}
	return 0, ""
}

// annotated returns the number in an annotation, or 0 if there is none. An invalid number is noted.
func (d *detection) annotated(key, want string, valid func(float64) bool) float64 {
	text := d.annotations[key]
	v, err := strconv.ParseFloat(text, 64)
	if text == "" || err == nil && valid(v) {
		return v
	}
	d.kind.note("annotation %s is %s: want %s", key, quoted(text), want)
	return 0
}

// limits sets the limit of the clock and notes annotations without effect.
func (d *detection) limits() {
	ghz := d.annotated(annotationCPUMaxGHz, "GHz", func(v float64) bool { return v > 0 && v <= maxGHz })
	top := d.catalog.CPUs[d.kind.Components.CPUModel].FrequencyRangeGHz.Max
	switch {
	case ghz > 0 && top == 0:
		d.kind.note("annotation %s has no effect: the frequency range of the CPU is unknown", annotationCPUMaxGHz)
	case ghz > 0 && ghz < top:
		d.kind.Components.MaxGHz = ghz
	}
	for _, key := range withoutEffect {
		if d.annotations[gardener+key] != "" {
			d.kind.note("annotation %s%s has no effect", gardener, key)
		}
	}
}

// quoted returns a quoted untrusted value, truncated to limit its length in logs.
func quoted(value string) string { return strconv.Quote(humanize.Truncated(value, 64)) }

// recognised returns the keys of the GPUs in a comma-separated list, or the first unknown name.
func (c *Catalog) recognised(list string) (models []string, sevenths int, shared bool, unknown string) {
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		spelling, parts, inTime := readGPU(name)
		model := c.gpus[spelling]
		if _, exact := c.GPUs[name]; exact {
			model = name
		}
		if model == "" {
			return nil, 0, false, name
		}
		models = append(models, model)
		sevenths, shared = max(sevenths, parts), shared || inTime
	}
	slices.Sort(models)
	return models, sevenths, shared, ""
}
