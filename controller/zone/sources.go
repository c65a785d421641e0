package zone

import (
	"context"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/controller/signal"
	"github.com/kubenergy/kubenergy/grid"
)

// sources asks the sources of a signal that a GridZone names.
type sources struct{ keeper *signal.Keeper }

// Seed implements keeper.
func (s sources) Seed(last *v1alpha1.SignalStatus) { s.keeper.Seed(last) }

// Run implements keeper.
func (s sources) Run(ctx context.Context, changed func()) { s.keeper.Run(ctx, changed) }

func (s sources) look(now time.Time) reading {
	state := s.keeper.State(now)
	return reading{status: state.Status(now), fresh: state.Fresh, trouble: state.LastError}
}

func CarbonOf(d signal.Deps) func(*v1alpha1.GridZone) (keeper, error) {
	return func(z *v1alpha1.GridZone) (keeper, error) {
		k, err := signal.NewCarbonKeeper(grid.Zone(z.Spec.Zone), z.Spec.Carbon, d)
		return sources{k}, err
	}
}

func PriceOf(d signal.Deps) func(*v1alpha1.GridZone) (keeper, error) {
	return func(z *v1alpha1.GridZone) (keeper, error) {
		k, err := signal.NewPriceKeeper(grid.Zone(z.Spec.Zone), z.Spec.Price, d)
		return sources{k}, err
	}
}
