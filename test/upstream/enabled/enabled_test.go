package enabled

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// TestAsShipped verifies that the plugins are configured as in the released profile, except for the scope.
func TestAsShipped(t *testing.T) {
	weights := map[string]int32{}
	for _, p := range Everywhere() {
		weights[p.Name] = -1
		if p.Weight != nil {
			weights[p.Name] = *p.Weight
		}
	}
	if diff := cmp.Diff(map[string]int32{place.EnergyName: 300, place.HoldName: -1}, weights); diff != "" {
		t.Errorf("enabled, from\n%s\n%s", deploy.DefaultSchedulerConfig, diff)
	}
	for mode, want := range map[Mode]place.Scope{Marked: place.Marked, Unknown: place.All, Scored: place.All} {
		obj, err := args(mode)
		if err != nil {
			t.Fatal(err)
		}
		got := place.DefaultArgs() // overridden by the mode
		if err := json.Unmarshal(obj.(*runtime.Unknown).Raw, &got); err != nil {
			t.Fatal(err)
		}
		if got.Scope != want || got.Validate() != nil || got.Strategy != "carbon" {
			t.Errorf("mode %s: unexpected args %+v, validation error %v", mode, got, got.Validate())
		}
	}
}

// TestKnowledge verifies that only modes with data have power profiles and sites and that upstream pods are never
// in scope without a mark.
func TestKnowledge(t *testing.T) {
	for _, mode := range Modes {
		view, err := knowledge(mode)
		if err != nil {
			t.Fatal(err)
		}
		if _, known := view().Node(&v1.Node{}, sched.Resources{}, sched.Resources{}, 0); known != (mode != Unknown) {
			t.Errorf("mode %s: node has data: %v", mode, known)
		}
		if sites := len(view().Sites()); (sites > 0) != (mode != Unknown) {
			t.Errorf("mode %s: unexpected number of sites: %d", mode, sites)
		}
		if !view().Settled() || view().Concerns(&v1.Pod{}) {
			t.Errorf("mode %s: settled %v, want true; unmarked pod in scope %v, want false", mode, view().Settled(),
				view().Concerns(&v1.Pod{}))
		}
	}
}

func TestCountsAreWrittenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counts")
	if got, err := ReadCounts(path); err != nil || got != (Counts{}) {
		t.Errorf("ReadCounts() without a file = %+v, %v", got, err)
	}
	t.Setenv(CountsVariable, path)
	for range 11 { // increases the number of digits
		count(func(c *Counts) { c.Asked++; c.Cycles += 2 })
	}
	count(func(c *Counts) { c.Scored++ })
	got, err := ReadCounts(path)
	if want := (Counts{Asked: 11, Cycles: 22, Scored: 1}); err != nil || got != want {
		t.Errorf("ReadCounts() = %+v, %v, want %+v", got, err, want)
	}
}
