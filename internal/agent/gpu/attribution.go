package gpu

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// holdsAll is the weight in idle energy of who holds a whole board.
const holdsAll = 1000

// Attribution divides the energy of boards, each by an attributor of its own. It is for one goroutine. A later process
// goes on from the exported fields.
type Attribution struct {
	Boards map[string]*boardAttribution // by the name of the counter's domain
	Due    energy.Microjoules           // booked of boards, and not taken out of the root yet: see TakeOut

	options     energy.AttributorOptions
	attribution energy.Attribution
	root        map[energy.Domain]counted
	outside     bool
}

// A boardAttribution is what is known of one board.
type boardAttribution struct {
	At    time.Duration            // of the last reading
	Busy  time.Duration            // multiprocessor time since the first reading
	Used  map[string]time.Duration // of it, by consumer
	State []byte                   // the attributor's, in what is kept

	attributor *energy.Attributor
}

// NewAttribution returns an Attribution that knows no boards.
func NewAttribution(o energy.AttributorOptions) *Attribution {
	o.Prior = nil // a node's
	return &Attribution{options: o, Boards: map[string]*boardAttribution{}, root: map[energy.Domain]counted{}}
}

// Observe takes what was read of boards and adds what that completes to a node's attribution. Who returns the consumer
// of a use; "": it is not known, and then nor is who used what of that part, as far as it did.
func (b *Attribution) Observe(boards []Board, who func(*Use) string, into *energy.Attribution) {
	before := into.Measured
	for i := range boards {
		board := &boards[i]
		name := board.Reading.Domain.Name
		k := b.Boards[name]
		switch {
		case k == nil:
			k = &boardAttribution{At: board.At, Used: map[string]time.Duration{},
				attributor: energy.NewAttributor(b.options)}
			b.Boards[name] = k
		case board.At <= k.At:
			continue // nothing is new
		}
		if k.attributor.Observe(k.count(board, who), &b.attribution) {
			into.IncludeGPU(&b.attribution)
		}
	}
	b.Due += into.Measured - before
}

// count adds up multiprocessor time since the reading before.
func (k *boardAttribution) count(board *Board, who func(*Use) string) *energy.Observation {
	passed := board.At - k.At
	k.At = board.At
	held := map[string]float64{}
	total := time.Duration(0)
	for i := range board.Parts {
		p := &board.Parts[i]
		shares := p.shares(who)
		for id, share := range shares {
			used := time.Duration(fraction(share) * fraction(p.SMs) * float64(passed))
			k.Used[id] += used
			total += used
			held[id] += fraction(p.SMs) / float64(len(shares))
		}
	}
	k.Busy += max(total, time.Duration(fraction(board.Busy())*float64(passed)))
	o := &energy.Observation{
		At: board.At, CPUs: 1, Busy: max(k.Busy, 1), Root: []energy.Reading{board.Reading}, Usage: []energy.Usage{},
	}
	for _, id := range slices.Sorted(maps.Keys(k.Used)) {
		share, holds := held[id]
		u := energy.Usage{ID: id, CPU: k.Used[id], Weight: uint64(share*holdsAll + 0.5)}
		if holds {
			o.Usage = append(o.Usage, u)
		} else {
			o.Ended = append(o.Ended, u)
			delete(k.Used, id)
		}
	}
	return o
}

// fraction bounds what is a share: NaN is none.
func fraction(v float64) float64 {
	if !(v > 0) {
		return 0
	}
	return min(v, 1)
}

// Readings appends the latest reading of each board, for meters to go on from after RestoreState.
func (b *Attribution) Readings(into []energy.Reading) []energy.Reading {
	for _, k := range b.Boards {
		into = k.attributor.Readings(into)
	}
	return into
}

// AppendState appends what is known of all boards.
func (b *Attribution) AppendState(to []byte) []byte {
	for _, k := range b.Boards {
		k.State = k.attributor.AppendState(k.State[:0])
	}
	state, err := json.Marshal(b)
	if err != nil {
		panic(err) // times, texts and bytes can be written
	}
	return append(to, state...)
}

// RestoreState takes over what AppendState wrote. What the boards used while no process ran is then divided as the
// first reading says that they are used.
func (b *Attribution) RestoreState(state []byte) error {
	var kept Attribution
	if err := json.Unmarshal(state, &kept); err != nil {
		return fmt.Errorf("restoring what GPUs used: %w", err)
	}
	for name, k := range kept.Boards {
		if k == nil || k.Used == nil {
			return fmt.Errorf("restoring what the GPU %q used: it is damaged", name)
		}
		k.attributor = energy.NewAttributor(b.options)
		if err := k.attributor.RestoreState(k.State); err != nil {
			return fmt.Errorf("restoring what the GPU %q used: %w", name, err)
		}
	}
	b.Boards, b.Due = kept.Boards, max(kept.Due, 0)
	return nil
}
