package shifting

import (
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/predict"
)

// TestRealForecasts verifies the savings of KubEnergy policies with forecasts as they would have been issued and
// run times learned only from the past, alongside the published policies. It uses starts on which no parameter was
// tuned. The test takes several minutes, mostly for the forecasts, which are cached in the directory
// KUBENERGY_CACHE if it is set.
func TestRealForecasts(t *testing.T) {
	if !longRun() {
		t.Skip("takes several minutes: set KUBENERGY_LONG=1")
	}
	past := func([]trace) predict.Learner { return predict.NewSurvival() }
	ahead := map[string]map[string]foresight{forecast.WithWeather: {}, forecast.History: {}}
	for _, test := range []struct {
		model, when string
		restart     time.Duration
		least       float64 // minimum η; 0 only logs the result
	}{
		{forecast.WithWeather, "residual", 0, 0.75},
		{forecast.History, "residual", 0, 0.68},
		{forecast.WithWeather, "rolling", 0, 0.70},
		{forecast.History, "rolling", 0, 0},
		{forecast.WithWeather, "lowest-window", 0, 0},
		{forecast.WithWeather, "carbon-time", 0, 0},
		{forecast.WithWeather, "ecovisor", 0, 0},
		{forecast.WithWeather, "residual", 2 * time.Minute, 0},
		{forecast.WithWeather, "residual", 5 * time.Minute, 0},
		{forecast.WithWeather, "residual", 10 * time.Minute, 0},
	} {
		p := plays{
			zones: zones, hours: offsets(0, 1000), model: test.model, when: test.when, learner: past,
			restart: test.restart, ahead: ahead[test.model],
		}
		r := p.play(t)
		t.Logf("%-8s %-14s %v: %v", test.model, test.when, test.restart, r)
		if eta := r.eta(); eta < test.least {
			t.Errorf("policy %s with forecasts of %s: η = %.3f, want at least %.2f",
				test.when, test.model, eta, test.least)
		}
		if late := r.late - 2*test.restart; late > 0 {
			t.Errorf("policy %s: a job is %v late", test.when, late)
		}
	}
}
