package meter

import (
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Root is the root domain of a node, which determines the node's energy, and its known parts.
//
// The candidates are, in this order: the machine's own meters (Wall, Psys, all Packages with their DRAM, all
// Packages), the counter shared by the host of a virtual machine, agents scraped over the network (by the same
// kinds), and the model. If another agent has not responded yet, the first selection is delayed for a limited time,
// so that it does not depend on the order in which agents start.
//
// The root is the best candidate with plausible readings. Meters return only values within the range of their kind,
// and the counter of a machine or a package is not used before it advances. A root that cannot be read for a while is
// replaced by the best candidate that can be read, and a better candidate that can be read for a longer time replaces
// the root. While no candidate can be read, the node is unmeasured. A virtual machine with a counter of its host does
// not fall back to other sources, because its energy is part of that of the host.
type Root struct {
	meters   []Meter
	stale    time.Duration // time to wait for the first response of another agent and the first advance of a counter
	deadline time.Duration // of the first selection, since boot

	candidates []candidate // in order of preference
	domains    int         // number of domains of all meters when candidates was built
	awaited    bool        // the best candidate may be that of an agent that has not responded yet
	current    candidate   // empty until the first selection

	proven  bool             // the readings of current have advanced
	present time.Duration    // time of the last usable readings of current, or of its selection
	missed  int              // number of calls without usable readings since then
	unread  time.Duration    // last time at which no better candidate could be read
	earlier []energy.Reading // readings of all meters at the last advance of the root
}

// candidate is a possible root.
type candidate struct {
	meter       Meter
	root, parts []energy.Domain
}

const (
	rootPatience = 30 * time.Second // until an unreadable root is replaced; shorter than that of the attributor
	rootReturn   = 2 * time.Minute  // until a better candidate is used again
)

// NewRoot returns the root domain of a node with the meters opened with c. The best candidate is selected, unless an
// agent has not responded yet.
func NewRoot(c *Config, meters []Meter) *Root {
	r := &Root{meters: meters, stale: max(c.stale(), 3*c.ScrapeInterval)}
	r.deadline = c.Now() + r.stale
	r.list(c.Now())
	return r
}

// Domains returns the selected domains. They are empty until the selection is made.
func (r *Root) Domains() (root, parts []energy.Domain) { return r.current.root, r.current.parts }

// Source returns the root domain and its meter, e.g. "psys (rapl)". It is empty until the selection is made.
func (r *Root) Source() string {
	c := &r.current
	if c.meter == nil {
		return ""
	}
	name := c.root[0].Kind.String()
	if slices.ContainsFunc(c.root, func(d energy.Domain) bool { return d.Kind == energy.DRAM }) {
		name += "+" + energy.DRAM.String()
	}
	return name + " (" + c.meter.Name() + ")"
}

// Split sets the readings of the root and of its parts in o. If the reading of one of the root's domains is missing
// or not plausible, there are none of the root. If Split replaces the root, it also sets the earlier readings, those
// at the last advance of the previous root.
func (r *Root) Split(now time.Duration, readings []energy.Reading, o *energy.Observation) {
	o.Root, o.Parts, o.EarlierRoot, o.EarlierParts = o.Root[:0], o.Parts[:0], o.EarlierRoot[:0], o.EarlierParts[:0]
	r.list(now)
	if r.current.meter == nil {
		return
	}
	if c := r.successor(now, readings); c != nil {
		r.choose(c, now)
		o.EarlierRoot, o.EarlierParts = c.split(r.earlier, o.EarlierRoot, o.EarlierParts)
	}
	o.Root, o.Parts = r.current.split(readings, o.Root, o.Parts)
	at := r.current.compare(readings, r.earlier)
	if r.proven = r.proven || at == moved; at == absent || at == still && !r.proven {
		o.Root = o.Root[:0]
		r.missed++
		return
	}
	r.present, r.missed = now, 0
	if last, ok := find(r.earlier, o.Root[0].Domain); !ok || o.Root[0].At > last.At {
		r.earlier = append(r.earlier[:0], readings...)
	}
}

// successor returns the candidate that replaces the root, or nil.
func (r *Root) successor(now time.Duration, readings []energy.Reading) *candidate {
	current := func(c candidate) bool { return slices.Equal(c.root, r.current.root) }
	next := slices.IndexFunc(r.candidates, func(c candidate) bool {
		return !current(c) && c.compare(readings, nil) != absent
	})
	if next < 0 || next > slices.IndexFunc(r.candidates, current) {
		r.unread = now
	}
	replace, late := now-r.unread >= rootReturn, now-r.present
	switch r.current.compare(readings, r.earlier) {
	case absent:
		replace = replace || r.missed >= probes-1 && (!r.proven || late >= rootPatience)
	case still:
		replace = replace || !r.proven && late >= r.stale
	}
	if next < 0 || !replace {
		return nil
	}
	return &r.candidates[next]
}

// choose makes c the root.
func (r *Root) choose(c *candidate, now time.Duration) {
	r.current, r.proven, r.present, r.missed, r.unread = *c, false, now, 0, now
}

// list updates the candidates if another agent has responded, and makes the first selection.
func (r *Root) list(now time.Duration) {
	domains := 0
	for _, m := range r.meters {
		domains += len(m.Domains())
	}
	if domains != r.domains {
		r.domains, r.awaited = domains, false
		r.candidates = candidates(slices.DeleteFunc(slices.Clone(r.meters), func(m Meter) bool {
			return m.Name() != NameHwmon && m.Name() != NameRAPL
		}))
		for _, name := range []string{NameGuest, NameScaphandre, NameKepler, NameModel} {
			i := slices.IndexFunc(r.meters, func(m Meter) bool { return m.Name() == name })
			if i < 0 {
				continue
			}
			r.awaited = r.awaited || len(r.candidates) == 0 && len(r.meters[i].Domains()) == 0 // no response yet
			r.candidates = append(r.candidates, candidates(r.meters[i:i+1])...)
			if name == NameGuest {
				break
			}
		}
	}
	if r.current.meter == nil && len(r.candidates) > 0 && (!r.awaited || now >= r.deadline) {
		r.choose(&r.candidates[0], now)
	}
}

// candidates returns the possible roots among meters with nested domains.
func candidates(meters []Meter) (all []candidate) {
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
	packages, byPackages := find(energy.Package)
	processors, by := find(energy.Package, energy.DRAM)
	if len(packages) == 0 {
		processors = nil // DRAM alone does not cover the machine
	}
	psys, byPsys := find(energy.Psys)
	if len(psys) > 1 {
		psys = nil // they may overlap
	}
	parts := processors
	if len(processors) == 0 {
		parts = psys
	}
	wall, byWall := find(energy.Wall)
	other, byOther := find(energy.Guest, energy.Model)
	all = []candidate{
		{byWall, wall, parts}, {byPsys, psys, processors}, {by, processors, nil}, {byPackages, packages, nil},
		{byOther, other, nil},
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return len(c.root) == 0 })
}

// How the readings of a candidate differ from earlier ones.
const (
	moved  = iota
	begun  // there are no earlier readings of the same run
	still  // a counter that must advance has not advanced
	absent // not all domains can be read
)

func (c *candidate) compare(readings, earlier []energy.Reading) int {
	difference := moved
	for _, d := range c.root {
		now, ok := find(readings, d)
		if !ok {
			return absent
		}
		before, known := find(earlier, d)
		switch {
		case !known || now.Run != before.Run:
			difference = max(difference, begun)
		case mustMove(d.Kind) && now.Total <= before.Total:
			difference = max(difference, still)
		}
	}
	return difference
}

// split appends the readings of the root and its parts, but none of the root if one is missing.
func (c *candidate) split(readings, root, parts []energy.Reading) (_, _ []energy.Reading) {
	if c.compare(readings, nil) != absent {
		for _, d := range c.root {
			reading, _ := find(readings, d)
			root = append(root, reading)
		}
	}
	for _, d := range c.parts {
		if reading, ok := find(readings, d); ok {
			parts = append(parts, reading)
		}
	}
	return root, parts
}
