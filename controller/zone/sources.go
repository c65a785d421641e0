package zone

import (
	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/controller/signal"
	"github.com/kubenergy/kubenergy/grid"
)

// CarbonOf returns what makes the keeper of a zone's carbon intensity.
func CarbonOf(d signal.Deps) func(*v1alpha1.GridZone) (keeper, error) {
	return func(z *v1alpha1.GridZone) (keeper, error) {
		return made(signal.NewCarbonKeeper(grid.Zone(z.Spec.Zone), z.Spec.Carbon, d))
	}
}

// PriceOf returns what makes the keeper of a zone's price.
func PriceOf(d signal.Deps) func(*v1alpha1.GridZone) (keeper, error) {
	return func(z *v1alpha1.GridZone) (keeper, error) {
		return made(signal.NewPriceKeeper(grid.Zone(z.Spec.Zone), z.Spec.Price, d))
	}
}

// made leaves a keeper nil that could not be made.
func made(k *signal.Keeper, err error) (keeper, error) {
	if err != nil {
		return nil, err
	}
	return k, nil
}
