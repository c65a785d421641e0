package hardware

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubenergy/kubenergy/internal/energy"
)

const gb = int64(1) << 30

type node struct {
	labels, annotations map[string]string
	providerID          string
	cpus, memory, gpus  int64
}

func (n node) detect(c *Catalog) (*energy.Profile, Kind, bool) {
	return c.Detect(n.labels, n.annotations, n.providerID, n.cpus, n.memory, n.gpus)
}

func nfd(vendor, family, id string) map[string]string {
	return map[string]string{labelNFD + "vendor_id": vendor, labelNFD + "family": family, labelNFD + "id": id}
}

func with(base map[string]string, more ...string) map[string]string {
	all := maps.Clone(base)
	if all == nil {
		all = map[string]string{}
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

func TestDetect(t *testing.T) {
	xeon := map[string]string{annotationCPUModel: "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz"}
	for _, c := range []struct {
		what     string
		node     node
		name     string // "" if unknown
		idle     energy.Watts
		full     energy.Watts
		gpuIdle  energy.Watts
		gpuMax   energy.Watts
		cpuFrom  string
		gpuFrom  string
		fallback bool
		pue      float64
		note     string
	}{
		{
			// 4 threads of Skylake at 0.2975 to 3.5189 W, and 16 GB of memory at 0.15 to 0.39 W.
			what: "instance type", name: "aws-m5-xlarge", idle: 3.59, full: 20.32, cpuFrom: "label " + labelInstance,
			node: node{
				labels: map[string]string{labelInstance: "m5.xlarge"}, providerID: "aws:///eu-central-1a/i-0abc",
				cpus: 4, memory: 16_073_216 << 10,
			},
		},
		{
			what: "instance type of one provider only, without a provider ID", name: "gcp-n2-standard-8", idle: 9.91,
			full: 40.27, cpuFrom: "label " + labelInstance,
			node: node{labels: map[string]string{labelInstance: "n2-standard-8"}, cpus: 8, memory: 31 * gb},
		},
		{
			what: "Azure spells sizes in any case", name: "azure-standard-d4s-v3", cpuFrom: "label " + labelInstance,
			idle: 3.96, full: 19.2,
			node: node{
				labels: map[string]string{labelInstance: "standard_d4s_v3"}, providerID: "azure:///subscriptions/x",
				cpus: 4, memory: 16 * gb,
			},
		},
		{
			what: "instance type of another provider",
			node: node{
				labels: map[string]string{labelInstance: "m5.xlarge"}, providerID: "gce://p/z/n", cpus: 4,
				memory: 16 * gb,
			},
			note: `instance type "m5.xlarge" is not in the catalogue`,
		},
		{
			what: "instance type of a longer name",
			node: node{
				labels: map[string]string{labelInstance: "m5.xlarge2"}, providerID: "aws:///a/i", cpus: 4,
				memory: 16 * gb,
			},
			note: `instance type "m5.xlarge2" is not in the catalogue`,
		},
		{
			what: "instance label of an unknown provider", note: `instance type "k3s" is not in the catalogue`,
			node: node{
				labels: map[string]string{labelInstance: "k3s"}, providerID: "k3s://node1", cpus: 4, memory: 16 * gb,
			},
		},
		{
			what: "instance with GPUs", name: "aws-g4dn-xlarge", idle: 3.83, full: 19.69, gpuIdle: 10, gpuMax: 70,
			cpuFrom: "label " + labelInstance, gpuFrom: "label " + labelInstance,
			node: node{
				labels: map[string]string{labelInstance: "g4dn.xlarge"}, providerID: "aws:///a/i", cpus: 4,
				memory: 16 * gb, gpus: 1,
			},
		},
		{
			what: "instance with GPUs shared by a device plugin",
			name: "aws-g4dn-xlarge-4c-16g-4x-nvidia-t4-300c1eae", idle: 3.83, full: 19.69, gpuIdle: 2.5, gpuMax: 17.5,
			cpuFrom: "label " + labelInstance, gpuFrom: "label " + labelInstance,
			node: node{
				labels: map[string]string{labelInstance: "g4dn.xlarge"}, providerID: "aws:///a/i", cpus: 4,
				memory: 16 * gb, gpus: 4,
			},
		},
		{
			what: "instance with a GPU attached", name: "gcp-n1-standard-4-4c-15g-1x-nvidia-t4-99bce927", idle: 3.44,
			full: 19.93, gpuIdle: 10, gpuMax: 70, cpuFrom: "label " + labelInstance,
			gpuFrom: "label " + labelGKEProduct,
			node: node{
				labels:     map[string]string{labelInstance: "n1-standard-4", labelGKEProduct: "nvidia-tesla-t4"},
				providerID: "gce://p/z/n", cpus: 4, memory: 15 * gb, gpus: 1,
			},
		},
		{
			what: "annotation comes before all", name: "intel-xeon-gold-6338-128c-256g", idle: 118.8, full: 509.44,
			cpuFrom: "annotation " + annotationCPUModel,
			node: node{
				labels: with(nfd("AMD", "25", "1"), labelCPUModel, "AMD EPYC 7B12"), annotations: xeon, cpus: 128,
				memory: 252 * gb,
			},
		},
		{
			what: "label with a valid label value", name: "amd-epyc-7702p-16c-64g", idle: 15.89, full: 46.75,
			cpuFrom: "label " + labelCPUModel,
			node: node{
				labels: map[string]string{labelCPUModel: "AMD-EPYC-7702P-64-Core-Processor"}, cpus: 16, memory: 63 * gb,
			},
		},
		{
			what: "Node Feature Discovery", name: "intel-sapphire-rapids-64c-128g", idle: 56.37, full: 231.65,
			cpuFrom: "labels " + labelNFD + "*",
			node:    node{labels: nfd("Intel", "6", "143"), cpus: 64, memory: 126 * gb},
		},
		{
			what: "family alone", name: "generic-intel-server-8c-16g", idle: 7.35, full: 32.75, fallback: true,
			cpuFrom: "only the CPU family in labels " + labelNFD + "*",
			node:    node{labels: nfd("Intel", "6", "9999"), cpus: 8, memory: 16 * gb},
		},
		{
			what: "instance type before Node Feature Discovery", name: "aws-c7g-large", idle: 1.17, full: 4.12,
			cpuFrom: "label " + labelInstance,
			node: node{
				labels: with(nfd("Intel", "6", "85"), labelInstance, "c7g.large"), providerID: "aws:///a/i", cpus: 2,
				memory: 4 * gb,
			},
		},
		{
			what: "ARM has no fallback", note: `"ARM" CPU of family "15", model "1" is not in the catalogue`,
			node: node{labels: nfd("ARM", "15", "1"), cpus: 8, memory: 16 * gb},
		},
		{
			what: "no information", note: "no annotation, instance type, Node Feature Discovery or agent",
			node: node{labels: map[string]string{"kubernetes.io/arch": "amd64"}, cpus: 8, memory: 16 * gb},
		},
		{
			what: "part of a model's name", note: `is "Gold 6148"`,
			node: node{annotations: map[string]string{annotationCPUModel: "Gold 6148"}, cpus: 8, memory: 16 * gb},
		},
		{
			what: "model of a longer name", note: `is "AMD EPYC 77631"`,
			node: node{annotations: map[string]string{annotationCPUModel: "AMD EPYC 77631"}, cpus: 8, memory: 16 * gb},
		},
		{
			what: "any Xeon is no Xeon", note: `is "Intel(R) Xeon(R) CPU @ 2.20GHz"`,
			node: node{
				annotations: map[string]string{annotationCPUModel: "Intel(R) Xeon(R) CPU @ 2.20GHz"}, cpus: 8,
				memory: 16 * gb,
			},
		},
		{
			what: "GPU Feature Discovery", name: "intel-xeon-gold-6338-32c-128g-4x-nvidia-a100-sxm4", idle: 59.4,
			full: 254.72, gpuIdle: 55, gpuMax: 400, cpuFrom: "annotation " + annotationCPUModel,
			gpuFrom: "label " + labelNVIDIA + "product",
			node: node{annotations: xeon, labels: map[string]string{
				labelNVIDIA + "product": "NVIDIA-A100-SXM4-80GB", labelNVIDIA + "count": "4",
			}, cpus: 32, memory: 128 * gb, gpus: 4},
		},
		{
			what: "partitions", name: "intel-xeon-gold-6338-32c-128g-28x-nvidia-a100-sxm4-80d8e030", idle: 59.4,
			full: 254.72, gpuIdle: 7.86, gpuMax: 57.16, cpuFrom: "annotation " + annotationCPUModel,
			gpuFrom: "label " + labelNVIDIA + "product",
			node: node{
				annotations: xeon, labels: map[string]string{labelNVIDIA +
					"product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", labelNVIDIA + "count": "28"}, cpus: 32,
				memory: 128 * gb,
				gpus:   28,
			},
		},
		{
			what: "time slices", name: "intel-xeon-gold-6338-32c-128g-8x-nvidia-l4-15858627", idle: 59.4, full: 254.72,
			gpuIdle: 3.25, gpuMax: 18, cpuFrom: "annotation " + annotationCPUModel, gpuFrom: "label " + labelNVIDIA +
				"product",
			node: node{annotations: xeon, labels: map[string]string{
				labelNVIDIA + "product": "NVIDIA-L4-SHARED", labelNVIDIA + "replicas": "4", labelNVIDIA + "count": "2",
			}, cpus: 32, memory: 128 * gb, gpus: 8},
		},
		{
			what: "A10 is not A100", name: "intel-xeon-gold-6338-32c-128g-1x-nvidia-a10", idle: 59.4, full: 254.72,
			gpuIdle: 15, gpuMax: 150, cpuFrom: "annotation " + annotationCPUModel,
			gpuFrom: "annotation " + annotationGPUModel,
			node: node{
				annotations: with(xeon, annotationGPUModel, "NVIDIA A10"), cpus: 32, memory: 128 * gb, gpus: 1,
			},
		},
		{
			what: "mixed GPUs have their mean", name: "intel-xeon-gold-6338-32c-128g-2x-nvidia-a10-nvidia-t4", idle: 59.4,
			full: 254.72, gpuIdle: 12.5, gpuMax: 110, cpuFrom: "annotation " + annotationCPUModel,
			gpuFrom: "annotation " + annotationGPUModel,
			node: node{
				annotations: with(xeon, annotationGPUModel, "NVIDIA T4, NVIDIA A10"), cpus: 32, memory: 128 * gb,
			},
		},
		{
			what: "unknown GPU", note: `is "NVIDIA A1000"`,
			node: node{
				annotations: with(xeon, annotationGPUModel, "NVIDIA A1000"), cpus: 32, memory: 128 * gb, gpus: 1,
			},
		},
		{
			what: "GPUs without a model", note: "the model of its 2 GPUs is unknown",
			node: node{annotations: xeon, cpus: 32, memory: 128 * gb, gpus: 2},
		},
		{
			what: "GPUs with annotated power",
			name: "intel-xeon-gold-6338-32c-128g-2x-gpu-of-unknown-model-1e11f297", idle: 59.4, full: 254.72, gpuIdle: 30,
			gpuMax: 300, fallback: true, cpuFrom: "annotation " + annotationCPUModel,
			gpuFrom: "annotation " + annotationGPUPower,
			node:    node{annotations: with(xeon, annotationGPUPower, "600"), cpus: 32, memory: 128 * gb, gpus: 2},
		},
		{
			what: "annotated as having no GPU", name: "intel-xeon-gold-6338-32c-128g", idle: 59.4, full: 254.72,
			cpuFrom: "annotation " + annotationCPUModel, gpuFrom: "annotation " + annotationGPUModel,
			node: node{annotations: with(xeon, annotationGPUModel, "none"), cpus: 32, memory: 128 * gb},
		},
		{
			what: "GPU PUE is folded in", name: "intel-xeon-gold-6338-32c-128g-1x-nvidia-t4-db57d4ae", idle: 59.4,
			full: 254.72, gpuIdle: 12, gpuMax: 84, cpuFrom: "annotation " + annotationCPUModel,
			gpuFrom: "annotation " + annotationGPUModel, pue: 1.25,
			node: node{annotations: with(xeon, annotationGPUModel, "NVIDIA T4", annotationPUE, "1.25", annotationGPUPUE,
				"1.5"), cpus: 32, memory: 128 * gb, gpus: 1},
		},
		{
			what: "invalid PUE", name: "intel-xeon-gold-6338-32c-128g", idle: 59.4, full: 254.72,
			cpuFrom: "annotation " + annotationCPUModel, note: `pue is "0.5": want 1 to 10`,
			node: node{annotations: with(xeon, annotationPUE, "0.5"), cpus: 32, memory: 128 * gb},
		},
		{
			what: "no count of CPUs", note: "the number of CPUs of the node is unknown",
			cpuFrom: "annotation " + annotationCPUModel,
			node:    node{annotations: xeon, memory: 128 * gb},
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			p, kind, ok := c.node.detect(Default())
			if ok != (c.name != "") || ok != (p != nil) {
				t.Fatalf("Detect() = %v, profile %v, kind %s", ok, p, kind)
			}
			if notes := strings.Join(kind.Notes, "; "); !strings.Contains(notes, c.note) ||
				c.note == "" && notes != "" {
				t.Errorf("Notes = %q, want %q", notes, c.note)
			}
			if !ok {
				return
			}
			type outcome struct {
				Name                      string
				Idle, Full, GPUIdle, GPUs energy.Watts
				CPUFrom, GPUFrom          string
				Fallback                  bool
				PUE                       float64
			}
			got := outcome{
				p.Name, p.Idle, p.Max, p.GPUIdle, p.GPUMax, kind.CPUFrom, kind.GPUFrom, kind.Fallback, kind.PUE,
			}
			want := outcome{c.name, c.idle, c.full, c.gpuIdle, c.gpuMax, c.cpuFrom, c.gpuFrom, c.fallback, c.pue}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("unexpected result (-want +got):\n%s%s", diff, p.Source)
			}
			if p.Name != kind.Name || p.Quality != energy.Estimated || p.Sleep != p.Idle {
				t.Errorf("unexpected profile %+v, kind %s", p, kind.Name)
			}
			if wrong := validation.IsDNS1123Label(p.Name); wrong != nil {
				t.Errorf("name %q: %v", p.Name, wrong)
			}
		})
	}
}

