package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/test/kit"
)

// TestOpenData checks that instances of the open data are reproducible, that their jobs fit, and that the halves have
// no grid or trace in common.
func TestOpenData(t *testing.T) {
	dir := filepath.Join(kit.Root, "..", "shared", "data")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("missing data directory: %v", err)
	}
	halves := map[string]string{}
	for _, half := range []string{"tuning", "test"} {
		all, err := ReadSources(dir, half)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range append(all.grids, all.traces...) {
			if other := halves[s.name]; other != "" && other != half {
				t.Errorf("%s belongs to both halves", s.name)
			}
			halves[s.name] = half
		}
		for id := range 8 {
			in, err := all.Draw(1, id)
			if err != nil {
				t.Fatal(err)
			}
			again, err := all.Draw(1, id)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(in.Scenario.Jobs, again.Scenario.Jobs); diff != "" {
				t.Errorf("instance %d of the half %s differs when it is drawn again:\n%s", id, half, diff)
			}
			for i := range in.Scenario.Jobs {
				j := &in.Scenario.Jobs[i]
				fits := false
				for k := range in.Scenario.Nodes {
					fits = fits || j.Fits(&in.Scenario.Nodes[k])
				}
				if !fits || j.Submitted.Before(in.Start) || !j.Submitted.Before(in.Until()) {
					t.Fatalf("instance %d of the half %s has an invalid job: %+v", id, half, j)
				}
			}
		}
	}
}
