package meter

import (
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Root is the root domain of a node: what its energy is, and which parts of it are known.
//
// It is chosen once, from what the meters cover when they are opened, in this order: the machine's own meters, by
// Wall, else Psys, else all Packages with their DRAM; what a host says of its guest; the agents that are asked over
// the network, by the same kinds; the model. Of an agent on the network that did not answer yet, the answer is waited
// for: the choice must not depend on which agent starts first.
//
// The choice stays for the life of the process. While the root cannot be read, the node is unmeasured; nothing else
// takes its place, for two meters do not cover the same, and a series that jumps between them says nothing. A better
// root that comes later, as a kernel module does, is chosen at the next start.
type Root struct {
	meters []Meter
	meter  Meter // nil: not chosen yet
	root   []energy.Domain
	parts  []energy.Domain
}

// NewRoot chooses, or waits to choose, among meters.
func NewRoot(meters []Meter) *Root {
	r := &Root{meters: meters}
	r.choose()
	return r
}

// Domains returns what was chosen; nothing yet while an answer is waited for.
func (r *Root) Domains() (root, parts []energy.Domain) { return r.root, r.parts }

// Source names the root domain and its meter, as "psys (rapl)". It is empty while nothing is chosen.
func (r *Root) Source() string {
	if r.meter == nil {
		return ""
	}
	name := r.root[0].Kind.String()
	if slices.ContainsFunc(r.root, func(d energy.Domain) bool { return d.Kind == energy.DRAM }) {
		name += "+" + energy.DRAM.String()
	}
	return name + " (" + r.meter.Name() + ")"
}

// Split appends the readings of the root and of its parts. A root of several domains is all there or not there: half
// of it is not what the node uses.
func (r *Root) Split(readings, root, parts []energy.Reading) (_, _ []energy.Reading) {
	if r.meter == nil {
		if r.choose(); r.meter == nil {
			return root, parts
		}
	}
	n := len(root)
	for _, d := range r.root {
		reading, ok := find(readings, d)
		if !ok {
			root = root[:n]
			break
		}
		root = append(root, reading)
	}
	for _, d := range r.parts {
		if reading, ok := find(readings, d); ok {
			parts = append(parts, reading)
		}
	}
	return root, parts
}

func (r *Root) choose() {
	others := func(m Meter) bool { return m.Name() != NameHwmon && m.Name() != NameRAPL }
	if r.chooseAmong(slices.DeleteFunc(slices.Clone(r.meters), others)) {
		return
	}
	for _, name := range []string{NameGuest, NameScaphandre, NameKepler, NameModel} {
		i := slices.IndexFunc(r.meters, func(m Meter) bool { return m.Name() == name })
		if i < 0 {
			continue
		}
		m := r.meters[i]
		if len(m.Domains()) == 0 { // it has not answered yet
			return
		}
		if r.chooseAmong([]Meter{m}) {
			return
		}
	}
}

// chooseAmong chooses among meters whose domains are parts of one another.
func (r *Root) chooseAmong(meters []Meter) bool {
	find := func(kinds ...energy.DomainKind) (found []energy.Domain, by Meter) {
		for _, kind := range kinds {
			for _, m := range meters {
				for _, d := range m.Domains() {
					if d.Kind == kind {
						found, by = append(found, d), m
					}
				}
			}
		}
		return found, by
	}
	packages, by := find(energy.Package, energy.DRAM)
	if p, _ := find(energy.Package); len(p) == 0 {
		packages = nil // memory alone is nothing
	}
	psys, byPsys := find(energy.Psys)
	if len(psys) > 1 {
		psys = nil // whether they overlap is unknown
	}
	wall, byWall := find(energy.Wall)
	other, byOther := find(energy.Guest, energy.Model)
	switch {
	case len(wall) > 0:
		r.root, r.parts, r.meter = wall, packages, byWall
		if len(packages) == 0 {
			r.parts = psys
		}
	case len(psys) > 0:
		r.root, r.parts, r.meter = psys, packages, byPsys
	case len(packages) > 0:
		r.root, r.meter = packages, by
	case len(other) > 0:
		r.root, r.meter = other, byOther
	default:
		return false
	}
	return true
}
