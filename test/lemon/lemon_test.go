package lemon

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/kubenergy/kubenergy/mincost"
)

// TestEqualCost solves random instances of all kinds with both: the same are infeasible, and the others cost the same.
func TestEqualCost(t *testing.T) {
	instances := 300
	if os.Getenv("KUBENERGY_LONG") != "" {
		instances = 10_000
	}
	lemon := startReference(t)
	r := rand.New(rand.NewPCG(13, 1))
	feasible := 0
	for number := range instances {
		i := draw(r)
		if err := lemon.load(i, 1); err != nil {
			t.Fatal(err)
		}
		want, err := lemon.solve()
		if err != nil {
			t.Fatal(err)
		}
		n := i.network()
		got, err := mincost.NewSolver(n).Solve(nil)
		switch {
		case errors.Is(err, mincost.ErrInfeasible):
			if want.status != "infeasible" {
				t.Fatalf("instance %d is infeasible, LEMON says %s", number, want.status)
			}
			continue
		case err != nil:
			t.Fatalf("instance %d: %v", number, err)
		}
		feasible++
		if err := got.Certify(n); err != nil {
			t.Fatalf("instance %d: %v", number, err)
		}
		if want.status != "optimal" || got.Cost != want.cost {
			t.Fatalf("instance %d costs %d, LEMON says %s at %d", number, got.Cost, want.status, want.cost)
		}
	}
	if feasible < instances/2 || feasible > instances*99/100 {
		t.Errorf("%d of %d instances are feasible: they test little", feasible, instances)
	}
	t.Logf("%d instances cost the same, %d are infeasible for both", feasible, instances-feasible)
}

// draw returns an instance of any kind, small enough for thousands.
func draw(r *rand.Rand) *instance {
	switch r.IntN(5) {
	case 4:
		return placement(r, 1+r.IntN(100), 1+r.IntN(30), 0, 1).byEnergy(r)
	case 0:
		return placement(r, 1+r.IntN(60), 1+r.IntN(30), 0, 1+r.Int64N(1000))
	case 1:
		return placement(r, 1+r.IntN(200), 20+r.IntN(30), 8, 1+r.Int64N(1<<40))
	case 2:
		i, _, _ := shapes(r, 1+r.IntN(80), 1+r.IntN(5), 1+r.IntN(20))
		return i
	default:
		return general(r)
	}
}
