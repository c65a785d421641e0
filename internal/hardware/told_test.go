package hardware

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// Reported hardware becomes labels, and a node with these labels is recognised as with the full names.
func TestToldHardware(t *testing.T) {
	h100 := map[string]int{"NVIDIA H100 80GB HBM3": 8}
	for what, c := range map[string]struct {
		reported batch.Hardware
		node     node
		labels   map[string]string
		// like and board are the CPU and the GPU with the expected profile; empty if unknown.
		like, board string
		cpuFrom     string
		sockets     int64
		note        string
	}{
		"a server": {
			reported: batch.Hardware{
				CPU: "Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz", Sockets: 2, Cores: 112, Threads: 224,
				Vendor: "Dell Inc.", Product: "PowerEdge R760",
			},
			node: node{cpus: 224, memory: 512 * gb},
			labels: map[string]string{
				v1alpha1.LabelCPUModel: "Intel-R-Xeon-R-Platinum-8480-plus-CPU-2.00GHz", v1alpha1.LabelCPUSockets: "2",
				v1alpha1.LabelCPUCores: "112", v1alpha1.LabelMachine: "Dell-Inc.-PowerEdge-R760",
			},
			like: "Intel Xeon Platinum 8480+", cpuFrom: "label " + v1alpha1.LabelCPUModel,
		},
		// The number of threads would match a single socket.
		"two sockets with half of the cores disabled": {
			reported: batch.Hardware{CPU: "AMD EPYC 7763 64-Core Processor", Sockets: 2, Cores: 64, Threads: 128},
			node:     node{cpus: 128, memory: 512 * gb},
			like:     "AMD EPYC 7763",
			cpuFrom:  "label " + v1alpha1.LabelCPUModel, sockets: 2,
		},
		"a virtual machine with fictitious sockets": {
			reported: batch.Hardware{
				CPU: "Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz", Sockets: 4, Cores: 4, Threads: 4, Virtual: true,
			},
			node:    node{cpus: 4, memory: 16 * gb},
			labels:  map[string]string{v1alpha1.LabelCPUModel: "Intel-R-Xeon-R-Platinum-8175M-CPU-2.50GHz"},
			like:    "Intel Xeon Platinum 8175M",
			cpuFrom: "label " + v1alpha1.LabelCPUModel,
		},
		"k3s on an instance of EC2": {
			reported: batch.Hardware{
				CPU: "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", Virtual: true, Cloud: "aws", Instance: "m5.xlarge",
				Vendor: "Amazon EC2", Product: "m5.xlarge",
			},
			node: node{providerID: "k3s://ip-10-0-0-1", cpus: 4, memory: 15 * gb},
			like: "m5.xlarge", cpuFrom: "label " + v1alpha1.LabelInstanceType,
		},
		"an instance type set by the cloud provider": {
			reported: batch.Hardware{Cloud: "aws", Instance: "c5.large"},
			node: node{
				providerID: "aws:///a/i-0", cpus: 4, memory: 15 * gb, labels: map[string]string{labelInstance: "m5.xlarge"},
			},
			like: "m5.xlarge", cpuFrom: "label " + labelInstance,
		},
		"Google names no type": {
			reported: batch.Hardware{CPU: "AMD EPYC 7B13", Virtual: true, Cloud: "gcp"},
			node:     node{cpus: 8, memory: 31 * gb},
			like:     "AMD EPYC 3rd Gen", cpuFrom: "label " + v1alpha1.LabelCPUModel,
		},
		"an annotation takes precedence": {
			reported: batch.Hardware{CPU: "AMD EPYC 7763 64-Core Processor"},
			node: node{
				cpus: 128, memory: 512 * gb, annotations: map[string]string{labelCPUModel: "Intel(R) Xeon(R) Gold 6148"},
			},
			like: "Intel Xeon Gold 6148", cpuFrom: "annotation " + labelCPUModel,
		},
		"GPUs": {
			reported: batch.Hardware{CPU: "AMD EPYC 7763 64-Core Processor", GPUs: h100},
			node:     node{cpus: 256, memory: 512 * gb, gpus: 8},
			like:     "AMD EPYC 7763", board: "NVIDIA H100 SXM", cpuFrom: "label " + v1alpha1.LabelCPUModel,
		},
		"GPUs in sevenths": {
			reported: batch.Hardware{CPU: "AMD EPYC 7763 64-Core Processor", GPUs: h100},
			node:     node{cpus: 256, memory: 512 * gb, gpus: 56},
			like:     "AMD EPYC 7763", board: "NVIDIA H100 SXM", cpuFrom: "label " + v1alpha1.LabelCPUModel,
		},
		"a board for a screen": {
			reported: batch.Hardware{CPU: "AMD EPYC 7763 64-Core Processor", GPUs: map[string]int{"PCI 10de:1d01": 1}},
			node:     node{cpus: 256, memory: 512 * gb},
			like:     "AMD EPYC 7763",
			cpuFrom:  "label " + v1alpha1.LabelCPUModel, note: "PCI-10de-1d01",
		},
		"unknown boards counted by Kubernetes": {
			reported: batch.Hardware{CPU: "AMD EPYC 7763 64-Core Processor", GPUs: map[string]int{"PCI 10de:1d01": 1}},
			node:     node{cpus: 256, memory: 512 * gb, gpus: 1}, note: "PCI-10de-1d01",
		},
		"an unknown CPU": {
			reported: batch.Hardware{CPU: "Loongson-3A5000"}, node: node{cpus: 4, memory: gb}, note: "Loongson-3A5000",
		},
		"nonsense": {
			reported: batch.Hardware{
				CPU: "\x00a\nb ü", Sockets: 1 << 17, Cores: -1, Product: strings.Repeat("p", 99),
				GPUs: map[string]int{"\x7f": -1},
			},
			node:   node{cpus: 4, memory: gb},
			labels: map[string]string{v1alpha1.LabelCPUModel: "a-b", v1alpha1.LabelMachine: strings.Repeat("p", 63)},
			note:   "a-b",
		},
	} {
		labels := Labels(&c.reported)
		for key, value := range labels {
			if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
				t.Errorf("%s: %s: %v", what, key, wrong)
			}
		}
		if diff := cmp.Diff(c.labels, labels); c.labels != nil && diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		maps.Copy(labels, c.node.labels)
		c.node.labels = labels
		p, kind, known := c.node.detect(Default())
		k := kind.Components
		if like := (k.Instance + k.CPUModel); known != (c.like != "") || known && !strings.Contains(like, c.like) ||
			known && (kind.CPUFrom != c.cpuFrom || k.Sockets != c.sockets) || k.GPUModel != c.board && known {
			t.Errorf("%s: it is %s: %+v", what, kind, k)
		}
		if !strings.Contains(strings.Join(kind.Notes, "\n"), c.note) {
			t.Errorf("%s: unexpected Notes = %q", what, kind.Notes)
		}
		if said := Guess(p, kind); known != strings.Contains(said, "W at full load, estimated") {
			t.Errorf("%s: unexpected Guess() = %q", what, said)
		}
		if bare := Untold(labels); len(bare) != len(labels)-len(Labels(&c.reported)) {
			t.Errorf("%s: unexpected Untold() = %v", what, bare)
		}
	}
}

