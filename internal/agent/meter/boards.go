package meter

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/gpu"
	"github.com/kubenergy/kubenergy/internal/energy"
)

const (
	boardMax   = energy.Watts(5_000)
	maxCelsius = 200
	maxBoards  = 64
)

// Boards makes readings of what is read of boards with GPUs: of their energy counters, or of their power where they
// count none. It also tells who used them.
type Boards struct {
	name    string
	quality energy.Quality
	stale   time.Duration
	scale   func(meter, domain string) int64
	latest  func() ([]gpu.Board, error) // what was read last, by another goroutine
	close   func() error

	known    []gpu.Board
	domains  []energy.Domain
	counters map[energy.Domain]boardCounter
	resumed  []energy.Reading
}

// A boardCounter sets the reading of a board, or reports that there is none.
type boardCounter func(*gpu.Board) bool

// Name implements Meter.
func (b *Boards) Name() string { return b.name }

// Domains implements Meter.
func (b *Boards) Domains() []energy.Domain { return b.domains }

// Boards returns those that the last Read read.
func (b *Boards) Boards() []gpu.Board { return b.known }

// Temperatures appends those of boards that were read lately. It may be called beside Read.
func (b *Boards) Temperatures(now time.Duration, into []Temperature) []Temperature {
	latest, _ := b.latest()
	for i := range latest {
		if board := &latest[i]; board.Celsius != nil && *board.Celsius < maxCelsius && now-board.At <= b.stale {
			into = append(into, Temperature{Chip: b.name, Sensor: board.ID, Celsius: energy.Celsius(*board.Celsius)})
		}
	}
	return into
}

// Resume implements Meter.
func (b *Boards) Resume(last []energy.Reading) { b.resumed = append(b.resumed, last...) }

// Close implements Meter.
func (b *Boards) Close() error { return b.close() }

// Read implements Meter. Between two answers, what the last one says stays what is known, whatever failed meanwhile.
func (b *Boards) Read(t Tick, into []energy.Reading) ([]energy.Reading, error) {
	latest, err := b.latest()
	b.known = nil
	for _, board := range latest {
		d := board.Domain()
		if b.counters[d] == nil {
			b.follow(&board, d)
		}
		if count := b.counters[d]; t.Now()-board.At <= b.stale && count != nil && count(&board) {
			b.known = append(b.known, board)
			into = append(into, board.Reading)
		}
	}
	all := max(len(latest), len(b.domains))
	if len(b.known) < all {
		err = errors.Join(err, fmt.Errorf("%d of %d GPUs are read: others are gone, tell neither energy nor power, or "+
			"did so more than %v ago", len(b.known), all, b.stale))
	} else if all > 0 {
		err = nil // what is known is fresh
	}
	return into, err
}

// follow begins to count a board, if it can be counted.
func (b *Boards) follow(board *gpu.Board, d energy.Domain) {
	if len(b.domains) == maxBoards || !domainName.MatchString(d.Name) ||
		board.Millijoules == nil && board.Milliwatts == nil {
		return
	}
	b.domains = append(b.domains, d)
	if board.Millijoules != nil {
		c := energy.NewCounter(energy.CounterOptions{
			Domain: d, Quality: b.quality, MicrojoulesPerUnit: 1000, Scale: b.scale(b.name, d.Name), Max: boardMax,
			Period: period(b.stale),
		})
		c.Resume(b.resumed...)
		b.counters[d] = func(now *gpu.Board) bool {
			if now.Millijoules != nil {
				now.Reading = c.Next(*now.Millijoules, now.At)
			}
			return now.Millijoules != nil
		}
		return
	}
	g := energy.NewIntegrator(d, min(b.quality, energy.Derived), b.stale)
	g.Resume(b.resumed...)
	b.counters[d] = func(now *gpu.Board) bool {
		if now.Milliwatts != nil {
			now.Reading = g.Next(energy.Watts(*now.Milliwatts)/1000, now.At)
		}
		return now.Milliwatts != nil
	}
}
