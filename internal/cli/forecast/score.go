package forecast

import (
	"fmt"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
)

// scores is the accuracy of the forecasts of a GridZone over the last four weeks.
type scores struct {
	APIVersion string                      `json:"apiVersion"`
	Kind       string                      `json:"kind"`
	Zone       string                      `json:"zone"`
	Quantity   string                      `json:"quantity"`
	Model      string                      `json:"forecastSource,omitempty"` // of the current forecast
	Accuracy   []v1alpha1.ForecastAccuracy `json:"accuracy"`
}

// Text implements [report.Document].
func (s *scores) Text(bool, bool) string {
	title := fmt.Sprintf("%s: accuracy of the forecasts of %s over the last four weeks; now by %s\n", s.Zone,
		s.Quantity, s.Model)
	if len(s.Accuracy) == 0 {
		return title + "No forecast has been compared yet: the first comparison takes two hours.\n"
	}
	t := report.Heads(1, "AHEAD", "ERROR", "WITHIN THE 80 % INTERVAL", "FORECASTS")
	for _, a := range s.Accuracy {
		inside := "-"
		if a.InsidePercent != nil {
			inside = fmt.Sprintf("%.1f %%", *a.InsidePercent)
		}
		t.Add(humanize.Rounded(a.Ahead.Duration), fmt.Sprintf("%.1f %%", a.ErrorPercent), inside, a.Forecasts)
	}
	return title + t.Plain()
}

// Sheet returns a table with one row per lead time.
func (s *scores) Sheet() *report.Table {
	t := report.Sheet("ahead_seconds", "error_percent", "inside_percent", "forecasts")
	for _, a := range s.Accuracy {
		t.Add(a.Ahead.Seconds(), a.ErrorPercent, a.InsidePercent, a.Forecasts)
	}
	return t
}
