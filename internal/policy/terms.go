package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Terms contains the settings that every level may set for a workload. The levels are its annotations,
// EnergyPolicies, its scheduler name and the defaults of the cluster.
type Terms struct {
	said term // terms that are set; all others are zero

	AllowedDelay     time.Duration
	ExpectedDuration time.Duration
	Where, When      string // names of the two parts of the strategy
	Order            string // order of the queue; empty for that of arrival
	Limits           sched.Limits
	Weights          sched.Weights
	MinSaving        float64 // min relative saving of a hold
	MinSavingPerHour float64 // min relative saving per hour of waiting
	MinSavingGrams   energy.Grams
	MaxPower         energy.Watts // 0 means any
	MinEfficiency    float64      // 0 means any
	GPUClass         string
}

// term is a bit set of Terms.
type term uint16

const (
	termDelay term = 1 << iota
	termDuration
	termStrategy
	termRule
	termCarbon
	termPercentile
	termPrice
	termCarbonCounts
	termWeights
	termMinSaving
	termMinSavingPerHour
	termMinSavingGrams
	termMaxPower
	termMinEfficiency
	termGPUClass
	termOrder
)

// entries contains the terms with their names in EnergyPolicies and functions that return their human-readable
// values.
var entries = [...]struct {
	term  term
	name  string
	value func(*Terms) any
}{
	{termDelay, "allowedDelay", func(t *Terms) any { return t.AllowedDelay }},
	{termDuration, "expectedDuration", func(t *Terms) any { return t.ExpectedDuration }},
	{termStrategy, "strategy", func(t *Terms) any { return t.Where }},
	{termRule, "hold.rule", func(t *Terms) any { return t.When }},
	{termOrder, "order", func(t *Terms) any { return t.Order }},
	{termCarbon, "hold.carbonThreshold", func(t *Terms) any { return float64(t.Limits.Carbon) }},
	{termPercentile, "hold.carbonPercentile", func(t *Terms) any { return 100 * t.Limits.Percentile }},
	{termPrice, "hold.priceThreshold", func(t *Terms) any { return float64(t.Limits.Price) }},
	{termCarbonCounts, "hold.carbon", func(t *Terms) any { return !t.Limits.NoCarbon }},
	{termWeights, "weights", func(t *Terms) any { return t.Weights }},
	{termMinSaving, "hold.minSaving", func(t *Terms) any { return fmt.Sprintf("%.4g %%", 100*t.MinSaving) }},
	{termMinSavingPerHour, "hold.minSavingPerHour", func(t *Terms) any {
		return fmt.Sprintf("%.4g %% per hour", 100*t.MinSavingPerHour)
	}},
	{termMinSavingGrams, "hold.minSavingGrams", func(t *Terms) any { return float64(t.MinSavingGrams) }},
	{termMaxPower, "maxPowerWatts", func(t *Terms) any { return float64(t.MaxPower) }},
	{termMinEfficiency, "minEfficiency", func(t *Terms) any { return t.MinEfficiency }},
	{termGPUClass, "gpuWorkloadType", func(t *Terms) any { return t.GPUClass }},
}

// apply overwrites the terms with the ones set by a higher level. It is called for every scheduled pod and does not
// allocate memory.
func (t *Terms) apply(above *Terms) {
	said := above.said
	if said == 0 {
		return
	}
	t.said |= said
	overwrite(said&termDelay, &t.AllowedDelay, &above.AllowedDelay)
	overwrite(said&termDuration, &t.ExpectedDuration, &above.ExpectedDuration)
	overwrite(said&termStrategy, &t.Where, &above.Where)
	overwrite(said&termRule, &t.When, &above.When)
	overwrite(said&termOrder, &t.Order, &above.Order)
	// Absolute and relative limits of carbon intensity replace each other.
	overwrite(said&(termCarbon|termPercentile), &t.Limits.Carbon, &above.Limits.Carbon)
	overwrite(said&(termCarbon|termPercentile), &t.Limits.Percentile, &above.Limits.Percentile)
	overwrite(said&termPrice, &t.Limits.Price, &above.Limits.Price)
	overwrite(said&termPrice, &t.Limits.HasPrice, &above.Limits.HasPrice)
	overwrite(said&termCarbonCounts, &t.Limits.NoCarbon, &above.Limits.NoCarbon)
	overwrite(said&termWeights, &t.Weights, &above.Weights)
	overwrite(said&termMinSaving, &t.MinSaving, &above.MinSaving)
	overwrite(said&termMinSavingPerHour, &t.MinSavingPerHour, &above.MinSavingPerHour)
	overwrite(said&termMinSavingGrams, &t.MinSavingGrams, &above.MinSavingGrams)
	overwrite(said&termMaxPower, &t.MaxPower, &above.MaxPower)
	overwrite(said&termMinEfficiency, &t.MinEfficiency, &above.MinEfficiency)
	overwrite(said&termGPUClass, &t.GPUClass, &above.GPUClass)
}

func overwrite[T any](said term, to, from *T) {
	if said != 0 {
		*to = *from
	}
}

// setRule completes the terms of a level: a threshold implies the rule "threshold" unless the level sets another
// rule.
func (t *Terms) setRule() {
	if t.said&termRule == 0 && t.said&(termCarbon|termPercentile|termPrice) != 0 {
		t.When, t.said = "threshold", t.said|termRule
	}
}

// set sets a field to a number from an EnergyPolicy, unless the number is nil.
func set[T ~float64](t *Terms, which term, field *T, number *float64) {
	if number != nil {
		*field = T(*number)
		t.said |= which
	}
}

// termsOf returns the terms that an EnergyPolicy sets.
func termsOf(w *v1alpha1.WorkloadSettings) (t Terms) {
	if w.AllowedDelay != nil {
		t.AllowedDelay, t.said = w.AllowedDelay.Duration, t.said|termDelay
	}
	if w.ExpectedDuration != nil {
		t.ExpectedDuration, t.said = w.ExpectedDuration.Duration, t.said|termDuration
	}
	if w.Weights != nil {
		t.Weights, t.said = sched.Weights(*w.Weights), t.said|termWeights
	}
	if w.Strategy != "" {
		t.Where, t.said = w.Strategy, t.said|termStrategy
	}
	if w.Order != "" {
		t.Order, t.said = strings.ToLower(w.Order), t.said|termOrder
	}
	if w.GPUWorkloadType != "" {
		t.GPUClass, t.said = w.GPUWorkloadType, t.said|termGPUClass
	}
	set(&t, termMaxPower, &t.MaxPower, w.MaxPowerWatts)
	set(&t, termMinEfficiency, &t.MinEfficiency, w.MinEfficiency)
	h := w.Hold
	if h == nil {
		return t
	}
	set(&t, termCarbon, &t.Limits.Carbon, h.CarbonThreshold)
	set(&t, termPercentile, &t.Limits.Percentile, h.CarbonPercentile)
	t.Limits.Percentile /= 100
	set(&t, termPrice, &t.Limits.Price, h.PriceThreshold)
	t.Limits.HasPrice = h.PriceThreshold != nil
	set(&t, termMinSaving, &t.MinSaving, h.MinSaving)
	set(&t, termMinSavingPerHour, &t.MinSavingPerHour, h.MinSavingPerHour)
	set(&t, termMinSavingGrams, &t.MinSavingGrams, h.MinSavingGrams)
	if h.Carbon != nil {
		t.Limits.NoCarbon, t.said = !*h.Carbon, t.said|termCarbonCounts
	}
	if h.Rule != "" {
		t.When, t.said = strings.ToLower(h.Rule), t.said|termRule
	}
	t.setRule()
	return t
}
