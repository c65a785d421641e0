package intake

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

const (
	// An interval that began longer than this before its batch came makes no budget act.
	lateAfter = time.Hour
	// A pod is taken to be this much older than the API server says: the node's clock may be behind.
	youngSlack = 15 * time.Minute
)

// An allowance is what a pod that is younger than an interval can have used in it. nil allows everything.
type allowance struct {
	absent bool // it was made after the interval
	energy energy.Microjoules
	cpu    time.Duration
}

// allowance returns what a pod can have used of a batch; nil for a pod that was there all the time, or is not known.
func (e *entry) allowance(b *batch.Batch, l *Limits) *allowance {
	if e == nil || e.made == 0 {
		return nil
	}
	lived := b.End.Add(youngSlack).Sub(time.Unix(e.made, 0))
	switch {
	case lived >= b.End.Sub(b.Start):
		return nil
	case lived <= 0:
		return &allowance{absent: true}
	}
	return &allowance{
		energy: energy.Microjoules(overPower * float64(l.MaxPower) * lived.Seconds() * 1e6), //nolint:mnd // µJ
		cpu:    time.Duration(overCores * l.Cores * float64(lived)),
	}
}

// none reports whether the pod was not there at all.
func (a *allowance) none() bool { return a != nil && a.absent }

// cap leaves in a share what the pod can have used, and returns the energy that is too much. A pod that was not there
// keeps its share: it is not charged to it.
func (a *allowance) cap(s *energy.Share) (over energy.Microjoules) {
	if a == nil || a.none() {
		return 0
	}
	for _, part := range []*energy.Microjoules{&s.Dynamic, &s.Idle} {
		fits := min(*part, a.energy)
		over += *part - fits
		a.energy -= fits
		*part = fits
	}
	s.CPU = min(s.CPU, a.cpu)
	a.cpu -= s.CPU
	return over
}
