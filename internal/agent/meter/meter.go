// Package meter reads the energy counters of a node. If a meter cannot be read, its energy is unknown for that
// time; other meters are not affected, and no values are made up.
//
// The root domain, which determines the energy of the node, is selected by [Root]. Meters need no Linux
// capabilities. RAPL requires that the agent owns the files; other meters need no special permissions.
package meter

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Meter reads one or more energy counters of a node. A Meter is used by one goroutine, and Read must not block:
// slow operations, such as network requests, must run in another goroutine.
type Meter interface {
	// Name returns the kind of the meter, e.g. "rapl".
	Name() string
	// Domains returns the domains that the meter covers. They do not change, except that a meter that scrapes
	// another agent has no domains before the first response.
	Domains() []energy.Domain
	// Read appends the current reading of each readable domain. Domains that cannot be read are omitted, and their
	// next reading starts a new run if the difference cannot be trusted. The error describes all failures for the
	// log and the metrics. Readings may be returned together with an error.
	Read(t Tick, into []energy.Reading) ([]energy.Reading, error)
	// Resume passes the last readings of a previous process of the same boot, from which the counters continue. It
	// must be called before the first Read. Readings of other meters are ignored.
	Resume(last []energy.Reading)
	Close() error
}

// Of returns the first meter of type M.
func Of[M Meter](meters []Meter) (of M, ok bool) {
	for _, m := range meters {
		if of, ok = m.(M); ok {
			break
		}
	}
	return of, ok
}

// ReadSafely reads a meter. If the meter panics, it returns no readings and an error, so that other meters are not
// affected.
func ReadSafely(m Meter, t Tick, into []energy.Reading) (all []energy.Reading, err error) {
	all = into
	defer rescue(&err)
	return m.Read(t, into)
}

// rescue converts a panic to an error. It must be called by defer.
func rescue(err *error) {
	if what := recover(); what != nil {
		*err = fmt.Errorf("panic: %v", what)
	}
}

// Tick contains the inputs of a reading.
type Tick struct {
	Now  func() time.Duration // returns the time since boot
	Busy time.Duration        // CPU time of the whole node since boot; 0 if unknown
	At   time.Duration        // time of Busy, since boot; 0 for approximately now
	CPUs float64
}

// staleAfter is the time after which an unchanged counter is considered unknown, because a running machine always
// uses energy. Until then, its last reading remains valid.
const staleAfter = 15 * time.Second

// period returns the update period of a counter that may be unchanged until it is stale, see
// [energy.CounterOptions].
func period(stale time.Duration) time.Duration { return stale * 2 / 3 }

// changeDetector measures how long a counter has been unchanged.
type changeDetector struct {
	raw   uint64
	since time.Duration // time when raw was first read, since boot; 0 if there is no value yet
}

// beat records the value of the counter and returns how long it has been unchanged.
func (p *changeDetector) beat(raw uint64, at time.Duration) time.Duration {
	if p.since == 0 || raw != p.raw {
		*p = changeDetector{raw: raw, since: at}
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

// mustMove reports whether counters of this kind always advance on a running machine. Other counters, such as those
// of memory, may be unsupported and constant.
func mustMove(k energy.DomainKind) bool {
	return k == energy.Wall || k == energy.Psys || k == energy.Package
}
