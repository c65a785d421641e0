package budget

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// use is the usage of a budget.
type use struct {
	ledger.Row
	late energy.Microjoules // recorded more than an hour after it was used; not included in the row
	asOf time.Time
}

// account contains the limits of a budget and its usage.
type account struct {
	object client.Object // a shared EnergyBudget, or a Job or pod with its own budget
	name   string        // name of the EnergyBudget, or Own
	limits *v1alpha1.BudgetLimits
	use    *use // nil if unknown
}

func accountOf(b *v1alpha1.EnergyBudget) account {
	return account{object: b, name: b.Name, limits: &b.Spec.Limits}
}

func (a *account) base() *account { return a }

func (a *account) kind() string { return reference(a.object).Kind }

// workload returns kind/name of a workload with its own budget, or "" for a shared budget.
func (a *account) workload() string {
	if _, shared := a.object.(*v1alpha1.EnergyBudget); shared {
		return ""
	}
	return a.kind() + "/" + a.object.GetName()
}

const whole = 100 // percent

func (u *use) kWh() float64 { return u.Energy().Joules().KWh() }

// over returns the energy in kWh above the energy limit. It returns false if there is no energy limit or it is not
// reached.
func (u *use) over(l *v1alpha1.BudgetLimits) (kWh float64, ok bool) {
	if u == nil || l.EnergyKWh == nil || u.kWh() < *l.EnergyKWh {
		return 0, false
	}
	return u.kWh() - *l.EnergyKWh, true
}

// signalOf returns the ledger's name of the carbon intensity signal of a limit.
func signalOf(l *v1alpha1.BudgetLimits) string {
	return strings.ToLower(cmp.Or(l.CarbonSignal, "Average"))
}

// carbon returns the emissions by the signal of the limits, in grams.
func (u *use) carbon(l *v1alpha1.BudgetLimits) float64 {
	return float64(u.Emissions[signalOf(l)].Grams())
}

// percent returns the utilization of the most used limit, in percent.
func (u *use) percent(l *v1alpha1.BudgetLimits) float64 {
	most := 0.0
	for _, r := range u.ratios(l) {
		most = max(most, r.share()*whole)
	}
	return most
}

// ratio is the usage of a limit.
type ratio struct {
	resource    string
	used, limit float64
	unit        string
}

func (r ratio) share() float64 { return r.used / r.limit }

// ratios returns the usage of each limit.
func (u *use) ratios(l *v1alpha1.BudgetLimits) (all []ratio) {
	if l.EnergyKWh != nil {
		all = append(all, ratio{"energy", u.kWh(), *l.EnergyKWh, "kWh"})
	}
	if l.CarbonGrams != nil {
		all = append(all, ratio{"carbon", u.carbon(l), *l.CarbonGrams, "gCO2e"})
	}
	if l.Cost != nil {
		all = append(all, ratio{"cost", u.Costs[l.Cost.Currency].Money(), l.Cost.Amount, l.Cost.Currency})
	}
	return all
}

// writeTo sets the usage fields of a status.
func (u *use) writeTo(s *v1alpha1.EnergyBudgetStatus, l *v1alpha1.BudgetLimits) {
	used := &v1alpha1.BudgetUse{EnergyKWh: rounded(u.kWh())}
	if hasKey(u.Emissions, signalOf(l)) {
		used.CarbonGrams = new(rounded(u.carbon(l)))
	}
	if l.Cost != nil && hasKey(u.Costs, l.Cost.Currency) {
		used.Cost = new(rounded(u.Costs[l.Cost.Currency].Money()))
	}
	s.Used = used
	s.EstimatedShare = share(u.Estimated, u.Energy())
	s.UnchartedShare = share(u.Uncharted, u.Facility)
	s.UnpricedShare = share(u.Unpriced, u.Facility)
}

func hasKey[V any](m map[string]V, key string) bool { _, ok := m[key]; return ok }

func share(part, all energy.Microjoules) float64 {
	if all <= 0 {
		return 0
	}
	return math.Round(float64(part)/float64(all)*1000) / 1000
}

// rounded rounds to six significant digits, because otherwise every status update would differ from the previous
// one.
func rounded(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	const digits = 6
	scale := math.Pow(10, digits-1-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// tenths rounds a percentage down to one decimal place for display, so that a threshold never appears to be reached
// too early. Floating-point errors just below an exact value are ignored.
func tenths(percent float64) float64 {
	const ten = 10
	return math.Floor(rounded(percent*ten)) / ten
}

// used describes the usage of the most used limit.
func (u *use) used(l *v1alpha1.BudgetLimits) string {
	all := u.ratios(l)
	if len(all) == 0 {
		return ""
	}
	most := slices.MaxFunc(all, func(a, b ratio) int { return cmp.Compare(a.share(), b.share()) })
	return fmt.Sprintf("%.4g of %v %s", most.used, most.limit, most.unit)
}

// unsaid describes usage that is not included in the limits: late energy, emissions by another signal, costs in
// another currency, and energy with unknown emissions or price.
func (u *use) unsaid(l *v1alpha1.BudgetLimits) (why []string) {
	add := func(others []string, counted, text string, part energy.Microjoules, what string) {
		for _, other := range others {
			if other != counted {
				why = append(why, fmt.Sprintf(text, other))
			}
		}
		if s := share(part, u.Facility); s > 0 {
			why = append(why, fmt.Sprintf("%.3g%% of the energy has %s", s*whole, what))
		}
	}
	if u.late > 0 {
		why = append(why, fmt.Sprintf("%.4g kWh were over an hour late and are not included", u.late.Joules().KWh()))
	}
	if l.CarbonGrams != nil {
		add(sortedKeys(u.Emissions), signalOf(l), "emissions by the %s intensity are not included", u.Uncharted,
			"unknown emissions")
	}
	if l.Cost != nil {
		add(sortedKeys(u.Costs), l.Cost.Currency, "costs in %s are not included", u.Unpriced, "an unknown price")
	}
	return why
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(key string) bool { return key == "" })
}
