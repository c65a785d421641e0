package signal

import (
	"context"
	"time"
)

// static is a value from the GridZone itself. As an intensity it is an estimate; as a price it is that of the contract.
type static struct {
	value    float64
	quantity quantity
	marginal bool // as the zone wants it: the author knows which kind it is
}

func (s *static) Fetch(_ context.Context, now time.Time) (Answer, error) {
	a := Answer{Step: time.Hour, Ageless: true, Marginal: s.marginal}
	for t := now.Truncate(time.Hour); t.Before(now.Add(buildAhead)); t = t.Add(time.Hour) {
		a.Points = append(a.Points, Point{Time: t, Value: s.value, Estimated: s.quantity == carbon})
	}
	return a, nil
}
