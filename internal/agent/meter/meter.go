// Package meter reads the energy counters of a node, each kind in a file of its own. A meter that cannot be read is
// unknown for as long as that lasts; it never stops the others and never makes up a value.
//
// What a node's energy is taken from, its root domain, is chosen once, by [Root]. Meters need no capability; all but
// RAPL's, which the kernel lets only its owner read, need no rights either.
package meter

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// A Meter reads one or more counters of a node. It belongs to one goroutine, and its Read does not wait: what may take
// long, as an answer from the network, is waited for elsewhere.
type Meter interface {
	// Name is the kind of meter, as in "rapl".
	Name() string
	// Domains are what the meter covers; they do not change. A meter that asks over the network has none until the
	// first answer came.
	Domains() []energy.Domain
	// Read appends the present reading of each domain that can be read; a domain that cannot is left out, and its
	// next reading begins a new run where the value in between cannot be trusted. It returns what went wrong, for the
	// log and the metrics, besides what could be read.
	Read(t Tick, into []energy.Reading) ([]energy.Reading, error)
	// Resume tells the meter, before its first Read, what a former process of this boot read last, so that its counters
	// go on. Readings of other meters are ignored.
	Resume(last []energy.Reading)
	Close() error
}

// Of returns the meter of a kind, if it is among some.
func Of[M Meter](meters []Meter) (of M, ok bool) {
	for _, m := range meters {
		if of, ok = m.(M); ok {
			break
		}
	}
	return of, ok
}

// ReadSafely reads a meter. One that panics tells nothing in this tick, and the others do.
func ReadSafely(m Meter, t Tick, into []energy.Reading) (all []energy.Reading, err error) {
	all = into
	defer rescue(&err)
	return m.Read(t, into)
}

// rescue makes an error of a panic. It is called deferred.
func rescue(err *error) {
	if what := recover(); what != nil {
		*err = fmt.Errorf("that panicked: %v", what)
	}
}

// A Tick is what a meter may know of the moment.
type Tick struct {
	Now  func() time.Duration // the node's clock since boot
	Busy time.Duration        // CPU time of the whole node since boot; 0 if unknown
	At   time.Duration        // when Busy was read; 0: about now
	CPUs float64
}

// staleAfter is how long a counter that must move may stand still before it is unknown: a machine that runs uses
// energy. Until then its last reading stays what is known.
const staleAfter = 15 * time.Second

// period is that of a counter whose value may stand still until it is stale: see [energy.CounterOptions].
func period(stale time.Duration) time.Duration { return stale * 2 / 3 }

// changeDetector finds out for how long a counter has stood still.
type changeDetector struct {
	raw   uint64
	since time.Duration // when raw was seen first
	begun bool
}

// beat takes the value of the counter and returns for how long it has been the same.
func (p *changeDetector) beat(raw uint64, at time.Duration) time.Duration {
	if !p.begun || raw != p.raw {
		*p = changeDetector{raw: raw, since: at, begun: true}
	}
	return at - p.since
}

// find returns the reading of a domain.
func find(readings []energy.Reading, d energy.Domain) (energy.Reading, bool) {
	for _, r := range readings {
		if r.Domain == d {
			return r, true
		}
	}
	return energy.Reading{}, false
}

// mustMove reports whether a running machine uses energy in every domain of a kind. Memory's may be zero where it is
// not counted.
func mustMove(k energy.DomainKind) bool {
	return k == energy.Wall || k == energy.Psys || k == energy.Package
}
