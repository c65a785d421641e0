package budget

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// period is a half-open time interval [from, to). A zero bound is unbounded.
type period struct{ from, to time.Time }

// periodOf returns the period that contains now, or the configured interval of a fixed period.
func periodOf(p *v1alpha1.BudgetPeriod, now time.Time) (period, error) {
	name := p.TimeZone
	if name == "" || name == "Local" { // the local zone of the controller is arbitrary
		name = "UTC"
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return period{}, fmt.Errorf("unknown time zone %q", name)
	}
	t := now.In(zone)
	year, month, day := t.Date()
	date := func(year int, month time.Month, day int) time.Time {
		return time.Date(year, month, day, 0, 0, 0, 0, zone).UTC()
	}
	switch p.Type {
	case v1alpha1.PeriodDay:
		return period{date(year, month, day), date(year, month, day+1)}, nil
	case v1alpha1.PeriodWeek:
		const week = 7
		monday := day - (int(t.Weekday())+week-1)%week
		return period{date(year, month, monday), date(year, month, monday+week)}, nil
	case v1alpha1.PeriodMonth:
		return period{date(year, month, 1), date(year, month+1, 1)}, nil
	case v1alpha1.PeriodYear:
		return period{date(year, 1, 1), date(year+1, 1, 1)}, nil
	case v1alpha1.PeriodLifetime:
		return period{}, nil
	case v1alpha1.PeriodFixed:
		if p.From == nil || p.To == nil || !p.From.Before(p.To) {
			return period{}, errors.New("a fixed period requires from and to, with from before to")
		}
		return period{p.From.UTC(), p.To.UTC()}, nil
	}
	return period{}, fmt.Errorf("unknown period %q", p.Type)
}

// holds reports whether the period contains t.
func (p period) holds(t time.Time) bool {
	return (p.from.IsZero() || !t.Before(p.from)) && (p.to.IsZero() || t.Before(p.to))
}

// isOf reports whether a status belongs to this period.
func (p period) isOf(s *v1alpha1.EnergyBudgetStatus) bool {
	return s.PeriodStart.Equal(stamp(p.from)) && s.PeriodEnd.Equal(stamp(p.to))
}

// asked returns the time range of the ledger query. Its end is extended into the future to a whole day in UTC,
// because whole days are the fastest to sum and no energy is recorded in the future.
func (p period) asked(now time.Time) period {
	const day = 24 * time.Hour
	a := p
	if a.from.IsZero() {
		a.from = time.Unix(0, 0).UTC()
	}
	a.to = now.Truncate(day).Add(2 * day) // allows for clocks of nodes that are ahead
	if !p.to.IsZero() && p.to.Before(a.to) {
		a.to = p.to
	}
	if !a.from.Before(a.to) { // the period has not started
		a.to = a.from.Add(time.Hour)
	}
	return a
}
