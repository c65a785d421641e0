package energy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Usage is the CPU time of a consumer since it started. The counter is monotonic; if it decreases, another consumer
// has reused the ID.
type Usage struct {
	ID  string        `json:"id"`
	CPU time.Duration `json:"cpu"`
	// Weight is the requested CPU in millicores. It determines the share of idle energy if that is divided by
	// requests.
	Weight uint64 `json:"weight,omitempty"`
}

// An Observation contains all values read from a node in one tick. The counters are read shortly after the CPU
// times and are interpolated at At.
type Observation struct {
	At    time.Duration // middle of the sweep over the CPU times, on the node's clock since boot
	CPUs  float64       // number of CPUs of the node
	Busy  time.Duration // CPU time of the whole node since boot; 0 if unknown
	Root  []Reading     // counters of the root domain; their sum counts
	Parts []Reading     // counters of domains inside the root; empty if the root is not divided
	Usage []Usage       // sorted by ID; nil if the sweep failed
	Ended []Usage       // consumers that ended since the last tick, with their last known CPU times; sorted by ID
	// EarlierRoot and EarlierParts are readings of Root and Parts from about the end of the last interval. They are set
	// if Root has replaced other counters, so that its energy since then is attributed; the time until then is
	// unmeasured. If they are empty, attribution starts with the current readings.
	EarlierRoot, EarlierParts []Reading
}

// A Share is the energy of one consumer in an interval.
type Share struct {
	ID      string        `json:"id"`
	Dynamic Microjoules   `json:"dynamic"`        // caused by its CPU time
	Idle    Microjoules   `json:"idle,omitempty"` // its share of the node's idle energy
	GPU     Microjoules   `json:"gpu,omitempty"`  // part of Dynamic and Idle used by GPUs
	CPU     time.Duration `json:"cpu"`
	Ended   bool          `json:"ended,omitempty"` // the consumer will not appear again
}

// An Attribution divides the energy measured in an interval exactly:
//
//	Measured = Σ Shares + Idle + Platform + Unknown
type Attribution struct {
	Start, End time.Duration // on the node's clock since boot
	Measured   Microjoules
	Idle       Microjoules // not charged to any consumer
	Platform   Microjoules // of the root domain, outside the domains that are attributed to consumers
	Unknown    Microjoules // measured, but not attributable to a consumer; reported and never distributed
	GPUIdle    Microjoules // part of Idle used by GPUs
	GPUUnknown Microjoules // part of Unknown used by GPUs
	// Unmeasured is the part of the interval without a meter value. If a value arrives late, a later interval
	// includes its energy.
	Unmeasured time.Duration
	Quality    Quality // of Measured; shares are at best derived
	Shares     []Share // sorted by ID
}

// Check returns an error if energy is not conserved, an amount is negative or the interval ends before it starts.
func (a *Attribution) Check() error {
	if a.End < a.Start || a.Unmeasured < 0 || a.Unmeasured > a.End-a.Start {
		return fmt.Errorf("unmeasured time is %v in the interval from %v to %v", a.Unmeasured, a.Start, a.End)
	}
	if err := CheckGPU(a.Idle, a.GPUIdle, a.Unknown, a.GPUUnknown); err != nil {
		return err
	}
	return CheckConserved(a.Measured, a.Idle, a.Platform, a.Unknown, a.Shares)
}

// CheckGPU returns an error if the GPU energy of a part is negative or exceeds that part.
func CheckGPU(idle, ofIdle, unknown, ofUnknown Microjoules) error {
	if ofIdle < 0 || ofIdle > idle || ofUnknown < 0 || ofUnknown > unknown {
		return fmt.Errorf("invalid GPU energy: %d of %d µJ of idle energy and %d of %d µJ of unknown energy",
			int64(ofIdle), int64(idle), int64(ofUnknown), int64(unknown))
	}
	return nil
}

// IncludeGPU adds the attribution of a GPU board for about the same interval. All energy of the board is GPU
// energy, and its CPU times are board times, so they are not added. A board does not determine whether a consumer
// has ended, but a consumer that the node does not list has ended. The shares remain sorted.
func (a *Attribution) IncludeGPU(board *Attribution) {
	if board.Measured == 0 {
		return
	}
	a.Measured += board.Measured
	a.Idle += board.Idle
	a.GPUIdle += board.Idle
	a.Unknown += board.Unknown
	a.GPUUnknown += board.Unknown
	a.Quality = min(a.Quality, board.Quality)
	known := len(a.Shares) > 0
	for i := range board.Shares {
		s := &board.Shares[i]
		used := s.Dynamic + s.Idle
		if used == 0 {
			continue
		}
		at, found := slices.BinarySearchFunc(a.Shares, s.ID, func(of Share, id string) int {
			return strings.Compare(of.ID, id)
		})
		if !found {
			a.Shares = slices.Insert(a.Shares, at, Share{ID: s.ID, Ended: known})
		}
		to := &a.Shares[at]
		to.Dynamic += s.Dynamic
		to.Idle += s.Idle
		to.GPU += used
	}
}

// CheckConserved returns an error if a part is negative or the parts do not add up to measured. It does not
// allocate on success.
func CheckConserved(measured, idle, platform, unknown Microjoules, shares []Share) error {
	var t tally
	t.add("idle", "", idle)
	t.add("platform", "", platform)
	t.add("unknown", "", unknown)
	for i := range shares {
		s := &shares[i]
		t.add("dynamic energy of ", s.ID, s.Dynamic)
		t.add("idle energy of ", s.ID, s.Idle)
		if t.err == nil && (s.GPU < 0 || s.GPU > s.Dynamic+s.Idle) {
			t.err = fmt.Errorf("GPU energy of %s is %d of %d µJ", s.ID, int64(s.GPU), int64(s.Dynamic+s.Idle))
		}
		if t.err == nil && i > 0 && shares[i-1].ID >= s.ID {
			t.err = fmt.Errorf("shares are not sorted: %q before %q", shares[i-1].ID, s.ID)
		}
	}
	if t.err == nil && t.sum != measured {
		t.err = fmt.Errorf("the parts add up to %d µJ, want the measured %d µJ", int64(t.sum), int64(measured))
	}
	return t.err
}

// A tally sums parts until one of them is negative or the sum overflows.
type tally struct {
	sum Microjoules
	err error
}

func (t *tally) add(what, id string, v Microjoules) {
	switch {
	case t.err != nil:
	case v < 0:
		t.err = fmt.Errorf("%s%s is %d µJ: want a nonnegative amount", what, id, int64(v))
	case t.sum > math.MaxInt64-v:
		t.err = fmt.Errorf("the sum of the parts exceeds %d µJ", int64(math.MaxInt64))
	default:
		t.sum += v
	}
}
