package workload

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// A group is a number of identical nodes.
type group struct {
	name    string
	count   int
	cores   int64
	memory  int64 // GiB
	profile string
}

var presets = map[string][]group{
	// The 50 machines of the ECSched experiment: 20 with 25 CPU and memory slots, 20 with 50, and 10 with 100. The
	// experiment does not specify the hardware. Each size is mapped to a server with a similar number of hardware
	// threads, the smallest to the oldest server, as in a fleet that has grown over time. The additional power of a
	// busy slot is then 7.6, 4.0 and 1.8 W, so it matters which machines are kept awake. All machines have the same
	// speed, because the trace has one duration per job.
	"ecsched50": threeSizes(20, 20, 10),
	// The same kinds in smaller and larger numbers.
	"ecsched40": threeSizes(16, 16, 8),
	"ecsched65": threeSizes(26, 26, 13),
	// A small heterogeneous fleet for the lab: a quarter of the machines are efficient, and the oldest are not the
	// smallest.
	"demo24": {
		{"edge", 8, 4, 16, "tx100-2012"},
		{"old", 6, 12, 48, "r610-2010"},
		{"mid", 4, 28, 112, "dl360-2018"},
		{"big", 6, 64, 256, "sr655-2021"},
	},
	// A single node of practically unlimited capacity with power proportional to its busy cores, for experiments in
	// which only the time of execution matters, e.g. Let's Wait Awhile and GAIA.
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

// The power of the preset "unlimited" is a watt per busy core. The size is arbitrary, because there is no other
// node.
const (
	unlimitedCores   = 1_000_000
	unlimitedProfile = "watt-per-core"
)

// Presets returns the sorted names of the presets of [Nodes].
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// presetNodes returns the nodes of a preset, all at one site. Their names start with numbers that are shuffled by
// the seed. Otherwise, a strategy that breaks ties by name could identify the efficient machines.
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

// replicate returns numbered copies of a node. The numbers have the same number of digits, so that the names sort
// in order.
func replicate(kind sched.Node, count int) []sched.Node {
	digits := len(strconv.Itoa(count - 1))
	nodes := make([]sched.Node, count)
	for i := range nodes {
		nodes[i] = kind
		nodes[i].Name = fmt.Sprintf("%s-%0*d", kind.Name, digits, i)
	}
	return nodes
}
