package meter

import (
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Root is the root domain of a node, which determines the node's energy, and its known parts.
//
// It is selected once from the domains of the opened meters, in this order: the machine's own meters (Wall, else
// Psys, else all Packages with their DRAM), the counter shared by the host of a virtual machine, agents scraped
// over the network (by the same kinds), and the model. If an agent has not responded yet, the selection is delayed,
// so that it does not depend on the order in which agents start.
//
// The selection does not change during the lifetime of the process. While the root cannot be read, the node is
// unmeasured. There is no fallback, because different meters cover different parts of the machine and a series that
// switches between them would be meaningless. A better root that becomes available later, for example after loading
// a kernel module, is used after a restart.
type Root struct {
	meters []Meter
	meter  Meter // nil if not selected yet
	root   []energy.Domain
	parts  []energy.Domain
}

// NewRoot selects the root domain, unless a meter has not responded yet.
func NewRoot(meters []Meter) *Root {
	r := &Root{meters: meters}
	r.choose()
	return r
}

// Domains returns the selected domains. They are empty until the selection is made.
func (r *Root) Domains() (root, parts []energy.Domain) { return r.root, r.parts }

// Source returns the root domain and its meter, e.g. "psys (rapl)". It is empty until the selection is made.
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

// Split appends the readings of the root and of its parts. If the reading of one of the root's domains is missing,
// no reading of the root is appended.
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
		if len(m.Domains()) == 0 { // no response yet
			return
		}
		if r.chooseAmong([]Meter{m}) {
			return
		}
	}
}

// chooseAmong selects the root among meters with nested domains, and reports whether there is one.
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
		packages = nil // DRAM alone does not cover the machine
	}
	psys, byPsys := find(energy.Psys)
	if len(psys) > 1 {
		psys = nil // they may overlap
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
