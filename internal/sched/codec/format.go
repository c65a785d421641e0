package codec

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// recordVersion is that of the written form. A decision stays replayable for as long as its version can be read.
const recordVersion = 1

// The written form of a Snapshot. Nodes are in the order of their names; sites and profiles stand once and are
// referred to by their position.
type (
	writtenSnapshot struct {
		Version  int               `json:"version"`
		Now      time.Time         `json:"now"`
		Last     string            `json:"last,omitempty"`
		Policy   sched.Policy      `json:"policy"`
		Sites    []writtenSite     `json:"sites,omitempty"`
		Offered  []int             `json:"offered,omitempty"` // Snapshot.Sites, in their order
		Profiles []energy.Profile  `json:"profiles,omitempty"`
		Runtimes []writtenRuntimes `json:"runtimes,omitempty"`
		Nodes    []writtenNode     `json:"nodes,omitempty"`
		Queue    []writtenJob      `json:"queue"`
	}

	writtenSite struct {
		Name   string         `json:"name"`
		Zone   grid.Zone      `json:"zone,omitempty"`
		PUE    float64        `json:"pue,omitempty"`
		Weight int64          `json:"weight,omitempty"`
		Carbon *writtenSignal `json:"carbon,omitempty"`
		Price  *writtenSignal `json:"price,omitempty"`
	}

	writtenSignal struct {
		Start   time.Time      `json:"start"`
		Step    time.Duration  `json:"step"`
		Values  []float64      `json:"values"`
		Before  float64        `json:"before,omitempty"` // the sum of values that are left out, see [grid.Resume]
		AsOf    time.Time      `json:"asOf,omitzero"`
		Quality energy.Quality `json:"quality"`
		MaxAge  time.Duration  `json:"maxAge,omitempty"`
	}

	writtenNode struct {
		Name       string `json:"name"`
		Site       int    `json:"site"`    // -1: none
		Profile    int    `json:"profile"` // -1: none
		sched.Node        // fields written unchanged
		// fields in another form
		Benchmarks  map[string]writtenBenchmark `json:"benchmarks,omitempty"`
		Live        *energy.Watts               `json:"live,omitempty"`
		Provisional energy.Watts                `json:"provisional,omitempty"`
	}

	writtenBenchmark struct { // energy.Benchmark, whose own form is for files and stricter than strategies are
		Rate  float64      `json:"rate"`
		Power energy.Watts `json:"watts"`
		Idle  energy.Watts `json:"idleWatts"`
	}

	writtenJob struct {
		sched.Job // fields written unchanged
		// fields in another form
		Openings    [][2]time.Time `json:"openings,omitempty"` // from, to
		Performance *float64       `json:"performanceWeight,omitempty"`
		Expected    *energy.Watts  `json:"expected,omitempty"`
		Runtimes    *int           `json:"runtimes,omitempty"`
	}

	writtenRuntimes struct {
		Step     time.Duration `json:"step"`
		Survival []byte        `json:"survival"` // little-endian float64, since no digit may be lost and they are many
	}
)
