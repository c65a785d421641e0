package meter

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/agent/gpu"
	"github.com/kubenergy/kubenergy/energy"
)

// A BoardMeter also tells who used the boards with GPUs that it reads.
type BoardMeter interface {
	Meter
	// Boards are those of the last Read.
	Boards() []gpu.Board
}

const (
	boardMax  = energy.Watts(5_000)
	maxBoards = 64
)

// boards makes readings of what is read of boards: of their energy counters, or of their power where they count none.
type boards struct {
	name    string
	quality energy.Quality
	stale   time.Duration
	scale   func(energy.Domain) int64

	known    []gpu.Board
	domains  []energy.Domain
	counters map[energy.Domain]*energy.Counter
	powers   map[energy.Domain]*energy.Integrator
	resumed  []energy.Reading
}

func newBoards(c *Config, name string, quality energy.Quality, stale time.Duration) boards {
	return boards{
		name: name, quality: quality, stale: stale,
		scale:    func(d energy.Domain) int64 { return c.scale(name, d.Name) },
		counters: map[energy.Domain]*energy.Counter{}, powers: map[energy.Domain]*energy.Integrator{},
	}
}

// Name implements Meter.
func (b *boards) Name() string { return b.name }

// Domains implements Meter.
func (b *boards) Domains() []energy.Domain { return b.domains }

// Boards implements BoardMeter.
func (b *boards) Boards() []gpu.Board { return b.known }

// Resume implements Meter.
func (b *boards) Resume(last []energy.Reading) { b.resumed = append(b.resumed, last...) }

// readings appends the readings of boards that were read at an instant not long ago.
func (b *boards) readings(latest []gpu.Board, now time.Duration, into []energy.Reading) ([]energy.Reading, error) {
	b.known = latest
	var errs []error
	for i := range latest {
		board := &latest[i]
		d := board.Domain()
		if age := now - board.At; age > b.stale {
			errs = append(errs, fmt.Errorf("what is known of %s is %v old", d.Name, age.Round(time.Second)))
			continue
		}
		switch {
		case !b.follow(board, d):
			errs = append(errs, fmt.Errorf("%s is one too many, or tells neither energy nor power", d.Name))
		case b.counters[d] != nil && board.Millijoules != nil:
			into = append(into, b.counters[d].Next(*board.Millijoules, board.At))
		case b.powers[d] != nil && board.Milliwatts != nil:
			into = append(into, b.powers[d].Next(energy.Watts(*board.Milliwatts)/1000, board.At))
		}
	}
	return into, errors.Join(errs...)
}

// follow begins to count a board that is new.
func (b *boards) follow(board *gpu.Board, d energy.Domain) bool {
	if b.counters[d] != nil || b.powers[d] != nil {
		return true
	}
	last, resumes := find(b.resumed, d)
	switch {
	case len(b.domains) == maxBoards, !domainName.MatchString(d.Name):
		return false
	case board.Millijoules != nil:
		c := energy.NewCounter(energy.CounterOptions{
			Domain: d, Quality: b.quality, MicrojoulesPerUnit: 1000, Scale: b.scale(d), Max: boardMax,
			Period: period(b.stale),
		})
		if resumes {
			c.Resume(last)
		}
		b.counters[d] = c
	case board.Milliwatts != nil:
		g := energy.NewIntegrator(d, min(b.quality, energy.Derived), b.stale)
		if resumes {
			g.Resume(last)
		}
		b.powers[d] = g
	default:
		return false
	}
	b.domains = append(b.domains, d)
	return true
}
