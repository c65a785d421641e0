package workload

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// The columns of a table of nodes, identified by name. A node has the name of a profile, or the parameters of its
// own.
const (
	columnName     = "name"
	columnSite     = "site"
	columnSpeed    = "speed"
	columnCount    = "count" // number of nodes, named name-0, name-1, …
	columnProfile  = "profile"
	columnIdle     = "idle_watts"
	columnMax      = "max_watts"
	columnExponent = "exponent"
	columnSleep    = "sleep_watts" // defaults to idle_watts, i.e. the node never sleeps
	columnWakeUp   = "wakeup_joules"
	columnBoot     = "boot_seconds"   // defaults to 0, i.e. the node wakes up immediately
	columnGPUIdle  = "gpu_idle_watts" // of each GPU
	columnGPUMax   = "gpu_max_watts"
)

var (
	nodeColumns  = []string{columnName, columnCPU}
	powerColumns = []string{
		columnIdle, columnMax, columnExponent, columnSleep, columnWakeUp, columnBoot, columnGPUIdle, columnGPUMax,
	}
	otherNodeColumns = append([]string{columnSite, columnMemory, columnGPU, columnSpeed, columnCount, columnProfile},
		powerColumns...)
)

const maxNodes = 1 << 20

// unlimitedMemory is the memory of nodes without a memory value in their file: a pebibyte.
const unlimitedMemory = 1 << 50

// Nodes returns empty nodes from a preset or from a file. The seed shuffles the names of the nodes of a preset. A
// node belongs to the site in its row, or to the first of sites if its row has none. At least one site is required.
func Nodes(source string, seed uint64, sites ...*sched.Site) ([]sched.Node, error) {
	if len(sites) == 0 {
		return nil, errors.New("want at least one site for the nodes")
	}
	if _, ok := presets[source]; ok {
		return presetNodes(source, seed, sites[0])
	}
	text, err := grid.ReadFile(source)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; the presets are %s", err, strings.Join(Presets(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("reading nodes: %w", err)
	}
	if _, columns := firstLine(text); len(columns) > 0 && columns[0] == openbNode { // our own format has no such column
		return readNodes(source, text, []string{openbNode, openbMilliCPU, openbMemory, openbGPU, openbModel}, nil,
			openbNodes(sites[0]))
	}
	known := profiles{}
	return readNodes(source, text, nodeColumns, otherNodeColumns,
		func(row *rows) []sched.Node { return nodeGroup(row, sites, known) })
}

// readNodes reads a list of nodes. The first of the required columns contains the names. A row is one node or a
// group of nodes.
func readNodes(file string, text []byte, required, optional []string, group func(*rows) []sched.Node,
) ([]sched.Node, error) {
	row, err := newRows(file, text, required, optional, false)
	if err != nil {
		return nil, err
	}
	var nodes []sched.Node
	seen := ids{}
	err = row.each(func() {
		some := group(row)
		for i := range some {
			row.refuse(required[0], seen.add(some[i].Name))
		}
		if nodes = append(nodes, some...); len(nodes) > maxNodes {
			row.refuse(columnCount, fmt.Errorf("more than %d nodes", maxNodes))
		}
	})
	if err == nil && len(nodes) == 0 {
		err = &grid.RowError{File: file, Err: errors.New("the file has no nodes")}
	}
	if err != nil {
		return nil, err
	}
	return nodes, nil
}

// nodeGroup returns the nodes of the current row.
func nodeGroup(row *rows, sites []*sched.Site, known profiles) []sched.Node {
	site := func(name string) (*sched.Site, error) { return findSite(name, sites) }
	n := sched.Node{
		Name: strings.Clone(row.text(columnName)), Site: given(row, columnSite, sites[0], site),
		Capacity: request(row, positive(cores)), Speed: given(row, columnSpeed, 1, positive(notNegative)),
	}
	if row.text(columnMemory) == "" {
		n.Capacity.Memory = unlimitedMemory
	}
	n.Free = n.Capacity
	n.Profile = nodeProfile(row, n.Name, known)
	if n.Capacity.GPU > 0 && n.Profile != nil && n.Profile.GPUMax == 0 {
		row.refuse(columnGPU, fmt.Errorf("the node has GPUs: want %s and %s", columnGPUIdle, columnGPUMax))
	}
	count := given(row, columnCount, 1, positive(whole))
	if n.Name == "" {
		row.refuse(columnName, errors.New("is empty"))
	}
	if count == 1 {
		return []sched.Node{n}
	}
	return replicate(n, int(count))
}

func findSite(name string, sites []*sched.Site) (*sched.Site, error) {
	var names []string
	for _, s := range sites {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("unknown site %q: have %s", name, strings.Join(names, ", "))
}

// nodeProfile returns the profile named in a row, or a profile with the parameters in the row. Its quality is
// estimated, because the source of the parameters is unknown.
func nodeProfile(row *rows, node string, known profiles) *energy.Profile {
	if name := row.text(columnProfile); name != "" {
		for _, column := range powerColumns {
			if row.text(column) != "" {
				row.refuse(column, fmt.Errorf("cannot be combined with the profile %q: want one or the other", name))
			}
		}
		return parsed(row, columnProfile, known.named)
	}
	if row.text(columnMax) == "" || row.text(columnIdle) == "" {
		row.refuse(columnProfile, fmt.Errorf("is empty: want the name of a profile, or %s and %s", columnIdle,
			columnMax))
	}
	amount := func(column string, otherwise float64) float64 { return given(row, column, otherwise, notNegative) }
	idle := amount(columnIdle, 0)
	p := &energy.Profile{
		Name: node, Quality: energy.Estimated, Source: "node file", Idle: energy.Watts(idle),
		Max: energy.Watts(amount(columnMax, 0)), Exponent: amount(columnExponent, 0),
		Sleep: energy.Watts(amount(columnSleep, idle)), WakeUp: energy.Joules(amount(columnWakeUp, 0)),
		BootSeconds: amount(columnBoot, 0), GPUIdle: energy.Watts(amount(columnGPUIdle, 0)),
		GPUMax: energy.Watts(amount(columnGPUMax, 0)),
	}
	row.refuse("", p.Validate())
	return p
}
