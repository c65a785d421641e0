package energy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Usage is the CPU time of a consumer since it began. Its counter never falls: one that does is another consumer that
// took the name.
type Usage struct {
	ID  string        `json:"id"`
	CPU time.Duration `json:"cpu"`
	// requested CPU in thousandths; how idle energy is shared by requests
	Weight uint64 `json:"weight,omitempty"`
}

// An Observation is everything that is read of a node at one tick. The counters are read a little after the CPU times;
// what was used until At is interpolated.
type Observation struct {
	At    time.Duration // the middle of the sweep over the CPU times, on the node's clock since boot
	CPUs  float64       // how many CPUs the node has
	Busy  time.Duration // CPU time of the whole node since boot; 0 if unknown
	Root  []Reading     // the counters of the root domain, which are added
	Parts []Reading     // the counters of domains inside the root, which are added; none if the root is not divided
	Usage []Usage       // sorted by ID; nil if the sweep failed
	Ended []Usage       // consumers that ended since the last tick, with their last known times; sorted by ID
}

// A Share is what one consumer used in an interval.
type Share struct {
	ID      string        `json:"id"`
	Dynamic Microjoules   `json:"dynamic"`         // because it computed
	Idle    Microjoules   `json:"idle,omitempty"`  // its share of what the node draws anyway
	GPU     Microjoules   `json:"gpu,omitempty"`   // of Dynamic and Idle: what GPUs used
	CPU     time.Duration `json:"cpu"`             // CPU time
	Ended   bool          `json:"ended,omitempty"` // there will be no more of it
}

// An Attribution divides what was measured in an interval:
//
//	Measured = Σ Shares + Idle + Platform + Unknown
//
// exactly.
type Attribution struct {
	Start, End time.Duration // on the node's clock since boot
	Measured   Microjoules
	Idle       Microjoules // drawn anyway, and not shared
	Platform   Microjoules // of the root domain, outside of the domains that consumers are attributed to
	Unknown    Microjoules // measured, and charged to no consumer: shown, never spread
	GPUIdle    Microjoules // of Idle: what GPUs used
	GPUUnknown Microjoules // of Unknown: what GPUs used
	// part of the interval for which no meter gave a value; if one comes late, a later interval has it
	Unmeasured time.Duration
	Quality    Quality // of Measured; shares are derived at best
	Shares     []Share // sorted by ID
}

// Check reports a breach of conservation, a negative amount or an interval that ends before it begins.
func (a *Attribution) Check() error {
	if a.End < a.Start || a.Unmeasured < 0 || a.Unmeasured > a.End-a.Start {
		return fmt.Errorf("%v of the interval from %v to %v are unmeasured", a.Unmeasured, a.Start, a.End)
	}
	if err := CheckGPU(a.Idle, a.GPUIdle, a.Unknown, a.GPUUnknown); err != nil {
		return err
	}
	return CheckConserved(a.Measured, a.Idle, a.Platform, a.Unknown, a.Shares)
}

// CheckGPU reports if GPUs are said to have used more of what no consumer did than there is of it.
func CheckGPU(idle, ofIdle, unknown, ofUnknown Microjoules) error {
	if ofIdle < 0 || ofIdle > idle || ofUnknown < 0 || ofUnknown > unknown {
		return fmt.Errorf("GPUs used %d of %d µJ idle and %d of %d µJ unknown", int64(ofIdle), int64(idle),
			int64(ofUnknown), int64(unknown))
	}
	return nil
}

// IncludeGPU adds the attribution of a board with a GPU in about the same time: all of its energy is a GPU's, and its
// CPU time is time of the board. That a consumer has ended is not for the board to say; but one that the node does not
// know any more has. The node's shares stay sorted.
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

// CheckConserved reports if parts are negative or do not add up to what was measured. It allocates nothing if they do.
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
		t.err = fmt.Errorf("the parts are %d µJ, measured were %d µJ", int64(t.sum), int64(measured))
	}
	return t.err
}

// A tally adds parts until one is less than nothing, or too much.
type tally struct {
	sum Microjoules
	err error
}

func (t *tally) add(what, id string, v Microjoules) {
	switch {
	case t.err != nil:
	case v < 0:
		t.err = fmt.Errorf("%s%s is %d µJ: less than nothing", what, id, int64(v))
	case t.sum > math.MaxInt64-v:
		t.err = fmt.Errorf("the parts are more than %d µJ", int64(math.MaxInt64))
	default:
		t.sum += v
	}
}
