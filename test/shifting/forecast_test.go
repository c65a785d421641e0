package shifting

import (
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/predict"
)

// TestRealForecasts holds the policies of ours to what they must save with forecasts as they would have been issued and
// lengths learnt from the past alone, beside the published ones: the starts that nothing was chosen on. It takes some
// minutes, most of them for the forecasts; KUBENERGY_CACHE names a folder to keep these in.
func TestRealForecasts(t *testing.T) {
	if !longRun() {
		t.Skip("takes minutes: set KUBENERGY_LONG=1")
	}
	past := func([]trace) predict.Learner { return predict.NewSurvival() }
	ahead := map[string]map[string]foresight{forecast.WithWeather: {}, forecast.History: {}}
	for _, test := range []struct {
		model, when string
		restart     time.Duration
		least       float64 // 0: printed
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
			t.Errorf("%s with forecasts of %s: η is %.3f, want %.2f", test.when, test.model, eta, test.least)
		}
		if late := r.late - 2*test.restart; late > 0 {
			t.Errorf("%s: a job is %v late", test.when, late)
		}
	}
}
