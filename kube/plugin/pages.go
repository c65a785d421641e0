package plugin

import "math/bits"

// page is where a node stands in a [nodeBook], in the state of a generation.
type page struct {
	generation int64
	node, kind int32
	taken      bool
}

// pages are found by generation. This is a map of one kind of key, that is asked hundreds of times in a cycle: half of what
// Go's own would take of it.
type pages struct {
	slots []page // a power of two; each page stands at its hash, or where the next is free
	used  int
}

// A quarter of the slots is taken at most, so that most pages stand at their hash.
const slotsPerPage = 4

func (p *pages) clear() {
	clear(p.slots)
	p.used = 0
}

// at returns where a generation's slot begins to be looked for. Generations follow each other; multiplied by 2⁶⁴ over the
// golden ratio they spread evenly.
func (p *pages) at(generation int64) int {
	const golden = 0x9e3779b97f4a7c15
	return int(uint64(generation) * golden >> (64 - bits.TrailingZeros(uint(len(p.slots)))))
}

// of returns the page of a generation, or nil.
func (p *pages) of(generation int64) *page {
	if p.used == 0 {
		return nil
	}
	for i := p.at(generation); p.slots[i].taken; i = (i + 1) & (len(p.slots) - 1) {
		if p.slots[i].generation == generation {
			return &p.slots[i]
		}
	}
	return nil
}

// add adds a page, of a generation that is not there.
func (p *pages) add(one page) {
	if slotsPerPage*(p.used+1) > len(p.slots) {
		before := p.slots
		p.slots = make([]page, max(64, 2*len(before)))
		for _, old := range before {
			if old.taken {
				p.put(old)
			}
		}
	}
	p.put(one)
	p.used++
}

func (p *pages) put(one page) {
	i := p.at(one.generation)
	for p.slots[i].taken {
		i = (i + 1) & (len(p.slots) - 1)
	}
	p.slots[i] = one
}
