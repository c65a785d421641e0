package budget

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// period is the time that a budget is for: [from, to).
type period struct{ from, to time.Time } // zero: open

// periodOf returns the period that now is in; of a fixed one, that.
func periodOf(p *v1alpha1.BudgetPeriod, now time.Time) (period, error) {
	name := p.TimeZone
	if name == "" || name == "Local" { // the zone of the controller's machine means nothing to users
		name = "UTC"
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return period{}, fmt.Errorf("time zone %q is not known", name)
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
			return period{}, errors.New("a fixed period needs from and to, in this order")
		}
		return period{p.From.UTC(), p.To.UTC()}, nil
	}
	return period{}, fmt.Errorf("period %q is not known", p.Type)
}

// holds reports whether an instant is in the period.
func (p period) holds(t time.Time) bool {
	return (p.from.IsZero() || !t.Before(p.from)) && (p.to.IsZero() || t.Before(p.to))
}

// isOf reports whether a status is of this period.
func (p period) isOf(s *v1alpha1.EnergyBudgetStatus) bool {
	return s.PeriodStart.Equal(stamp(p.from)) && s.PeriodEnd.Equal(stamp(p.to))
}

// asked returns the times that the ledger is asked about. Whole days of UTC are cheapest to sum up, and of the future
// nothing is booked.
func (p period) asked(now time.Time) period {
	const day = 24 * time.Hour
	a := p
	if a.from.IsZero() {
		a.from = time.Unix(0, 0).UTC()
	}
	a.to = now.Truncate(day).Add(2 * day) // clocks of nodes may be ahead
	if !p.to.IsZero() && p.to.Before(a.to) {
		a.to = p.to
	}
	if !a.from.Before(a.to) { // it has not begun
		a.to = a.from.Add(time.Hour)
	}
	return a
}
