package hardware

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// shared returns a file of the shared data directory, or skips the test.
func shared(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.FromSlash("../../../shared/data"), filepath.FromSlash(name)))
	if err != nil {
		t.Skip("skipping because the shared data directory is missing: ", err)
	}
	return text
}

func TestBundledCatalogue(t *testing.T) {
	c := Default()
	if len(c.Warnings()) > 0 {
		t.Error(c.Warnings())
	}
	for provider, least := range map[string]int{"aws": 1000, "gcp": 300, "azure": 350} {
		if n := len(c.Instances[provider]); n < least {
			t.Errorf("provider %s: got only %d instance types", provider, n)
		}
		for name, i := range c.Instances[provider] {
			if _, ok := c.GPUs[i.GPUModel]; i.GPUModel != "" && !ok {
				t.Errorf("%s %s has a GPU without a profile: %s", provider, name, i.GPUModel)
			}
		}
	}
	if !bytes.Contains(generated, []byte("Derived from SPECpower_ssj2008")) {
		t.Error("the generated tables contain no attribution")
	}
	if size := len(generated) + len(written); size > 600<<10 {
		t.Errorf("size of the catalogue = %d bytes, want at most 600 KiB", size)
	}
	for vendor, models := range c.CPUModels {
		for id, model := range models {
			if _, ok := c.CPUs[model]; !ok {
				t.Errorf("%s %s is mapped to %q, which does not have a profile", vendor, id, model)
			}
		}
	}
	for spelling, model := range c.gpus {
		if model == "" {
			t.Errorf("several GPUs have the spelling %q", spelling)
		}
	}
}

// Every instance type is recognised, and its power is plausible for anything between a small board and a rack.
func TestEveryInstanceType(t *testing.T) {
	c := Default()
	scheme := map[string]string{"aws": "aws", "gcp": "gce", "azure": "azure"}
	for provider, types := range c.Instances {
		for name, i := range types {
			n := node{
				labels: map[string]string{labelInstance: name}, providerID: scheme[provider] + "://x", cpus: i.NumCPUs,
				memory: i.TotalMemory << 20, gpus: i.NumGPUs,
			}
			p, kind, ok := n.detect(c)
			if !ok {
				t.Errorf("%s %s: %s", provider, name, kind)
				continue
			}
			// The largest are rented machines with 1,920 threads and 32 TB.
			if p.Idle < 0.2 || p.Max <= p.Idle || p.Max > 25_000 || (p.GPUMax > 0) != (i.NumGPUs > 0) {
				t.Errorf("%s: implausible power of %v to %v W, GPUs %v to %v W", p.Name, p.Idle, p.Max, p.GPUIdle, p.GPUMax)
			}
			if kind.Fallback {
				t.Errorf("%s is recognised only by a fallback", p.Name)
			}
		}
	}
}

// The hardware profiles shipped with Compute Gardener, unmodified: a ConfigMap, and the file in it.
func TestComputeGardenersFile(t *testing.T) {
	text := shared(t, "power/compute_gardener_hw_profiles.yaml")
	c, err := read(text)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := unwrap(text, "hardware-profiles.yaml")
	if err != nil || len(inner) >= len(text) {
		t.Fatal(len(inner), err)
	}
	if plain, err := read(inner); err != nil || len(plain.CPUs) != len(c.CPUs) || len(c.CPUs) < 20 || len(c.GPUs) < 9 ||
		len(c.Memory) < 7 {
		t.Fatalf("got %d CPUs, %d GPUs, %d memory types, error %v", len(c.CPUs), len(c.GPUs), len(c.Memory), err)
	}
	warned := strings.Join(c.Warnings(), "\n")
	if !strings.Contains(warned, "memChannels") || !strings.Contains(warned, "baseFrequencyGHz") ||
		len(c.Warnings()) != 2 {
		t.Error(warned)
	}
}

