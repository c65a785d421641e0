package scenarios_test

import (
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// TestOpenB places the pods of openb as one batch with prices, and one by one with the scores of kube-scheduler,
// dot product, fragmentation and energy. The batch contains the first pods until their requests exceed a fraction
// of the GPUs. The last load contains all pods, which request 98 % of the GPUs. Every placement is verified on
// empty nodes, device by device.
func TestOpenB(t *testing.T) {
	all := openb(t, "openb_pod_list_default")
	t.Logf("%d nodes with %d GPUs, %d pods with %d shapes", len(all.nodes), all.gpus, len(all.pods), len(all.shapes))
	for _, sleeps := range []bool{false, true} {
		for _, c := range []struct {
			load float64
			gap  float64 // the goal is 1 %
		}{{0.7, 0.01}, {0.9, 0.01}, {1, 0.05}} {
			if !long && (sleeps || c.load != 0.7) {
				continue
			}
			cut := all.until(c.load)
			cut.sleeps = sleeps
			cut.compare(t, all, c.gap)
		}
	}
}

// compare places a batch with all methods and checks the gap of the placement with prices.
func (c *openbCluster) compare(t *testing.T, all *openbCluster, gap float64) {
	t.Helper()
	asked := int64(0)
	for _, shape := range c.pods {
		asked += c.shapes[shape].gpu()
	}
	nodes := "empty nodes idle"
	if c.sleeps {
		nodes = "empty nodes are off"
	}
	start := time.Now()
	p, bound := c.byPrices(t)
	t.Logf("%d pods request %.1f GPUs, %.1f %% of all; %s; lower bound %.1f kW", len(c.pods), float64(asked)/device,
		100*float64(asked)/float64(c.gpus*device), nodes, bound/1000)
	t.Logf("| %-26s | %6s | %8s | %8s | %8s | %9s | %6s | %7s |", "placed by", "placed", "kW", "cost, kW", "gap, %",
		"GPUs free", "awake", "seconds")
	best := c.row(t, "prices", &p, bound, start)
	if got := float64(best.cost()/bound) - 1; got < 0 || got > gap {
		t.Errorf("the gap is %.3f %%, want 0 to %.3f %%", 100*got, 100*gap)
	}
	for _, other := range []struct {
		name string
		cost openbCost
	}{
		{"energy, one by one", c.energy()},
		{"stock scoring", c.stock(t)},
		{"dot product", c.dotProduct()},
		{"fragmentation", c.descent(all)},
	} {
		start := time.Now()
		p := c.oneByOne(other.cost)
		if r := c.row(t, other.name, &p, bound, start); r.cost() < bound || r.cost() < best.cost() {
			t.Errorf("%s costs %.1f W, less than with prices or than the bound", other.name, float64(r.cost()))
		}
	}
}

// row verifies a placement and logs its metrics.
func (c *openbCluster) row(t *testing.T, name string, p *openbPlacement, bound energy.Watts,
	start time.Time,
) openbResult {
	t.Helper()
	took := time.Since(start)
	r, err := c.verify(p)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Logf("| %-26s | %6d | %8.1f | %8.1f | %8.2f | %9.1f | %6d | %7.1f |",
		name, r.placed, r.watts/1000, r.cost()/1000, 100*float64(r.cost()/bound-1), r.unallocated, r.awake,
		took.Seconds())
	return r
}
