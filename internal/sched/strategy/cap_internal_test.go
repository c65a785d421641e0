package strategy

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// threshold returns Φᵢ for units starting at 1, the price up to which i units are bought.
func threshold(k kSearch, i int64) float64 {
	alpha := k.ratio()
	return k.greatest * (1 - (1-1/alpha)*math.Exp(float64(i-1)*math.Log1p(1/(alpha*float64(k.units)))))
}

// TestKSearchIsCompetitive checks with adversarial prices that buying according to the thresholds, and the rest at
// the maximum price at the end, costs at most ratio times as much as buying everything at the lowest price.
func TestKSearchIsCompetitive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := kSearch{
			least: rapid.Float64Range(1, 100).Draw(t, "least"), units: rapid.Int64Range(1, 30).Draw(t, "units"),
		}
		k.greatest = k.least * rapid.Float64Range(1.01, 20).Draw(t, "spread")
		best, bought, paid := k.greatest, int64(0), 0.0
		for _, share := range rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 40).Draw(t, "prices") {
			price := k.least + share*(k.greatest-k.least)
			best = min(best, price)
			if admitted := k.admitted(price); admitted > bought {
				paid += float64(admitted-bought) * price
				bought = admitted
			}
		}
		paid += float64(k.units-bought) * k.greatest
		if limit := k.ratio() * float64(k.units) * best; paid > limit*(1+1e-9) {
			t.Fatalf("%+v: paid %v, want at most %v times the cost %v at the lowest price", k, paid, k.ratio(),
				float64(k.units)*best)
		}
	})
}

func TestKSearchThresholds(t *testing.T) {
	k := kSearch{least: 100, greatest: 400, units: 12}
	// The first unit is bought up to U/α. The threshold after the last unit would be L.
	if got, want := threshold(k, 1), 400/k.ratio(); math.Abs(got-want) > 1e-9 {
		t.Errorf("first threshold = %v, want %v", got, want)
	}
	if got := threshold(k, 13); math.Abs(got-100) > 1e-6 {
		t.Errorf("threshold after the last unit = %v, want the minimum price", got)
	}
	for i := int64(1); i <= 12; i++ {
		if got := k.admitted(threshold(k, i)); got != i {
			t.Errorf("admitted %d units instead of %d at their threshold", i, got)
		}
		if got := k.admitted(threshold(k, i) + 0.01); got != i-1 {
			t.Errorf("admitted %d units instead of %d just above their threshold", i, got)
		}
	}
	for price, want := range map[float64]int64{99: 12, 100: 12, 400: 0, 1000: 0} {
		if got := k.admitted(price); got != want {
			t.Errorf("at a price of %v admitted %d units, want %d", price, got, want)
		}
	}
	if got := (kSearch{least: 300, greatest: 300, units: 5}).admitted(300); got != 5 {
		t.Errorf("at a constant price admitted %d units, want all", got)
	}
	// For many units, α is the solution of (1−x)·eˣ = 1−L/U with x = 1/α, as with Lambert's W function.
	x := 1 / (kSearch{least: 100, greatest: 400, units: 1 << 40}).ratio()
	if got := (1 - x) * math.Exp(x); math.Abs(got-0.75) > 1e-9 {
		t.Errorf("(1−x)·eˣ = %v for many units, want 0.75", got)
	}
}
