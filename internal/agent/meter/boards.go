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

// Boards computes energy readings of GPUs from their energy counters, or from their power if they have no counter.
// It also provides the processes and containers that used them.
type Boards struct {
	name    string
	quality energy.Quality
	stale   time.Duration
	scale   func(meter, domain string) int64
	latest  func() ([]gpu.Board, error) // returns the latest readings of another goroutine
	close   func() error

	known    []gpu.Board
	domains  []energy.Domain
	counters map[energy.Domain]boardCounter
	resumed  []energy.Reading
}

// boardCounter sets the reading of a GPU, or returns false if there is none.
type boardCounter func(*gpu.Board) bool

// Name implements Meter.
func (b *Boards) Name() string { return b.name }

// Domains implements Meter.
func (b *Boards) Domains() []energy.Domain { return b.domains }

// Boards returns the GPUs read by the last call of Read.
func (b *Boards) Boards() []gpu.Board { return b.known }

// Temperatures appends the temperatures of recently read GPUs. It may be called concurrently with Read.
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

// Read implements Meter. Between two responses, the readings of the last one remain valid, even if a request fails.
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
		err = errors.Join(err, fmt.Errorf("read %d of %d GPUs: others are missing, report no energy or power, or "+
			"have not been updated for %v", len(b.known), all, b.stale))
	} else if all > 0 {
		err = nil // all readings are recent
	}
	return into, err
}

// follow starts counting a GPU if it has a valid name and reports its energy or power.
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
