package signal

import (
	"cmp"
	"context"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/forecast"
	"github.com/kubenergy/kubenergy/grid"
)

// typical is the bundled curve of a typical day of the zone: what there is without a key, and without a network.
type typical struct{ forecast.Curve }

// newTypical never fails: a zone without a curve has the world's mean.
func newTypical(zone grid.Zone, spec *v1alpha1.TypicalSource) *typical {
	curve, _ := forecast.TypicalDay(cmp.Or(grid.Zone(spec.Zone), zone))
	return &typical{curve}
}

func (s *typical) Fetch(_ context.Context, now time.Time) (Answer, error) {
	a := Answer{Step: time.Hour, Ageless: true, Model: forecast.TypicalModel}
	for t := now.UTC().Truncate(time.Hour); t.Before(now.Add(buildAhead)); t = t.Add(time.Hour) {
		a.Points = append(a.Points, Point{Time: t, Value: float64(s.At(t)), Estimated: true})
	}
	return a, nil
}
