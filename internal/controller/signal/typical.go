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

// typical is the bundled curve of a typical day of the zone. It needs neither a key nor network access.
type typical struct {
	forecast.Curve
	unknown grid.Zone // set if there is no curve for this zone
}

// world is the name of the zone with the mean of all zones.
const world = "WORLD"

func newTypical(zone grid.Zone, spec *v1alpha1.TypicalSource) *typical {
	zone = cmp.Or(grid.Zone(spec.Zone), zone)
	curve, ok := forecast.TypicalDay(zone)
	if !ok && zone != world {
		return &typical{unknown: zone}
	}
	return &typical{Curve: curve}
}

// Fetch fails if the zone is unknown. Falling back to the mean of the world, which is constant, would prevent all
// holds and hide a misspelled zone.
func (s *typical) Fetch(_ context.Context, now time.Time) (Answer, error) {
	if s.unknown != "" {
		return Answer{}, dial.Refuse(dial.ReasonZone, "unknown zone %q%s: want a zone of "+
			"Electricity Maps, such as DE or US-CAL-CISO, or WORLD for the mean of all zones", s.unknown,
			spelling.DidYouMean(string(s.unknown), forecast.TypicalZones()))
	}
	a := Answer{Step: time.Hour, Ageless: true, Model: forecast.TypicalModel}
	for t := now.UTC().Truncate(time.Hour); t.Before(now.Add(buildAhead)); t = t.Add(time.Hour) {
		a.Points = append(a.Points, Point{Time: t, Value: float64(s.At(t)), Estimated: true})
	}
	return a, nil
}
