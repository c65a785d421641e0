package chart

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"

	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// TestSchedulerProfiles decodes the rendered configuration like kube-scheduler. Every profile must enable both
// KubEnergy plugins, and each mode must use the expected scheduler names and Lease.
func TestSchedulerProfiles(t *testing.T) {
	ours := []string{"kubenergy", "compute-gardener-scheduler", "my-energy-scheduler"}
	for mode, want := range map[string]struct {
		lease string
		names []string
	}{
		"second":  {"kubenergy-system/kubenergy-scheduler", ours},
		"default": {"kube-system/kube-scheduler", append([]string{"default-scheduler"}, ours...)},
	} {
		t.Run(mode, func(t *testing.T) {
			config := schedulerConfig(t, "--set", "scheduler.mode="+mode)
			if lease := config.LeaderElection.ResourceNamespace + "/" +
				config.LeaderElection.ResourceName; lease != want.lease || !config.LeaderElection.LeaderElect {
				t.Errorf("unexpected leader election: Lease %s, enabled %v", lease, config.LeaderElection.LeaderElect)
			}
			var names []string
			for _, p := range config.Profiles {
				names = append(names, p.SchedulerName)
				for _, name := range []string{place.EnergyName, place.HoldName} {
					if !slices.ContainsFunc(p.Plugins.MultiPoint.Enabled, func(e kubescheduler.Plugin) bool {
						return e.Name == name
					}) {
						t.Errorf("profile %s does not enable plugin %s", p.SchedulerName, name)
					}
				}
				// Plugins listed here run before those enabled by multiPoint, including the default preemption. See
				// test/batch.
				if enabled := p.Plugins.PostFilter.Enabled; len(enabled) == 0 || enabled[0].Name != place.EnergyName {
					t.Errorf("profile %s: %s is not the first postFilter plugin", p.SchedulerName, place.EnergyName)
				}
				if sort := p.Plugins.QueueSort.Enabled; len(sort) != 1 || sort[0].Name != place.SortName {
					t.Errorf("profile %s: the queue is not sorted by %s: %v", p.SchedulerName, place.SortName, sort)
				}
				all := p.PercentageOfNodesToScore != nil && *p.PercentageOfNodesToScore == 100
				if isOurs := slices.Contains(ours, p.SchedulerName); all != isOurs {
					t.Errorf("profile %s: unexpected percentageOfNodesToScore, scores all nodes: %v",
						p.SchedulerName, all)
				}
			}
			if !slices.Equal(names, want.names) {
				t.Errorf("scheduler names = %q, want %q", names, want.names)
			}
		})
	}
}

// TestLimitsOfReleases verifies that release limits are passed to the scheduler if and only if they are set.
func TestLimitsOfReleases(t *testing.T) {
	const rate, ramp = "--kubenergy-release-rate=2.5", "--kubenergy-max-ramp=500"
	for _, set := range []bool{false, true} {
		var args []string
		if set {
			args = []string{"--set", "hold.releaseRate=2.5,hold.maxRamp=500"}
		}
		documents, err := Template(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for i := range documents {
			if documents[i].Name() != "Deployment/kubenergy-scheduler" {
				continue
			}
			found = true
			text := documents[i].Text
			if got := strings.Contains(text, rate) && strings.Contains(text, ramp); got != set {
				t.Errorf("limits set: %v, passed to the scheduler: %v", set, got)
			}
		}
		if !found {
			t.Error("no scheduler Deployment rendered")
		}
	}
}

func schedulerConfig(t *testing.T, args ...string) *kubescheduler.KubeSchedulerConfiguration {
	t.Helper()
	documents, err := Template(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range documents {
		if documents[i].Name() != "ConfigMap/kubenergy-scheduler" {
			continue
		}
		text, _, _ := unstructured.NestedString(documents[i].Object.Object, "data", "scheduler.yaml")
		object, gvk, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		config := object.(*kubescheduler.KubeSchedulerConfiguration)
		config.APIVersion = gvk.GroupVersion().String()
		if err := validation.ValidateKubeSchedulerConfiguration(config); err != nil {
			t.Fatal(err)
		}
		return config
	}
	t.Fatal("no scheduler configuration rendered")
	return nil
}

// TestPoliciesWithoutTheirKind verifies that policies fail open if the kind of their parameters is missing, for
// example while CRDs are deleted. Kubelets must still be able to update their nodes, and users must be able to
// create Jobs.
func TestPoliciesWithoutTheirKind(t *testing.T) {
	documents, err := Template(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	policies := 0
	for i := range documents {
		spec, _, _ := unstructured.NestedMap(documents[i].Object.Object, "spec")
		kind, ok := spec["paramKind"].(map[string]any)
		if !ok || kind["kind"] == "ConfigMap" {
			continue
		}
		if policies++; spec["failurePolicy"] != "Ignore" {
			t.Errorf("failurePolicy of %s is %v, want Ignore", documents[i].Name(), spec["failurePolicy"])
		}
	}
	if policies == 0 {
		t.Error("no policy with parameters rendered")
	}
}
