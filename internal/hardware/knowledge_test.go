package hardware

import (
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/energy"
)

func TestHybridKnowledgeBase(t *testing.T) {
	byClass, warnings, err := ReadKnowledgeBase(shared(t, "power/hybrid_thesis_knowledge_base.yaml"))
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	if len(byClass) != 6 {
		t.Errorf("got %d classes, want three, each with and without GPU", len(byClass))
	}
	for _, c := range []struct {
		class, node string
		want        energy.Benchmark
	}{
		{"training", "tvpc", energy.Benchmark{Rate: 68.39, Power: 136.89, Idle: 50.06}},
		{OnGPU("training"), "tvpc", energy.Benchmark{Rate: 1715.98, Power: 226.72, Idle: 50.06}},
		{"training", "tvpc-gpu", energy.Benchmark{Rate: 1715.98, Power: 226.72, Idle: 50.06}}, // exact name
		{"inference", "dgoh-wyze", energy.Benchmark{Rate: 7742.88, Power: 10.77, Idle: 2.75}},
		{"sequential", "rpi", energy.Benchmark{Rate: 71.96, Power: 2.80, Idle: 2.32}},
	} {
		if got := byClass[c.class][c.node]; got != c.want {
			t.Errorf("benchmark %s of %s = %+v, want %+v", c.class, c.node, got, c.want)
		}
	}
	if b, ok := byClass[OnGPU("training")]["rpi"]; ok {
		t.Errorf("unexpected benchmark of a node without a GPU entry: %+v", b)
	}
	for _, stranger := range []string{"tv", "wyze", "rpi2", "tvpc-", ""} {
		if b, ok := byClass["training"][stranger]; ok {
			t.Errorf("unexpected benchmark of %q: %+v", stranger, b)
		}
	}
}

// The hybrid scheduler uses the entry of rpi2 for rpi.
func TestKnowledgeIsOfTheVeryNode(t *testing.T) {
	byClass, warnings, err := ReadKnowledgeBase([]byte(`
training:
  - {nodeName: rpi2-cpu, performanceRate: 9, powerConsumptionWatts: 5, idlePowerWatts: 2}
  - {nodeName: node10, performanceRate: 1, powerConsumptionWatts: 5, idlePowerWatts: 2}
  - {nodeName: node10-cpu, performanceRate: 2, powerConsumptionWatts: 5, idlePowerWatts: 2}
  - {nodeName: node10, performanceRate: 3, powerConsumptionWatts: 5, idlePowerWatts: 2}
  - {nodeName: "", performanceRate: 3, powerConsumptionWatts: 5, idlePowerWatts: 2}
  - {nodeName: hot, performanceRate: 3, powerConsumptionWatts: 5, idlePowerWatts: 20}
  - {nodeName: "-cpu", performanceRate: 3, powerConsumptionWatts: 5, idlePowerWatts: 2}
`))
	if err != nil {
		t.Fatal(err)
	}
	training := byClass["training"]
	for _, stranger := range []string{"rpi", "node1", "hot", ""} {
		if b, ok := training[stranger]; ok {
			t.Errorf("unexpected benchmark of %q: %+v", stranger, b)
		}
	}
	if training["rpi2"].Rate != 9 || training["node10"].Rate != 1 || training["node10-cpu"].Rate != 2 {
		t.Error(training)
	}
	all := strings.Join(warnings, "\n")
	for _, want := range []string{`"node10" is duplicate`, "nodeName is missing", `"hot": max power is 5 W`} {
		if !strings.Contains(all, want) {
			t.Errorf("missing warning %q in:\n%s", want, all)
		}
	}
	if _, _, err := ReadKnowledgeBase([]byte("training: 5")); err == nil {
		t.Error("decoding a number as a list succeeded")
	}
}
