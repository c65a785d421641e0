package budget

import (
	"testing"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

func TestPercentForPeople(t *testing.T) {
	for percent, want := range map[float64]float64{
		0: 0, 3.75874e-05: 0, 0.3: 0.3, 80.44: 80.4, 99.96: 99.9, 99.9999999999: 100, 100: 100, 7517.48: 7517.4,
	} {
		if got := tenths(percent); got != want {
			t.Errorf("tenths(%v) = %v, want %v", percent, got, want)
		}
	}
}

func TestUsedNamesTheLimit(t *testing.T) {
	u := &use{Row: ledger.Row{Amount: ledger.Amount{Dynamic: 2 * oneKWh, Idle: oneKWh}}}
	l := v1alpha1.BudgetLimits{EnergyKWh: new(2.0), Cost: &v1alpha1.BudgetCost{Amount: 40, Currency: "EUR"}}
	if got := u.used(&l); got != "3 of 2 kWh" {
		t.Error(got)
	}
}