// Only whole names match. Compute Gardener uses the GPU power of node10 for node1, and infers GPUs from node names.
func TestNodeNamesAreNoEvidence(t *testing.T) {
	gpuNode := node{labels: map[string]string{
		"kubernetes.io/hostname": "gpu-p3-a10-node10", labelInstance: "m5.xlarge",
	}, providerID: "aws:///a/i", cpus: 4, memory: 16 * gb, gpus: 1}
	if p, kind, ok := gpuNode.detect(Default()); ok {
		t.Errorf("Detect() of a GPU of unknown model = %s, kind %s, want none", p.Name, kind)
	}
	for _, host := range []string{"node1", "node10"} {
		n := node{
			labels:     map[string]string{"kubernetes.io/hostname": host, labelInstance: "m5.xlarge"},
			providerID: "aws:///a/" + host, cpus: 4, memory: 16 * gb,
		}
		if p, _, ok := n.detect(Default()); !ok || p.Name != "aws-m5-xlarge" {
			t.Errorf("%s: %v", host, p)
		}
	}
}

func TestSpellings(t *testing.T) {
	c := Default()
	for name, want := range map[string]string{
		"Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz":     "Intel Xeon Platinum 8175M",
		"Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz":     "Intel Xeon Platinum 8375C",
		"INTEL XEON PLATINUM 8180":                          "Intel Xeon Platinum 8180",
		"Intel(R) Xeon(R) Platinum 8180M CPU @ 2.50GHz":     "Intel Xeon Platinum 8180M",
		"Intel(R) Xeon(R) Platinum 8180X":                   "Intel Skylake",
		"Intel(R) Xeon(R) Platinum 81800":                   "",
		"Intel(R) Xeon(R) Platinum 8176 CPU":                "Intel Xeon Platinum 8176",
		"Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz":    "Intel Xeon Platinum 8259CL",
		"Intel(R) Xeon(R) Platinum 8488C":                   "Intel Sapphire Rapids",
		"Intel(R) Xeon(R) Platinum 8573C":                   "Intel Emerald Rapids",
		"Intel(R) Xeon(R) 6980P":                            "Intel Xeon 6980P",
		"Intel(R) Xeon(R) 6975P-C":                          "Intel Granite Rapids",
		"Intel(R) Xeon(R) CPU E5-2680 v3 @ 2.50GHz":         "Intel Xeon E5-2680 v3",
		"Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz":         "Intel Xeon E5-2680 v4",
		"Intel(R) Xeon(R) CPU E5-2680 v5":                   "",
		"Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz":         "Intel Xeon E5-2686 v4",
		"Intel Xeon E5-2660V2":                              "Intel Xeon E5-2660 v2",
		"Intel_R__Xeon_R__Gold_6248R_CPU___3.00GHz":         "Intel Xeon Gold 6248R",
		"Intel(R) Xeon(R) CPU @ 2.20GHz":                    "",
		"AMD EPYC 7742 64-Core Processor":                   "AMD EPYC 7742",
		"AMD EPYC 774":                                      "",
		"AMD EPYC 7763 32-Core Processor":                   "AMD EPYC 7763",
		"AMD EPYC 776":                                      "",
		"AMD EPYC 7R32":                                     "AMD EPYC 2nd Gen",
		"AMD EPYC 7B13":                                     "AMD EPYC 3rd Gen",
		"AMD EPYC 9R14":                                     "AMD EPYC 4th Gen",
		"AMD EPYC 9V74 80-Core Processor":                   "AMD EPYC 4th Gen",
		"AMD EPYC 9R45":                                     "AMD EPYC 5th Gen",
		"AMD EPYC-Rome Processor":                           "",
		"12th Gen Intel(R) Core(TM) i7-12700K":              "Intel Core i7-12700K",
		"AMD Ryzen 7 5700G with Radeon Graphics":            "AMD Ryzen 7 5700G",
		"AMD Ryzen 7 5700":                                  "AMD Ryzen 7 5700",
		"Ampere® Altra® 64-Bit Multi-Core Processor Q64-30": "Ampere Altra",
		"Raspberry Pi 4":                                    "Raspberry Pi 4",
	} {
		got := c.mapped(name)
		if !c.knows(got) {
			got = ""
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"NVIDIA-A100-SXM4-80GB": "NVIDIA A100 SXM4", "NVIDIA-A100-PCIE-40GB": "NVIDIA A100 PCIe 40GB",
		"NVIDIA-A100-80GB-PCIe": "NVIDIA A100 PCIe", "Tesla-V100-SXM2-16GB": "NVIDIA V100 SXM2",
		"Tesla-T4":              "NVIDIA T4",
		"NVIDIA-H100-80GB-HBM3": "NVIDIA H100 SXM", "NVIDIA-L40S": "NVIDIA L40S", "NVIDIA-L40": "NVIDIA L40",
		"NVIDIA-GeForce-RTX-4090": "NVIDIA GeForce RTX 4090", "NVIDIA-RTX-A6000": "NVIDIA RTX A6000",
		"AMD_Instinct_MI300X_OAM": "AMD Instinct MI300X", "nvidia-h100-mega-80gb": "NVIDIA H100 SXM",
		"NVIDIA-A1": "", "NVIDIA-A100-SXM4-80GB-X": "",
	} {
		spelling, _, _ := readGPU(name)
		if got := c.gpus[spelling]; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Nodes of the same kind differ in the memory reserved by their kernels.
func TestInstalledMemory(t *testing.T) {
	for shown, want := range map[int64]int64{
		0: 0, 1_900_000 << 10: 2, 3_884_000 << 10: 4, 7_900_000 << 10: 8, 15_900_000 << 10: 16, 16_073_216 << 10: 16,
		32_600_000 << 10: 32,
		65_700_000 << 10: 64, 131_900_000 << 10: 128, 263_800_000 << 10: 256, 394_000_000 << 10: 384,
		527_900_000 << 10: 512,
		791_000_000 << 10: 768, 1_056_000_000 << 10: 1024, 16 * gb: 16, 512 * gb: 512,
	} {
		if got := installed(shown) / gb; got != want {
			t.Errorf("installed() of %.2f GiB = %d GiB, want %d", float64(shown)/float64(gb), got, want)
		}
	}
}

func TestEqualHardwareSharesOneProfile(t *testing.T) {
	var group sync.WaitGroup
	found := make([]*energy.Profile, 64)
	for i := range found {
		group.Go(func() {
			n := node{
				labels: map[string]string{
					labelInstance: "m5.xlarge", "kubernetes.io/hostname": fmt.Sprint("node", i),
				},
				providerID: fmt.Sprint("aws:///a/i-", i), cpus: 4, memory: int64(15_900_000+i*1000) << 10,
			}
			found[i], _, _ = n.detect(Default())
		})
	}
	group.Wait()
	for _, p := range found {
		if p == nil || p != found[0] {
			t.Fatalf("profiles %p and %p of equal hardware differ", p, found[0])
		}
	}
}

// The number of cached profiles is limited, and hardware with different power has different names.
func TestNamesDifferWherePowerDoes(t *testing.T) {
	c, err := merge(Default())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]Components{}
	for cpus := int64(1); cpus <= 40; cpus++ {
		for memory := int64(1); memory <= 40; memory++ {
			n := node{
				annotations: map[string]string{annotationCPUModel: "AMD EPYC 7763", annotationGPUModel: "T4"},
				cpus:        cpus, memory: memory * gb, gpus: cpus % 3,
			}
			if cpus%2 == 0 {
				n.annotations[annotationGPUPower] = "100"
			}
			_, kind, ok := n.detect(c)
			if !ok {
				t.Fatal(kind)
			}
			if other, taken := seen[kind.Name]; taken && other != kind.Components {
				t.Fatalf("name %s is used for both %+v and %+v", kind.Name, other, kind.Components)
			}
			seen[kind.Name] = kind.Components
		}
	}
	if len(c.profiles) > maxProfiles {
		t.Errorf("%d profiles are cached, more than the limit", len(c.profiles))
	}
}

func BenchmarkDetect(b *testing.B) {
	n := node{
		labels: with(nfd("Intel", "6", "85"), labelInstance, "m5.xlarge"), providerID: "aws:///a/i", cpus: 4,
		memory: 16 * gb,
	}
	for b.Loop() {
		n.detect(Default())
	}
}