// A machine with two reported sockets draws twice the power of one socket.
func TestToldSockets(t *testing.T) {
	one := node{labels: map[string]string{v1alpha1.LabelCPUModel: "AMD-EPYC-7763-64-Core-Processor"}, cpus: 128}
	two := node{labels: with(one.labels, v1alpha1.LabelCPUSockets, "2"), cpus: 128}
	p, _, _ := one.detect(Default())
	q, kind, _ := two.detect(Default())
	if p == nil || q == nil || !near(q.Idle, 2*p.Idle) || !near(q.Max, 2*p.Max) || p.Name == q.Name {
		t.Errorf("%+v, %+v, %v", p, q, kind)
	}
	for _, nonsense := range []string{"0", "-1", "65", "two"} {
		two.labels[v1alpha1.LabelCPUSockets] = nonsense
		if again, _, _ := two.detect(Default()); again != p {
			t.Errorf("profile with %s sockets = %v, want the default profile", nonsense, again)
		}
	}
}

// The file documented by Compute Gardener contains an instance type with a CPU that has no profile in the file,
// named as the CPU reports itself.
func TestComputeGardenersDocumentedFile(t *testing.T) {
	for _, cpu := range []string{
		"Intel(R) Xeon(R) Platinum 8175M", "Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz", "intel xeon platinum 8175m",
	} {
		c, err := WithFile([]byte("cloudInstanceMapping: {aws: {m5.large: {cpuModel: " + cpu + ", memoryType: DDR4-2666 ECC, " +
			"numCPUs: 2, totalMemory: 8192}}}"))
		if err != nil {
			t.Fatal(err)
		}
		m5 := node{labels: map[string]string{labelInstance: "m5.large"}, providerID: "aws:///a/i", cpus: 2, memory: 7 * gb}
		p, kind, known := m5.detect(c)
		// 2 of 66 threads of a socket of 19.8 to 246.8 W, and 8 GB at 0.15 to 0.39 W.
		if want := energy.Watts(1.8); !known || !near(p.Idle, want) || !near(p.Max, 10.6) || len(c.Warnings()) > 0 {
			t.Errorf("%s: %+v, %s, %q", cpu, p, kind, c.Warnings())
		}
	}
}
