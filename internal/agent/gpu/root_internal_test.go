package gpu

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// TestBoardsInsideARootAreCountedOnce verifies that the energy of GPUs powered through the metered power supply is
// counted once: the energy recorded for both equals the counter of the power supply, regardless of delays, except
// for the energy of GPUs not yet subtracted at the end.
func TestBoardsInsideARootAreCountedOnce(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		wall := energy.Domain{Kind: energy.Wall, Name: "wall"}
		n := NewAttribution(energy.AttributorOptions{})
		var counted, shown, booked energy.Microjoules
		at, run, first := time.Second, uint32(0), energy.Microjoules(0)
		for step := range 300 {
			at += time.Duration(r.Int64N(int64(time.Second)))
			boards := energy.Microjoules(r.Int64N(300e6))
			counted += boards + energy.Microjoules(50e6+r.Int64N(100e6))
			root := []energy.Reading{{Domain: wall, At: at, Total: counted, Run: run}}
			n.TakeOut(root)
			if step == 0 {
				first = root[0].Total
			} else if root[0].Total < shown {
				t.Fatalf("seed %d: root decreased from %d to %d", seed, shown, root[0].Total)
			}
			shown = root[0].Total
			if r.IntN(5) > 0 { // GPUs may report late
				booked += boards
				n.Due += boards
			}
		}
		begun := booked - n.Due // subtracted so far
		if have, want := shown-first+begun, counted-first; have != want || n.Due < 0 {
			t.Fatalf("seed %d: recorded %d µJ, want %d, %d due", seed, have, want, n.Due)
		}
	}
	// A root that does not include the GPUs is left unchanged once this is certain: 12 s of 700 W exceed two
	// minutes of its 50 W.
	n := NewAttribution(energy.AttributorOptions{})
	plain := 0
	for second := range 100 {
		root := []energy.Reading{{
			Domain: energy.Domain{Kind: energy.Wall}, At: time.Duration(second) * time.Second,
			Total: energy.Microjoules(second) * 50e6,
		}}
		if n.TakeOut(root) {
			plain = second
		}
		if !n.outside {
			n.Due += 700e6
		}
		if n.outside && root[0].Total != energy.Microjoules(second-plain)*50e6 {
			t.Fatalf("root after %d s = %d µJ", second, root[0].Total)
		}
	}
	if plain == 0 || plain > 15 {
		t.Errorf("detected after %d s", plain)
	}
}

// TestARootThatWasAway verifies that the energy that GPUs used while the root meter was unavailable is not
// subtracted from later readings, and is not taken as evidence that the root does not include the GPUs.
func TestARootThatWasAway(t *testing.T) {
	n := NewAttribution(energy.AttributorOptions{})
	for second := range 2000 {
		n.Due += 300e6
		if second > 500 && second < 1200 {
			continue
		}
		total := energy.Microjoules(second) * 400e6
		root := []energy.Reading{{
			Domain: energy.Domain{Kind: energy.Wall}, At: time.Duration(second) * time.Second, Total: total,
		}}
		if second >= 1200 {
			root[0].Run = 1
		}
		if n.TakeOut(root) {
			t.Fatalf("after %d s: root reported as not including the GPUs", second)
		}
	}
	if n.Due > 300e6 {
		t.Errorf("Due = %v, want 0", n.Due)
	}
}
