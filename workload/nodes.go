package workload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// The columns of a table of nodes, found by name. A node names a profile of [Profiles], or says what it draws.
const (
	columnName     = "name"
	columnSite     = "site"
	columnSpeed    = "speed"
	columnCount    = "count" // so many nodes, named name-0 and on
	columnProfile  = "profile"
	columnIdle     = "idle_watts"
	columnMax      = "max_watts"
	columnExponent = "exponent"
	columnSleep    = "sleep_watts" // default: idle_watts, so it never sleeps
	columnWakeUp   = "wakeup_joules"
	columnGPUIdle  = "gpu_idle_watts" // of each GPU
	columnGPUMax   = "gpu_max_watts"
)

var (
	nodeColumns  = []string{columnName, columnCPU}
	powerColumns = []string{
		columnIdle, columnMax, columnExponent, columnSleep, columnWakeUp, columnGPUIdle, columnGPUMax,
	}
	otherNodeColumns = append([]string{columnSite, columnMemory, columnGPU, columnSpeed, columnCount, columnProfile},
		powerColumns...)
)

const maxNodes = 1 << 20

// unlimitedMemory is that of nodes whose file says nothing of memory: a pebibyte.
const unlimitedMemory = 1 << 50

// Nodes returns empty nodes from a preset or a file. A node stands at the site that its row names, and at the first of
// sites if it names none; without sites there is nowhere for nodes to stand.
func Nodes(source string, sites ...*sched.Site) ([]sched.Node, error) {
	if len(sites) == 0 {
		return nil, errors.New("nodes need a site")
	}
	if _, ok := presets[source]; ok {
		return presetNodes(source, sites[0])
	}
	text, err := grid.ReadFile(source)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; the presets are %s", err, strings.Join(Presets(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("reading nodes: %w", err)
	}
	if isOpenBNodes(text) {
		nodes, err := readOpenBNodes(source, text, sites[0])
		if err == nil && len(nodes) == 0 {
			err = &grid.RowError{File: source, Err: errors.New("the file has no nodes")}
		}
		return nodes, err
	}
	return readNodes(source, text, sites)
}

// isOpenBNodes tells the list of nodes of openb by the first column of its header, which no list of ours has.
func isOpenBNodes(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			first, _, _ := bytes.Cut(line, []byte{','})
			return string(bytes.TrimSpace(first)) == openbNode
		}
	}
	return false
}

func readNodes(file string, text []byte, sites []*sched.Site) ([]sched.Node, error) {
	in, err := newRows(file, text, nodeColumns, otherNodeColumns)
	if err != nil {
		return nil, err
	}
	var nodes []sched.Node
	seen, known := ids{}, profiles{}
	for {
		err := in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		group, field, err := nodeGroup(in, sites, known)
		if err != nil {
			return nil, in.wrap(field, err)
		}
		for i := range group {
			if err := seen.add(group[i].Name); err != nil {
				return nil, in.wrap(columnName, err)
			}
		}
		if nodes = append(nodes, group...); len(nodes) > maxNodes {
			return nil, in.wrap(columnCount, fmt.Errorf("more than %d nodes", maxNodes))
		}
	}
	if len(nodes) == 0 {
		return nil, &grid.RowError{File: file, Err: errors.New("the file has no nodes")}
	}
	return nodes, nil
}

// nodeGroup parses the present row into one node or several. With an error it names the field that is wrong.
func nodeGroup(in *rows, sites []*sched.Site, known profiles) (nodes []sched.Node, field string, err error) {
	n := sched.Node{Name: strings.Clone(in.text(columnName)), Speed: 1}
	if n.Site, err = findSite(in.text(columnSite), sites); err != nil {
		return nil, columnSite, err
	}
	if n.Capacity, field, err = request(in); err != nil {
		return nil, field, err
	}
	if n.Capacity.MilliCPU == 0 {
		return nil, columnCPU, fmt.Errorf("%q must be more than 0", in.text(columnCPU))
	}
	if in.text(columnMemory) == "" {
		n.Capacity.Memory = unlimitedMemory
	}
	n.Free = n.Capacity
	if in.text(columnSpeed) != "" {
		if n.Speed, err = notNegative(in.text(columnSpeed)); err == nil && n.Speed == 0 {
			err = fmt.Errorf("%q must be more than 0", in.text(columnSpeed))
		}
		if err != nil {
			return nil, columnSpeed, err
		}
	}
	if n.Profile, field, err = nodeProfile(in, n.Name, known); err != nil {
		return nil, field, err
	}
	if n.Capacity.GPU > 0 && n.Profile.GPUMax == 0 {
		return nil, columnGPU, fmt.Errorf("the node has GPUs: want %s and %s", columnGPUIdle, columnGPUMax)
	}
	count, err := nodeCount(in.text(columnCount))
	switch {
	case err != nil:
		return nil, columnCount, err
	case n.Name == "":
		return nil, columnName, errors.New("is empty")
	case count == 1:
		return []sched.Node{n}, "", nil
	}
	return replicate(n, count), "", nil
}

func findSite(name string, sites []*sched.Site) (*sched.Site, error) {
	if name == "" {
		return sites[0], nil
	}
	var names []string
	for _, s := range sites {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("unknown site %q: have %s", name, strings.Join(names, ", "))
}

func nodeCount(text string) (int, error) {
	if text == "" {
		return 1, nil
	}
	v, err := whole(text)
	if err == nil && v == 0 {
		err = fmt.Errorf("%q must be more than 0", text)
	}
	return int(v), err
}

// nodeProfile returns the profile that a row names, or makes one from its figures. Its quality is estimated, because
// the row does not say where the figures come from.
func nodeProfile(in *rows, node string, known profiles) (p *energy.Profile, field string, err error) {
	if name := in.text(columnProfile); name != "" {
		for _, column := range powerColumns {
			if in.text(column) != "" {
				return nil, column, fmt.Errorf("stands beside the profile %q: give one or the other", name)
			}
		}
		p, err = known.named(name)
		return p, columnProfile, err
	}
	p = &energy.Profile{Name: node, Quality: energy.Estimated, Source: "node file"}
	if in.text(columnMax) == "" || in.text(columnIdle) == "" {
		return nil, columnProfile, fmt.Errorf("is empty: want the name of a profile, or %s and %s", columnIdle,
			columnMax)
	}
	for _, f := range []struct {
		column string
		set    func(v float64)
	}{
		{columnIdle, func(v float64) { p.Idle = energy.Watts(v); p.Sleep = p.Idle }},
		{columnMax, func(v float64) { p.Max = energy.Watts(v) }},
		{columnExponent, func(v float64) { p.Exponent = v }},
		{columnSleep, func(v float64) { p.Sleep = energy.Watts(v) }},
		{columnWakeUp, func(v float64) { p.WakeUp = energy.Joules(v) }},
		{columnGPUIdle, func(v float64) { p.GPUIdle = energy.Watts(v) }},
		{columnGPUMax, func(v float64) { p.GPUMax = energy.Watts(v) }},
	} {
		text := in.text(f.column)
		if text == "" {
			continue
		}
		v, err := notNegative(text)
		if err != nil {
			return nil, f.column, err
		}
		f.set(v)
	}
	if err := p.Validate(); err != nil {
		return nil, "", err
	}
	return p, "", nil
}
