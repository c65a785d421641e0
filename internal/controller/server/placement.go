package server

import (
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// choose sets the node that the strategy would choose.
func (e *Expected) choose(p *kube.Placement, loaded []loadedNode) {
	var nodes []*sched.Node
	for i := range loaded {
		if node, _ := p.Consider(loaded[i].node, &loaded[i].Load); node != nil {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) == 0 {
		e.addNote("no node fits at the moment")
		return
	}
	ranked, opinion := p.Rank(nodes)
	if !opinion {
		e.addNote("the strategy has no preference without fresh signals or power profiles; the default scores decide")
		return
	}
	best := &ranked[0]
	e.Node, e.KWh, e.Grams = best.Node.Name, best.KWh, best.Grams
	if carbon := best.Node.Site.Carbon.Series; carbon != nil && carbon.Covers(p.Now, p.Now) {
		e.CarbonIntensity = new(carbon.At(p.Now))
	}
}

// addNote appends text to the note.
func (e *Expected) addNote(what string) {
	if e.Note != "" {
		e.Note += "; "
	}
	e.Note += what
}
