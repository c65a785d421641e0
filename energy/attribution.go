package energy

import (
	"fmt"
	"math"
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
	return CheckConserved(a.Measured, a.Idle, a.Platform, a.Unknown, a.Shares)
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
