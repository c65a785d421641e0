package gpu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/energy/codec"
)

// maxBoards is more than a node has: MIG instances are parts of boards.
const maxBoards = 64

// holdsAll is the weight in idle energy of who holds a whole board.
const holdsAll = 1000

// Books divide the energy of boards, each by an attributor of its own, and are for one goroutine.
type Books struct {
	options energy.AttributorOptions
	boards  map[string]*book // by the name of the counter's domain

	board energy.Attribution
}

// A book is what is known of one board.
type book struct {
	attributor *energy.Attributor
	at         time.Duration // of the last reading; 0: there was none
	busy       time.Duration
	usage      map[string]*energy.Usage // multiprocessor time by consumer, since the book was opened
	listed     []energy.Usage
	ended      []energy.Usage
}

// NewBooks returns books of no boards.
func NewBooks(o energy.AttributorOptions) *Books {
	o.Prior = nil // a node's
	return &Books{options: o, boards: map[string]*book{}}
}

// Observe takes what was read of boards and adds what that completes to a node's attribution. Who returns the consumer
// of a use; "": it is not known, and then nor is who used what of that part, as far as it did.
func (b *Books) Observe(boards []Board, readings []energy.Reading, who func(*Use) string, into *energy.Attribution) {
	for i := range boards {
		board := &boards[i]
		at := slices.IndexFunc(readings, func(r energy.Reading) bool { return r.Domain == board.Domain() })
		if at < 0 {
			continue
		}
		k := b.boards[board.Domain().Name]
		if k == nil {
			if len(b.boards) == maxBoards {
				continue
			}
			k = b.open(board.Domain().Name)
		}
		if board.At <= k.at {
			continue
		}
		k.count(board, who)
		o := energy.Observation{
			At: board.At, CPUs: 1, Busy: max(k.busy, 1), Root: readings[at : at+1], Usage: k.listed, Ended: k.ended,
		}
		if k.attributor.Observe(&o, &b.board) {
			into.IncludeGPU(&b.board)
		}
	}
}

func (b *Books) open(name string) *book {
	k := &book{attributor: energy.NewAttributor(b.options), usage: map[string]*energy.Usage{}}
	b.boards[name] = k
	return k
}

// count adds up multiprocessor time since the reading before.
func (k *book) count(board *Board, who func(*Use) string) {
	passed := board.At - k.at
	if k.at == 0 {
		passed = 0
	}
	k.at = board.At
	held := map[string]float64{}
	total := time.Duration(0)
	for i := range board.Parts {
		p := &board.Parts[i]
		shares := p.shares(who)
		for id, share := range shares {
			u := k.usage[id]
			if u == nil {
				u = &energy.Usage{ID: id}
				k.usage[id] = u
			}
			used := time.Duration(fraction(share) * fraction(p.SMs) * float64(passed))
			u.CPU += used
			total += used
			held[id] += fraction(p.SMs) / float64(len(shares))
		}
	}
	k.busy += max(total, time.Duration(fraction(board.Busy())*float64(passed)))
	k.listed, k.ended = []energy.Usage{}, nil
	for _, id := range slices.Sorted(maps.Keys(k.usage)) {
		u := k.usage[id]
		if share, holds := held[id]; holds {
			u.Weight = uint64(share*holdsAll + 0.5)
			k.listed = append(k.listed, *u)
		} else {
			k.ended = append(k.ended, *u)
			delete(k.usage, id)
		}
	}
}

// shares returns who holds a part, and how much of its time each used.
func (p *Part) shares(who func(*Use) string) map[string]float64 {
	shares := map[string]float64{}
	unknown := false
	for i := range p.Uses {
		if id := who(&p.Uses[i]); id == "" {
			unknown = true
		} else {
			shares[id] += p.Uses[i].SM
		}
	}
	for id := range shares {
		switch {
		case p.Told:
		case len(shares) == 1 && !unknown:
			shares[id] = p.Busy
		default:
			shares[id] = 0
		}
	}
	return shares
}

// fraction bounds what is a share: NaN is none.
func fraction(v float64) float64 {
	if !(v > 0) {
		return 0
	}
	return min(v, 1)
}

// Readings appends the latest reading of each board, for meters to go on from after RestoreState.
func (b *Books) Readings(into []energy.Reading) []energy.Reading {
	for _, name := range slices.Sorted(maps.Keys(b.boards)) {
		into = b.boards[name].attributor.Readings(into)
	}
	return into
}

// AppendState appends what is known of all boards.
func (b *Books) AppendState(to []byte) []byte {
	c := codec.Writer(to)
	names := slices.Sorted(maps.Keys(b.boards))
	for i := range codec.Elements(&c, &names, leastBook) {
		k := b.boards[names[i]]
		c.Text(&names[i])
		_ = k.code(&c) // writing does not fail
	}
	return c.Data()
}

// The least bytes that an element takes.
const (
	leastBook  = 5
	leastUsage = 2
)

var errState = errors.New("it is damaged, or of another version")

// RestoreState takes over what AppendState wrote. What the boards used while no process ran is then divided as the
// first reading says that they are used.
func (b *Books) RestoreState(state []byte) error {
	c := codec.Reader(state)
	var names []string
	restored := NewBooks(b.options)
	for i := range codec.Elements(&c, &names, leastBook) {
		c.Text(&names[i])
		if err := restored.open(names[i]).code(&c); err != nil {
			return fmt.Errorf("of board %q: %w", names[i], err)
		}
	}
	if !c.Whole() || len(restored.boards) > maxBoards {
		return fmt.Errorf("restoring what GPUs used: %w", errState)
	}
	*b = *restored
	return nil
}

// code writes or reads what is known of a board.
func (k *book) code(c *codec.Codec) error {
	codec.Int(c, &k.at, &k.busy)
	var state []byte
	if !c.Reading() {
		state = k.attributor.AppendState(nil)
	}
	c.Bytes(&state)
	list := k.listed
	for i := range codec.Elements(c, &list, leastUsage) {
		c.Text(&list[i].ID)
		codec.Int(c, &list[i].CPU)
		k.usage[list[i].ID] = &list[i]
	}
	if !c.Reading() {
		return nil
	}
	return k.attributor.RestoreState(state)
}
