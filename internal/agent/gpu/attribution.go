package gpu

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// holdsAll is the idle weight of a consumer that occupies a whole GPU.
const holdsAll = 1000

// Attribution attributes the energy of GPUs with one attributor per GPU. It is not safe for concurrent use. The
// exported fields are persisted.
type Attribution struct {
	Boards map[string]*boardAttribution // by the name of the counter's domain
	Due    energy.Microjoules           // recorded energy of GPUs that is not yet subtracted from the root, see TakeOut

	options     energy.AttributorOptions
	attribution energy.Attribution
	root        map[energy.Domain]counted
	outside     bool
}

// boardAttribution is the state of one GPU.
type boardAttribution struct {
	At    time.Duration            // time of the last reading, since boot
	Busy  time.Duration            // multiprocessor time since the first reading
	Used  map[string]time.Duration // multiprocessor time by consumer
	State []byte                   // state of the attributor, set only while persisting

	attributor *energy.Attributor
}

// NewAttribution returns an Attribution without GPUs.
func NewAttribution(o energy.AttributorOptions) *Attribution {
	o.Prior = nil // the prior describes the node, not a GPU
	return &Attribution{options: o, Boards: map[string]*boardAttribution{}, root: map[energy.Domain]counted{}}
}

// Observe adds the readings of GPUs and includes the energy of completed intervals in the node's attribution. The
// function who returns the consumer of a use, or "" if it is unknown; the energy of unknown consumers is attributed
// to "unknown".
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
			continue // no new reading
		}
		if k.attributor.Observe(k.count(board, who), &b.attribution) {
			into.IncludeGPU(&b.attribution)
		}
	}
	b.Due += into.Measured - before
}

// count adds the multiprocessor time since the previous reading and returns the observation for the attributor.
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

// fraction clamps v to [0, 1]. It returns 0 for NaN.
func fraction(v float64) float64 {
	if !(v > 0) {
		return 0
	}
	return min(v, 1)
}

// Readings appends the latest reading of each GPU, from which meters resume after RestoreState.
func (b *Attribution) Readings(into []energy.Reading) []energy.Reading {
	for _, k := range b.Boards {
		into = k.attributor.Readings(into)
	}
	return into
}

// AppendState appends the state of all GPUs.
func (b *Attribution) AppendState(to []byte) []byte {
	for _, k := range b.Boards {
		k.State = k.attributor.AppendState(k.State[:0])
	}
	state, err := json.Marshal(b)
	if err != nil {
		panic(err) // never fails for these types
	}
	return append(to, state...)
}

// RestoreState restores the state written by AppendState. The energy that GPUs used while no process was running is
// then attributed according to the usage at the first reading.
func (b *Attribution) RestoreState(state []byte) error {
	var kept Attribution
	if err := json.Unmarshal(state, &kept); err != nil {
		return fmt.Errorf("restoring GPU state: %w", err)
	}
	for name, k := range kept.Boards {
		if k == nil || k.Used == nil {
			return fmt.Errorf("restoring state of GPU %q: invalid data", name)
		}
		k.attributor = energy.NewAttributor(b.options)
		if err := k.attributor.RestoreState(k.State); err != nil {
			return fmt.Errorf("restoring state of GPU %q: %w", name, err)
		}
	}
	b.Boards, b.Due = kept.Boards, max(kept.Due, 0)
	return nil
}
