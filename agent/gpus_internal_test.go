package agent

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/agent/gpu"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/energy/batch"
)

// A power supply that feeds boards counts what they use too: what is booked of both is what it counted, whatever comes
// late, but for what the boards are ahead at the end.
func TestBoardsInsideARootAreCountedOnce(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		wall := energy.Domain{Kind: energy.Wall, Name: "wall"}
		var n inner
		var counted, shown, booked energy.Microjoules
		at, run, first := time.Second, uint32(0), energy.Microjoules(0)
		for step := range 300 {
			at += time.Duration(r.Int64N(int64(time.Second)))
			boards := energy.Microjoules(r.Int64N(300e6))
			counted += boards + energy.Microjoules(50e6+r.Int64N(100e6))
			root := []energy.Reading{{Domain: wall, At: at, Total: counted, Run: run}}
			n.take(root)
			if step == 0 {
				first = root[0].Total
			} else if root[0].Total < shown {
				t.Fatalf("seed %d: what is left of the root fell from %d to %d", seed, shown, root[0].Total)
			}
			shown = root[0].Total
			if r.IntN(5) > 0 { // boards may tell late, and then of all
				booked += boards
				n.due += boards
			}
		}
		begun := booked - n.due // taken out
		if have, want := shown-first+begun, counted-first; have != want || n.due < 0 {
			t.Fatalf("seed %d: %d µJ are booked of %d, %d due", seed, have, want, n.due)
		}
	}
	// A root that does not feed the boards is left alone once that is plain: 12 s of 700 W are two minutes of its 50 W.
	var n inner
	plain := 0
	for second := range 100 {
		root := []energy.Reading{{
			Domain: energy.Domain{Kind: energy.Wall}, At: time.Duration(second) * time.Second,
			Total: energy.Microjoules(second) * 50e6,
		}}
		if n.take(root) {
			plain = second
		}
		if !n.outside {
			n.due += 700e6
		}
		if n.outside && root[0].Total != energy.Microjoules(second-plain)*50e6 {
			t.Fatalf("after %d s, %d µJ are left of the root", second, root[0].Total)
		}
	}
	if plain == 0 || plain > 15 {
		t.Errorf("that was plain after %d s", plain)
	}
}

// A page of metrics names pods as people do.
func TestPodNames(t *testing.T) {
	var p podNames
	p.set(map[string]batch.Names{"u1": {Namespace: "ml", Pod: "job", Containers: map[string]string{"c1": "train"}}})
	for _, c := range []struct {
		use  gpu.Use
		want string
	}{
		{gpu.Use{Namespace: "ml", Pod: "job", Container: "train"}, "pod/u1/c1"},
		{gpu.Use{Namespace: "ml", Pod: "job", Container: "new"}, "pod/u1"},
		{gpu.Use{Namespace: "ml", Pod: "other", PodUID: "u2"}, "pod/u2"},
		{gpu.Use{Namespace: "ml", Pod: "other", PodUID: "u/2/3"}, ""},
		{gpu.Use{Namespace: "ml", Pod: "other"}, ""},
	} {
		if have := p.of(&c.use); have != c.want {
			t.Errorf("%+v is %q, want %q", c.use, have, c.want)
		}
	}
}