// If that file is added to the bundled catalogue, every instance type and every CPU of both is still recognised.
func TestComputeGardenersFileKeepsNodesKnown(t *testing.T) {
	c, err := WithFile(shared(t, "power/compute_gardener_hw_profiles.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for provider, types := range c.Instances {
		for name := range types {
			n := node{labels: map[string]string{labelInstance: name}, providerID: provider + "://x", cpus: 4, memory: 16 * gb}
			if p, kind, ok := n.detect(c); !ok && types[name].GPUModel == "" {
				t.Errorf("%s %s: %s", provider, name, kind)
			} else if ok && p.Max <= p.Idle {
				t.Errorf("%s %s: %v to %v W", provider, name, p.Idle, p.Max)
			}
		}
	}
	for model := range Default().CPUs {
		if mapped := c.mapped(model); !c.knows(mapped) {
			t.Errorf("%s is no longer recognised", model)
		}
	}
}

func TestComputeGardenersComponents(t *testing.T) {
	c, err := read(shared(t, "power/compute_gardener_hw_profiles.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		what       string
		node       node
		idle, full energy.Watts
		name       string
	}{
		{
			// 4 of 48 threads of a socket of 10 to 115 W, and 16 GB at 0.125 to 0.375 W with a base of 1 W.
			"an instance has a fraction of the socket",
			node{
				labels: map[string]string{labelInstance: "m5.xlarge"}, providerID: "aws:///a/i", cpus: 4,
				memory: 15 * gb,
			},
			3.83, 16.58, "aws-m5-xlarge",
		},
		{
			"numCores of an instance is the number of its CPUs",
			node{
				labels: map[string]string{labelInstance: "n2-standard-8"}, providerID: "gce://p/z/n", cpus: 8,
				memory: 31 * gb,
			},
			7.2, 38, "gcp-n2-standard-8",
		},
		{
			// A physical machine with two sockets, and 192 GB of memory of an unspecified type.
			"whole sockets",
			node{
				annotations: map[string]string{annotationCPUModel: "Intel(R) Xeon(R) Gold 6148"}, cpus: 80,
				memory: 188 * gb,
			},
			2*11 + 192*0.15, 2*125 + 192*0.39, "intel-xeon-gold-6148-80c-192g",
		},
		{
			"a socket without hyper-threading",
			node{
				annotations: map[string]string{annotationCPUModel: "Intel(R) Core(TM) i5-6500 CPU @ 3.20GHz"}, cpus: 4,
				memory: 16 * gb,
			},
			5 + 16*0.15, 65 + 16*0.39, "intel-core-i5-6500-cpu-3-20ghz-4c-16g",
		},
		{
			"ARM has one thread a core",
			node{labels: nfd("ARM", "15", "53379"), cpus: 4, memory: 4 * gb},
			2 + 4*0.15, 6 + 4*0.39, "raspberry-pi-4-model-b-bcm2711-4c-4g",
		},
		{
			// The range from idle to full load decreases with the square of the clock.
			"a capped clock",
			node{annotations: map[string]string{
				annotationCPUModel: "Intel(R) Xeon(R) Gold 6148", annotationCPUMaxGHz: "1.85",
			}, cpus: 40, memory: gb},
			11 + 0.15, 11 + 114*0.25 + 0.39, "intel-xeon-gold-6148-40c-1g-",
		},
	} {
		p, kind, ok := k.node.detect(c)
		if !ok {
			t.Errorf("%s: %s", k.what, kind)
			continue
		}
		if !near(p.Idle, k.idle) || !near(p.Max, k.full) || !strings.HasPrefix(p.Name, k.name) || p.Exponent != 2 {
			t.Errorf("%s: got %s, %v to %v W, exponent %v, want %s, %v to %v W", k.what, p.Name, p.Idle, p.Max, p.Exponent,
				k.name, k.idle, k.full)
		}
	}
}

func near(a, b energy.Watts) bool { return math.Abs(float64(a-b)) < 0.006 }

func TestMergePrefersTheLast(t *testing.T) {
	users, err := read([]byte(`
defaultPUE: 1.2
defaultGPUPUE: 1.5
gpuProfiles:
  "NVIDIA A100": {idlePower: 30, maxPower: 410, workloadTypes: {inference: 0.6, training: 1.0}}
cpuProfiles:
  "Own board": {idlePower: 4, maxPower: 20}
cloudInstanceMapping:
  aws:
    "m5.xlarge": {cpuModel: "Own board"}
`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := merge(Default(), users)
	if err != nil {
		t.Fatal(err)
	}
	p, kind, ok := node{
		labels:     map[string]string{labelInstance: "m5.xlarge", labelNVIDIA + "product": "NVIDIA-A100"},
		providerID: "aws:///a/i", cpus: 4, memory: 16 * gb, gpus: 1,
	}.detect(c)
	if !ok {
		t.Fatal(kind)
	}
	// The power of the GPU includes PUE 1.5, divided by the node's PUE of 1.2, which is applied separately.
	if p.Idle != 4+16*0.15 || p.Max != 20+16*0.39 || p.GPUIdle != 37.5 || p.GPUMax != 512.5 || kind.PUE != 1.2 {
		t.Errorf("unexpected profile %+v, PUE %v", p, kind.PUE)
	}
	// 0.6 of 410 W is 216 of the 380 W above idle.
	if got := p.GPUClasses["inference"]; math.Abs(got-216./380) > 1e-4 || p.GPUClasses["training"] != 1 {
		t.Errorf("classes %v", p.GPUClasses)
	}
	if p, _, ok := (node{
		labels: map[string]string{labelInstance: "m5.large"}, providerID: "aws:///a/i", cpus: 2, memory: 8 * gb,
	}).detect(c); !ok || p.Name != "aws-m5-large" {
		t.Errorf("bundled instance types are missing: %+v", p)
	}
}

// An instance type of a file may refer to a CPU of the bundled catalogue, under any of its spellings, as in the
// documentation of Compute Gardener.
func TestInstanceTypeOfABundledCPU(t *testing.T) {
	users, err := read([]byte(`
cloudInstanceMapping:
  aws:
    "m5.large": {cpuModel: "Intel(R) Xeon(R) Platinum 8175M", memoryType: "DDR4-2666 ECC", totalMemory: 8192}
    "m5.xlarge": {cpuModel: "Intel(R) Xeon(R) Titanium 9999", numCPUs: 4}
`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := merge(Default(), users)
	if err != nil {
		t.Fatal(err)
	}
	m5 := func(size string, cpus int64) node {
		return node{
			labels: map[string]string{labelInstance: "m5." + size}, providerID: "aws:///a/i", cpus: cpus,
			memory: cpus * 4 * gb,
		}
	}
	p, kind, ok := m5("large", 2).detect(c)
	if !ok || kind.Components.CPUModel != "Intel Xeon Platinum 8175M" || p.Max < 5 || p.Max > 15 {
		t.Errorf("%+v by %s", p, kind)
	}
	if _, kind, ok := m5("xlarge", 4).detect(c); ok || !strings.Contains(kind.String(), "Titanium 9999") {
		t.Errorf("unexpected result for a type with an unknown CPU: %v, %s", ok, kind)
	}
	if all := strings.Join(c.Warnings(), "\n"); !strings.Contains(all, "m5.xlarge") ||
		!strings.Contains(all, "Titanium 9999") || strings.Contains(all, "m5.large") {
		t.Errorf("unexpected warnings: %s", all)
	}
}

func TestOnlyTheTDPIsKnown(t *testing.T) {
	c, err := read([]byte(`
cloudInstanceMapping: {hcloud: {cx22: {cpuModel: "no profile of that", cpuTdpWatts: 100, numCPUs: 2, totalMemory: 4096}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	p, kind, ok := node{
		labels: map[string]string{labelInstance: "cx22"}, providerID: "hcloud://1", cpus: 2, memory: 4 * gb,
	}.detect(c)
	if !ok || p.Idle != 12.6 || !strings.Contains(p.Source, "TDP") {
		t.Errorf("%+v %s", p, kind)
	}
}

func TestGPUClassesOfTheBundledCatalogue(t *testing.T) {
	p, kind, ok := node{
		labels: map[string]string{labelInstance: "g5.xlarge"}, providerID: "aws:///a/i", cpus: 4, memory: 16 * gb,
		gpus: 1,
	}.detect(Default())
	if !ok {
		t.Fatal(kind)
	}
	// 0.6 of 300 W is 160 of the 280 W above idle.
	if got := p.GPUClasses["inference"]; math.Abs(got-160./280) > 1e-4 || p.GPUClasses["training"] != 1 {
		t.Errorf("classes %v", p.GPUClasses)
	}
}

func TestReadRefuses(t *testing.T) {
	for text, wrong := range map[string]string{
		"cpuProfile: {}": `unknown field "cpuProfile"`,
		"cpuProfiles: {a: {idlePower: 1, maxPower: 2, numCore: 4}}":                "numCore",
		"cpuProfiles: {a: {idlePower: 3, maxPower: 2}}":                            "max power is 2 W",
		"cpuProfiles: {a: {idlePower: -1, maxPower: 2}}":                           "idle power is -1 W",
		"cpuProfiles: {a: {idlePower: .nan, maxPower: 2}}":                         "hardware profiles",
		"cpuProfiles: {a: {idlePower: 1, maxPower: 200000}}":                       "max power is 200000 W",
		"cpuProfiles: {a: {idlePower: 1, maxPower: 2, powerScaling: cubic}}":       "want linear or quadratic",
		"gpuProfiles: {a: {idlePower: 1, maxPower: 2, workloadTypes: {x: 60}}}":    "workloadTypes x is 60",
		"cloudInstanceMapping: {aws: {a: {numCPUs: 2}}}":                           "cpuModel is missing",
		"cloudInstanceMapping: {aws: {a: {cpuModel: b, numGPUs: 2}}}":              "without a gpuModel",
		"cloudInstanceMapping: {aws: {a: {cpuModel: b, numCPUs: 2, numCores: 1}}}": "want equal values",
		"defaultPUE: 0.9":                       "defaultPUE is 0.9",
		"defaultPUE: 1\ndefaultPUE: 2":          "already set",
		"kind: ConfigMap\ndata: {x.yaml: \"\"}": "has no key hardware-profiles.yaml",
	} {
		if _, err := read([]byte(text)); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: read() = %v, want %q", text, err, wrong)
		}
	}
}

func FuzzDetect(f *testing.F) {
	Default() // exclude the initialization from the cost of an input
	f.Add("m5.xlarge", "aws:///a/i", "Intel(R) Xeon(R) Gold 6148", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "1.2", "600",
		int64(4), int64(1<<34), int64(7))
	f.Fuzz(func(t *testing.T, instance, provider, cpu, gpu, pue, power string, cpus, memory, gpus int64) {
		defer memtest.Limit(t, 100*(len(instance)+len(provider)+len(cpu)+len(gpu)+len(pue)+len(power)))()
		n := node{
			labels: map[string]string{labelInstance: instance, labelNVIDIA + "product": gpu},
			annotations: map[string]string{
				annotationCPUModel: cpu, annotationPUE: pue, annotationGPUPUE: pue, annotationGPUPower: power,
			},
			providerID: provider, cpus: cpus, memory: memory, gpus: gpus,
		}
		p, kind, ok := n.detect(Default())
		if ok != (p != nil) || ok && (p.Validate() != nil || p.Name == "" || len(p.Name) > 63) {
			t.Fatalf("%+v %s", p, kind)
		}
	})
}

// The README and docs/how-to/hardware.md contain this number.
func TestNumberOfInstanceTypes(t *testing.T) {
	n := 0
	for _, types := range Default().Instances {
		n += len(types)
	}
	if n != 1876 {
		t.Errorf("got %d instance types: update the number in README.md and docs/how-to/hardware.md", n)
	}
}

// FuzzReadFiles decodes a knowledge base, a hardware catalogue, the power of a node, results and a PowerProfile.
func FuzzReadFiles(f *testing.F) {
	Default() // exclude the initialization from the cost of an input
	f.Add([]byte("c:\n- {nodeName: a-cpu, performanceRate: 2, powerConsumptionWatts: 90, idlePowerWatts: 50}\n"))
	f.Add([]byte("kind: ConfigMap\ndata:\n  profiles.yaml: \"c: [{nodeName: a}]\"\n" +
		"  hardware-profiles.yaml: \"defaultPUE: 2\"\n"))
	f.Add([]byte("cpuProfiles: {x: {idlePower: 1, maxPower: 2}}\ngpuProfiles: {g: {idlePower: 1, maxPower: 2}}\n" +
		"cloudInstanceMapping: {aws: {m5.large: {cpuModel: x, numCPUs: 2, gpuModel: g, numGPUs: 1}}}\n"))
	f.Add([]byte("idle:50,max:300"))
	f.Add([]byte("cpu,sockets,cores,memoryGB,idleWatts,fullWatts,date\nAMD EPYC 7763,2,128,256,110,450,2024-01\n"))
	f.Add([]byte(`{"metadata":{"name":"p"},"spec":{"curve":[{"utilisation":0,"watts":50},{"utilisation":1,"watts":90}],
		"gpuClasses":{"a":0.5},"pue":1.1,"sleepWatts":3,"benchmarks":[{"class":"c","rate":1}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		byClass, _, _ := ReadKnowledgeBase(text)
		for class, nodes := range byClass {
			for node, b := range nodes {
				if node == "" || !(b.Rate >= 0) || !(b.Idle >= 0 && b.Power >= b.Idle) {
					t.Fatalf("%q on %q: %+v", class, node, b)
				}
			}
		}
		if idle, full, err := ParseNodePower(string(text)); err == nil && !(idle >= 0 && idle <= full) {
			t.Fatalf("%v to %v W", idle, full)
		}
		if results, err := ReadResults(text); err == nil {
			if s := Default().Score(results); s.Unknown+s.Errors[0].Results != len(results) {
				t.Fatalf("%+v", s)
			} else if _, err := json.Marshal(s); err != nil {
				t.Fatal(err)
			}
		}
		if users, err := read(text); err == nil {
			large := map[string]string{labelInstance: "m5.large"}
			n := node{labels: large, providerID: "aws:///a/i", cpus: 2, memory: 1 << 33}
			if p, kind, ok := n.detect(users); ok && p.Validate() != nil {
				t.Fatalf("%+v %s", p, kind)
			}
		}
		var o v1alpha1.PowerProfile
		if json.Unmarshal(text, &o) != nil {
			return
		}
		if p, pue, err := FromPowerProfile(&o); err == nil {
			again, same, err := FromPowerProfile(ToPowerProfile(p, pue))
			if err != nil || same != pue || !reflect.DeepEqual(p, again) {
				t.Fatalf("round trip of %+v returned %+v, error %v", p, again, err)
			}
		}
	})
}
