package workload

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// A group is so many nodes of one kind.
type group struct {
	name    string
	count   int
	cores   int64
	memory  int64 // GiB
	profile string
}

var presets = map[string][]group{
	// The 50 machines of the ECSched experiment: 20 of 25 CPU and memory slots, 20 of 50, 10 of 100. The experiment
	// names no hardware. Each size gets a server of about as many hardware threads, the smallest ones being the
	// oldest, as in a fleet that grew: a busy slot then adds 7.6, 4.0 and 1.8 W, and it matters which machines are
	// kept awake. All run at the same speed, since the trace gives one duration for all.
	"ecsched50": threeSizes(20, 20, 10),
	// The same kinds, fewer and more of them.
	"ecsched40": threeSizes(16, 16, 8),
	"ecsched65": threeSizes(26, 26, 13),
	// A small mixed fleet for the lab: the efficient machines are a quarter, and the oldest are not the smallest.
	"demo24": {
		{"edge", 8, 4, 16, "tx100-2012"},
		{"old", 6, 12, 48, "r610-2010"},
		{"mid", 4, 28, 112, "dl360-2018"},
		{"big", 6, 64, 256, "sr655-2021"},
	},
	// One node with room for everything, whose power is in proportion to its busy cores: for experiments in which
	// only when a job runs counts, as those of Let's Wait Awhile and GAIA.
	"unlimited": {
		{"unlimited", 1, unlimitedCores, unlimitedMemory >> 30, unlimitedProfile},
	},
}

func threeSizes(small, medium, large int) []group {
	return []group{
		{"small", small, 25, 25, "r620-2012"},
		{"medium", medium, 50, 50, "dl360-2018"},
		{"large", large, 100, 100, "sr655-2021"},
	}
}

// The power of the preset "unlimited": a watt per core and nothing else. With no other node to compare with, its size
// is of no consequence.
const (
	unlimitedCores   = 1_000_000
	unlimitedProfile = "watt-per-core"
)

// Presets lists the names that [Nodes] knows, sorted.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// presetNodes makes the nodes of a preset, all at one site. Their names begin with numbers that the seed shuffles: were
// they sorted by kind, a strategy that breaks ties by name would know which machines are efficient.
func presetNodes(name string, seed uint64, site *sched.Site) ([]sched.Node, error) {
	var nodes []sched.Node
	known := profiles{}
	for _, g := range presets[name] {
		profile, err := known.named(g.profile)
		if err != nil {
			return nil, fmt.Errorf("preset %s: %w", name, err)
		}
		capacity := sched.Resources{MilliCPU: g.cores * 1000, Memory: g.memory << 30}
		kind := sched.Node{Name: g.name, Site: site, Capacity: capacity, Free: capacity, Profile: profile, Speed: 1}
		nodes = append(nodes, slices.Repeat([]sched.Node{kind}, g.count)...)
	}
	digits := len(strconv.Itoa(len(nodes) - 1))
	for i, number := range rand.New(rand.NewPCG(seed, uint64(len(nodes)))).Perm(len(nodes)) {
		nodes[i].Name = fmt.Sprintf("n%0*d-%s", digits, number, nodes[i].Name)
	}
	return nodes, nil
}

// replicate numbers the copies of a node with equally many digits, so that their names sort in order.
func replicate(kind sched.Node, count int) []sched.Node {
	digits := len(strconv.Itoa(count - 1))
	nodes := make([]sched.Node, count)
	for i := range nodes {
		nodes[i] = kind
		nodes[i].Name = fmt.Sprintf("%s-%0*d", kind.Name, digits, i)
	}
	return nodes
}
