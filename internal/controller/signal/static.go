package signal

import (
	"context"
	"time"
)

// static is a constant value from the GridZone. An intensity counts as an estimate, and a price as measured.
type static struct {
	value    float64
	quantity quantity
}

func (s *static) Fetch(_ context.Context, now time.Time) (Answer, error) {
	a := Answer{Step: time.Hour, Ageless: true}
	for t := now.Truncate(time.Hour); t.Before(now.Add(buildAhead)); t = t.Add(time.Hour) {
		a.Points = append(a.Points, Point{Time: t, Value: s.value, Estimated: s.quantity == carbon})
	}
	return a, nil
}
