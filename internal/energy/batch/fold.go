package batch

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Foldable returns nil if a and b can be folded into one batch, and the reason otherwise. b must follow a in its
// stream, and both must have the same parent, because sums over nodes treat a batch as a whole.
func Foldable(a, b *Batch) error {
	switch {
	case a.Version != b.Version:
		return fmt.Errorf("batches have different versions %d and %d", a.Version, b.Version)
	case a.Stream != b.Stream:
		return errors.New("batches belong to different streams")
	case b.First != a.Last+1:
		return fmt.Errorf("batch %d does not follow batch %d", b.First, a.Last)
	case (a.Parent == nil) != (b.Parent == nil), a.Parent != nil && *a.Parent != *b.Parent:
		return errors.New("batches have different parents")
	case b.StartSinceBoot < a.EndSinceBoot:
		return fmt.Errorf("batch %d starts at %v, before the end of batch %d at %v", b.First, b.StartSinceBoot, a.Last,
			a.EndSinceBoot)
	case a.Measured > math.MaxInt64-b.Measured:
		return errors.New("total energy overflows")
	}
	return nil
}

// Fold returns a batch that covers two consecutive batches: the same energy of the same consumers in one longer
// interval. The time between the two counts as unmeasured. The arguments are not modified.
func Fold(a, b *Batch) (*Batch, error) {
	if err := Foldable(a, b); err != nil {
		return nil, fmt.Errorf("folding batches: %w", err)
	}
	f := *a
	f.Shares = slices.Grow(slices.Clone(a.Shares), len(b.Shares)/8)
	f.Extend(b)
	return &f, nil
}

// Extend adds the following batch to b in place.
func (b *Batch) Extend(next *Batch) {
	b.Unmeasured += next.Unmeasured + (next.StartSinceBoot - b.EndSinceBoot)
	b.Last, b.EndSinceBoot = next.Last, next.EndSinceBoot
	b.SetWall(next.End) // on the later wall clock, which is more likely to be correct if the two differ
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

// joinQuality returns the quality of a sum, which is the lower one. A part without energy is ignored.
func joinQuality(a energy.Quality, ofA energy.Microjoules, b energy.Quality, ofB energy.Microjoules) energy.Quality {
	switch {
	case ofB == 0 && ofA != 0:
		return a
	case ofA == 0 && ofB != 0:
		return b
	}
	return min(a, b)
}

// joinSources returns the distinct sources of a sum.
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

// merge adds the shares in more to into and returns the result, sorted by ID. Both must be sorted. It overwrites
// into, and does not allocate if all consumers are already in it, as in most intervals.
func merge(into, more []energy.Share) []energy.Share {
	missing := Missing(into, more)
	i, j := len(into)-1, len(more)-1
	into = slices.Grow(into, missing)[:len(into)+missing]
	// Merge from the end so that no element is overwritten before it is moved.
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

// Missing returns the number of consumers in more that are not in have; both must be sorted.
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

// add adds a later share to an earlier one of the same consumer.
func add(to, later *energy.Share) {
	to.Dynamic += later.Dynamic
	to.Idle += later.Idle
	to.GPU += later.GPU
	to.CPU += min(later.CPU, math.MaxInt64-to.CPU) // saturates at 292 years
	to.Ended = later.Ended
}
