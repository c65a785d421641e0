package scenarios_test

import (
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// The pods of openb as one batch, as they come until they ask for so much of its GPUs: placed by prices, and one by
// one by what stock scores, by dot product, by fragmentation and by energy. Every placement is checked on empty
// nodes, device by device. The last of the loads are all the pods there are, which ask for 98 % of the GPUs.
func TestOpenB(t *testing.T) {
	all := openb(t, "openb_pod_list_default")
	if raced && !long {
		t.Skip("the batch is placed without the race detector, or with KUBENERGY_LONG=1")
	}
	t.Logf("%d nodes with %d GPUs, %d pods of %d shapes", len(all.nodes), all.gpus, len(all.pods), len(all.shapes))
	for _, sleeps := range []bool{false, true} {
		for _, c := range []struct {
			load float64
			gap  float64 // goal: 1 %
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

// compare places a batch in all ways, and holds the one by prices to a gap.
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
	t.Logf("%d pods that ask for %.1f GPUs, %.1f %% of all; %s; at least %.1f kW", len(c.pods), float64(asked)/device,
		100*float64(asked)/float64(c.gpus*device), nodes, bound/1000)
	t.Logf("| %-26s | %6s | %8s | %8s | %8s | %9s | %6s | %7s |", "placed by", "placed", "kW", "cost, kW", "gap, %",
		"GPUs left", "awake", "seconds")
	best := c.row(t, "prices", &p, bound, start)
	if got := float64(best.cost()/bound) - 1; got < 0 || got > gap {
		t.Errorf("a gap of %.3f %%, want at most %.3f %%", 100*got, 100*gap)
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
			t.Errorf("%s costs %.1f W, less than prices or than the bound", other.name, float64(r.cost()))
		}
	}
}

// row checks and prints one placement.
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
