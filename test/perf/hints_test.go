package perf

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// listDefaulting contains two profiles that support signatures of pods. The default constraints of
// PodTopologySpread depend on Services and prevent signatures.
const listDefaulting = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: stock
  pluginConfig: &pluginConfig
  - name: PodTopologySpread
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: PodTopologySpreadArgs
      defaultingType: List
- schedulerName: ours
  pluginConfig: *pluginConfig
  plugins:
    multiPoint:
      enabled:
      - name: KubEnergy
        weight: 300
      - name: KubEnergyHold
`

// hints contains values of the kube-scheduler metric scheduler_batch_attempts_total: the number of pods placed with
// a hint of the previous pod, and the number of all pods.
type hints struct {
	Used float64 `json:"used"`
	All  float64 `json:"all"`
}

func (h hints) share() float64 { return h.Used / h.All }

func (h hints) plus(other hints) hints { return hints{h.Used + other.Used, h.All + other.All} }

func hintsIn(families families, profile string) (h hints) {
	for _, m := range metricsNamed(families, "scheduler_batch_attempts_total") {
		if label(m, "profile") != profile {
			continue
		}
		if h.All += m.GetCounter().GetValue(); label(m, "result") == metrics.BatchAttemptHintUsed {
			h.Used += m.GetCounter().GetValue()
		}
	}
	return h
}

// TestHintsAreUsed verifies that kube-scheduler reuses the scores of one pod for the next one as often with the
// KubEnergy plugins as without them if each node only has capacity for one pod. It tests both unmarked pods and
// pods that the plugins score.
func TestHintsAreUsed(t *testing.T) {
	const nodes, pods = 400, 300
	for name, marks := range map[string]map[string]string{"unmarked": nil, "scored": signed} {
		t.Run(name, func(t *testing.T) {
			shares := map[string]float64{}
			for _, profile := range []string{"stock", "ours"} {
				l := newLoop(t, listDefaulting, ours(t), nodes, pods)
				before, err := legacyregistry.DefaultGatherer.Gather()
				if err != nil {
					t.Fatal(err)
				}
				l.run(t, pods, func(name string) *v1.Pod { return newPod(name, profile, "3", marks) })
				after, err := legacyregistry.DefaultGatherer.Gather()
				if err != nil {
					t.Fatal(err)
				}
				previous, current := hintsIn(before, profile), hintsIn(after, profile)
				h := hints{current.Used - previous.Used, current.All - previous.All}
				if shares[profile] = h.share(); h.Used == 0 {
					t.Fatalf("profile %s: no hint was used: %+v", profile, h)
				}
				keep(t, fmt.Sprintf("hints-%s-%s", name, profile), h)
			}
			t.Logf("fraction of pods with hints: %.3f without plugins, %.3f with plugins", shares["stock"],
				shares["ours"])
			if shares["ours"] < 0.95*shares["stock"] {
				t.Error("fraction of pods with hints must be at least 0.95 of that without plugins")
			}
		})
	}
}
