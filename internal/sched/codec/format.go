package codec

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// recordVersion is the version of the encoded form. Decisions can be replayed as long as their version can be
// decoded.
const recordVersion = 1

// The encoded form of a Snapshot. Nodes are sorted by name. Sites and profiles are stored once and referenced by
// position.
type (
	writtenSnapshot struct {
		Version  int               `json:"version"`
		Now      time.Time         `json:"now"`
		Last     string            `json:"last,omitempty"`
		Policy   sched.Policy      `json:"policy"`
		Sites    []writtenSite     `json:"sites,omitempty"`
		Offered  []int             `json:"offered,omitempty"` // positions of Snapshot.Sites, in their order
		Profiles []energy.Profile  `json:"profiles,omitempty"`
		Runtimes []writtenRuntimes `json:"runtimes,omitempty"`
		Nodes    []writtenNode     `json:"nodes,omitempty"`
		Queue    []writtenJob      `json:"queue"`
		Ahead    []sched.Demand    `json:"ahead,omitempty"`
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
		Before  float64        `json:"before,omitempty"` // sum of the omitted earlier values, see [grid.Resume]
		AsOf    time.Time      `json:"asOf,omitzero"`
		Quality energy.Quality `json:"quality"`
		MaxAge  time.Duration  `json:"maxAge,omitempty"`
	}

	writtenNode struct {
		Name       string `json:"name"`
		Site       int    `json:"site"`    // -1 if the node has no site
		Profile    int    `json:"profile"` // -1 if the node has no profile
		sched.Node        // fields with the same encoding
		// Fields with a different encoding.
		Benchmarks  map[string]writtenBenchmark `json:"benchmarks,omitempty"`
		Live        *energy.Watts               `json:"live,omitempty"`
		Provisional energy.Watts                `json:"provisional,omitempty"`
	}

	writtenBenchmark struct { // energy.Benchmark without its own, stricter file format
		Rate  float64      `json:"rate"`
		Power energy.Watts `json:"watts"`
		Idle  energy.Watts `json:"idleWatts"`
	}

	writtenJob struct {
		sched.Job // fields with the same encoding
		// Fields with a different encoding.
		Openings    [][2]time.Time `json:"openings,omitempty"` // pairs of start and end
		Performance *float64       `json:"performanceWeight,omitempty"`
		Expected    *energy.Watts  `json:"expected,omitempty"`
		Runtimes    *int           `json:"runtimes,omitempty"`
	}

	writtenRuntimes struct {
		Step     time.Duration `json:"step"`
		Survival []byte        `json:"survival"` // little-endian float64, which is lossless and compact
	}
)
