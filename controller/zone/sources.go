package zone

import (
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/controller/signal"
	"github.com/kubenergy/kubenergy/grid"
)

// sources asks the sources of a signal that a GridZone names.
type sources struct{ *signal.Keeper }

func (s sources) look(now time.Time) reading {
	state := s.State(now)
	return reading{status: state.Status(now), fresh: state.Fresh, trouble: state.LastError}
}

// CarbonOf returns what makes the keeper of a zone's carbon intensity.
func CarbonOf(d signal.Deps) func(*v1alpha1.GridZone) (keeper, error) {
	return func(z *v1alpha1.GridZone) (keeper, error) {
		k, err := signal.NewCarbonKeeper(grid.Zone(z.Spec.Zone), z.Spec.Carbon, d)
		return sources{k}, err
	}
}

// PriceOf returns what makes the keeper of a zone's price.
func PriceOf(d signal.Deps) func(*v1alpha1.GridZone) (keeper, error) {
	return func(z *v1alpha1.GridZone) (keeper, error) {
		k, err := signal.NewPriceKeeper(grid.Zone(z.Spec.Zone), z.Spec.Price, d)
		return sources{k}, err
	}
}
