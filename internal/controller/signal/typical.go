package signal

import (
	"cmp"
	"context"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/spelling"
)

// typical is the bundled curve of a typical day of the zone: what there is without a key, and without a network.
type typical struct {
	forecast.Curve
	unknown grid.Zone // that has none
}

// world is the zone of which nothing is known but the mean of all.
const world = "WORLD"

func newTypical(zone grid.Zone, spec *v1alpha1.TypicalSource) *typical {
	zone = cmp.Or(grid.Zone(spec.Zone), zone)
	curve, ok := forecast.TypicalDay(zone)
	if !ok && zone != world {
		return &typical{unknown: zone}
	}
	return &typical{Curve: curve}
}

// Fetch fails where the zone is not known: the world's mean is the same at all times, so that nothing would ever be
// held there, and a misspelt zone would not be noticed.
func (s *typical) Fetch(_ context.Context, now time.Time) (Answer, error) {
	if s.unknown != "" {
		return Answer{}, dial.Refuse(dial.ReasonZone, "no typical day of zone %q is known%s: want a zone as "+
			"Electricity Maps names them, such as DE or US-CAL-CISO, or WORLD for the mean of all", s.unknown,
			spelling.DidYouMean(string(s.unknown), forecast.TypicalZones()))
	}
	a := Answer{Step: time.Hour, Ageless: true, Model: forecast.TypicalModel}
	for t := now.UTC().Truncate(time.Hour); t.Before(now.Add(buildAhead)); t = t.Add(time.Hour) {
		a.Points = append(a.Points, Point{Time: t, Value: float64(s.At(t)), Estimated: true})
	}
	return a, nil
}
