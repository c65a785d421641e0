package hardware

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// madeByHand returns a synthetic file in the format of another project.
func madeByHand(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestProfilesInAConfigMap(t *testing.T) {
	text := madeByHand(t, "profiles.yaml")
	c, err := read(text)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := unwrap(text, "hardware-profiles.yaml")
	if err != nil || len(inner) >= len(text) || len(c.CPUs) != 3 || len(c.GPUs) != 1 || len(c.Memory) != 1 {
		t.Fatalf("unexpected result: %d of %d bytes, %+v, error %v", len(inner), len(text), c, err)
	}
	if _, err := unwrap(text, "profiles.yaml"); err == nil ||
		!strings.Contains(err.Error(), "has hardware-profiles.yaml") {
		t.Errorf("unexpected error for a missing key: %v", err)
	}
	warned := strings.Join(c.Warnings(), "\n")
	for _, want := range []string{
		"cpuProfiles baseFrequencyGHz", "gpuProfiles baseFrequencyGHz", "memChannels",
		`aws made.unknown: cpuModel "No such CPU"`,
	} {
		if !strings.Contains(warned, want) {
			t.Errorf("missing warning about %s in:\n%s", want, warned)
		}
	}
	for _, k := range []struct {
		what       string
		node       node
		idle, full energy.Watts
	}{
		{
			// 4 of 16 threads of a socket of 10 to 110 W, and 16 GB at 0.1 to 0.3 W with a base of 1 W.
			"an instance has a fraction of the socket",
			node{
				labels: map[string]string{labelInstance: "made.large"}, providerID: "aws:///a/i", cpus: 4,
				memory: 15 * gb,
			},
			2.5 + 1 + 1.6, 27.5 + 1 + 4.8,
		},
		{
			"numCores of an instance is the number of its CPUs",
			node{
				labels: map[string]string{labelInstance: "made.cores"}, providerID: "aws:///a/i", cpus: 8,
				memory: 31 * gb,
			},
			5 + 1 + 3.2, 55 + 1 + 9.6,
		},
	} {
		p, kind, ok := k.node.detect(c)
		if !ok {
			t.Errorf("%s: %s", k.what, kind)
			continue
		}
		if !near(p.Idle, k.idle) || !near(p.Max, k.full) || p.Exponent != 2 {
			t.Errorf("%s: got %v to %v W, exponent %v, want %v to %v W", k.what, p.Idle, p.Max, p.Exponent, k.idle, k.full)
		}
	}
}

func TestMachinesOfTheirOwn(t *testing.T) {
	c, err := merge(Default(), readMade(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		what       string
		node       node
		idle, full energy.Watts // of the sockets
	}{
		{
			"two whole sockets",
			node{annotations: map[string]string{annotationCPUModel: "Made CPU 8"}, cpus: 32, memory: gb},
			20, 220,
		},
		{
			"a socket without hyper-threading",
			node{annotations: map[string]string{annotationCPUModel: "Made CPU 8"}, cpus: 8, memory: gb},
			10, 110,
		},
		{
			"threads according to the profile",
			node{annotations: map[string]string{annotationCPUModel: "Made CPU without threads"}, cpus: 2, memory: gb},
			3, 9,
		},
		{
			"ARM has one thread a core",
			node{annotations: map[string]string{annotationCPUModel: "Ampere Made 4"}, cpus: 4, memory: gb},
			2, 10,
		},
		{
			// Half of the clock, squared, is a quarter of the range from idle to full load.
			"a capped clock",
			node{annotations: map[string]string{
				annotationCPUModel: "Made CPU 8", annotationCPUMaxGHz: "2",
			}, cpus: 16, memory: gb},
			10, 35,
		},
	} {
		p, kind, ok := k.node.detect(c)
		if !ok {
			t.Errorf("%s: %s", k.what, kind)
			continue
		}
		// A GB of memory of an unspecified type.
		if !near(p.Idle, k.idle+0.15) || !near(p.Max, k.full+0.39) {
			t.Errorf("%s: got %v to %v W, want %v to %v W for the sockets", k.what, p.Idle, p.Max, k.idle, k.full)
		}
	}
}

func readMade(t *testing.T) *Catalog {
	t.Helper()
	c, err := read(madeByHand(t, "profiles.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestKnowledgeBaseInAConfigMap(t *testing.T) {
	byClass, warnings, err := ReadKnowledgeBase(madeByHand(t, "knowledge.yaml"))
	if err != nil || len(warnings) > 0 || len(byClass) != 4 {
		t.Fatal(byClass, warnings, err)
	}
	board := energy.Benchmark{Rate: 10, Power: 20, Idle: 5}
	if got := byClass["training"]["board"]; got != board {
		t.Errorf("benchmark of training = %+v, want %+v", got, board)
	}
	if got := byClass[OnGPU("training")]["board"]; got.Rate != 200 || got.Power != 120 {
		t.Errorf("unexpected benchmark of training on the GPU: %+v", got)
	}
}
