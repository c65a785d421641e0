package forecast

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
)

// shownLevel is the prediction interval in the table, in percent.
const shownLevel = 90

// Text returns a table with one row per model.
func (b *backtest) Text(bool, bool) string {
	name := string(b.Zone)
	if name != "" {
		name += ": "
	}
	header := []string{"model", "MAPE"}
	for d := range b.Models[0].ByDay {
		header = append(header, fmt.Sprintf("day %d", d+1))
	}
	header = append(header, "regret %", "saving kept %", fmt.Sprintf("in %d %% interval", shownLevel), "training")
	t := report.Heads(len(header), header...)
	for _, a := range b.Models {
		row := []any{a.Model, fmt.Sprintf("%.2f", a.MAPE)}
		for _, v := range a.ByDay {
			row = append(row, fmt.Sprintf("%.2f", v))
		}
		var regret, kept, inside []string
		for _, c := range a.Choices {
			regret, kept = append(regret, fmt.Sprintf("%.2f", c.Regret)), append(kept, fmt.Sprintf("%.0f", c.Kept))
		}
		for _, c := range a.Coverage {
			if c.Level == shownLevel {
				inside = append(inside, fmt.Sprintf("%.1f", c.Inside))
			}
		}
		learning := "–"
		if a.Learning > 0 {
			learning = time.Duration(a.Learning * float64(time.Second)).Round(100 * time.Millisecond).String()
		}
		for _, figures := range [][]string{regret, kept, inside} {
			row = append(row, cmp.Or(strings.Join(figures, "/"), "–"))
		}
		t.Add(append(row, learning)...)
	}
	return fmt.Sprintf("%s%s over %v, every %v from %s. Errors are in percent (MAPE). Regret and saving kept refer to "+
		"the cheapest 1/4/8 of the next 24 hours.\n\n%s\n", name, humanize.Count(b.Windows, "forecast"), b.Horizon,
		b.Stride, b.First.Format("2006-01-02 15:04"), t.Open())
}

// Sheet returns a table with one row per model and measure.
func (b *backtest) Sheet() *report.Table {
	t := report.Sheet("zone", "model", "measure", "of", "value")
	t.Columns[4].Exact = func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
	for _, a := range b.Models {
		put := func(measure, of string, value float64) { t.Add(string(b.Zone), a.Model, measure, of, value) }
		put("mape_percent", "all", a.MAPE)
		for d, v := range a.ByDay {
			put("mape_percent", fmt.Sprintf("day %d", d+1), v)
		}
		for _, c := range a.Choices {
			put("regret_percent", humanize.Count(c.Hours, "hour"), c.Regret)
			put("saving_kept_percent", humanize.Count(c.Hours, "hour"), c.Kept)
		}
		for _, c := range a.Coverage {
			of := fmt.Sprintf("%d %% %d-%d h", c.Level, c.From, c.Until)
			put("coverage_percent", of, c.Inside)
			put("width_percent", of, c.Width)
		}
		put("learning_seconds", "all", a.Learning)
	}
	return t
}
