package batch

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Foldable reports why two batches may not become one, or nil: b must follow a in its stream, and both must be children
// of the same machine, because sums over nodes treat a batch as a whole.
func Foldable(a, b *Batch) error {
	switch {
	case a.Version != b.Version:
		return fmt.Errorf("versions %d and %d", a.Version, b.Version)
	case a.Stream != b.Stream:
		return errors.New("batches of two streams")
	case b.First != a.Last+1:
		return fmt.Errorf("batch %d does not follow batch %d", b.First, a.Last)
	case (a.Parent == nil) != (b.Parent == nil), a.Parent != nil && *a.Parent != *b.Parent:
		return errors.New("batches of different parents")
	case b.StartSinceBoot < a.EndSinceBoot:
		return fmt.Errorf("batch %d begins at %v, batch %d ends at %v", b.First, b.StartSinceBoot, a.Last,
			a.EndSinceBoot)
	case a.Measured > math.MaxInt64-b.Measured:
		return errors.New("more energy than can be counted")
	}
	return nil
}

// Fold returns the batch that covers both of two that follow each other: the same energy of the same consumers in one
// longer interval. Time between the two counts as unmeasured. The arguments stay as they are.
func Fold(a, b *Batch) (*Batch, error) {
	if err := Foldable(a, b); err != nil {
		return nil, fmt.Errorf("folding batches: %w", err)
	}
	f := *a
	f.Shares = slices.Grow(slices.Clone(a.Shares), len(b.Shares)/8)
	f.Extend(b)
	return &f, nil
}

// Extend adds to b, in place, the batch that follows it.
func (b *Batch) Extend(next *Batch) {
	b.Unmeasured += next.Unmeasured + (next.StartSinceBoot - b.EndSinceBoot)
	b.Last, b.EndSinceBoot = next.Last, next.EndSinceBoot
	b.SetWall(next.End) // by one wall clock, the later one, which was set right where the two differ
	b.Quality = joinQuality(b.Quality, b.Measured, next.Quality, next.Measured)
	b.Source = joinSources(b.Source, next.Source)
	if b.IdlePolicy != next.IdlePolicy {
		b.IdlePolicy = Mixed
	}
	b.Measured += next.Measured
	b.Idle += next.Idle
	b.Platform += next.Platform
	b.Unknown += next.Unknown
	b.GPUIdle += next.GPUIdle
	b.GPUUnknown += next.GPUUnknown
	b.Shares = merge(b.Shares, next.Shares)
}

// joinQuality returns the quality of a sum: the lesser one, where a part without energy does not count.
func joinQuality(a energy.Quality, ofA energy.Microjoules, b energy.Quality, ofB energy.Microjoules) energy.Quality {
	switch {
	case ofB == 0 && ofA != 0:
		return a
	case ofA == 0 && ofB != 0:
		return b
	}
	return min(a, b)
}

// joinSources names the sources of a sum, each once.
func joinSources(a, b string) string {
	if a == b || b == "" {
		return a
	}
	parts := strings.Split(a, " + ")
	for part := range strings.SplitSeq(b, " + ") {
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	if joined := strings.Join(parts, " + "); len(joined) <= MaxSource {
		return joined
	}
	return "several"
}

// merge adds shares to others and returns them, sorted by ID; both must be. It writes into the first slice. Where all
// consumers are there already, as in most intervals, it allocates nothing.
func merge(into, more []energy.Share) []energy.Share {
	missing := Missing(into, more)
	i, j := len(into)-1, len(more)-1
	into = slices.Grow(into, missing)[:len(into)+missing]
	// From the end, so that nothing is overwritten before it was moved.
	for k := len(into) - 1; j >= 0; k-- {
		switch order := compare(into, i, more[j].ID); {
		case order > 0:
			into[k] = into[i]
			i--
		case order < 0:
			into[k] = more[j]
			j--
		default:
			into[k] = into[i]
			add(&into[k], &more[j])
			i--
			j--
		}
	}
	return into
}

// Missing counts the consumers in more that have is without; both are sorted.
func Missing(have, more []energy.Share) int {
	i, missing := 0, 0
	for j := range more {
		for i < len(have) && have[i].ID < more[j].ID {
			i++
		}
		if i == len(have) || have[i].ID != more[j].ID {
			missing++
		}
	}
	return missing
}

func compare(shares []energy.Share, i int, id string) int {
	if i < 0 {
		return -1
	}
	return strings.Compare(shares[i].ID, id)
}

// add counts a later share to an earlier one of the same consumer.
func add(to, later *energy.Share) {
	to.Dynamic += later.Dynamic
	to.Idle += later.Idle
	to.GPU += later.GPU
	to.CPU += min(later.CPU, math.MaxInt64-to.CPU) // beyond 292 years it stays there
	to.Ended = later.Ended
}
