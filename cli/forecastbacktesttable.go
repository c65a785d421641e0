package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/kubenergy/kubenergy/forecast"
	"github.com/kubenergy/kubenergy/grid"
)

// shownLevel is the interval that the table tells of, in percent.
const shownLevel = 90

// writeBacktestTable writes a row for each model.
func writeBacktestTable(w io.Writer, e forecast.Evaluation, zone grid.Zone, scores []forecast.Accuracy) error {
	name := string(zone)
	if name != "" {
		name += ": "
	}
	fmt.Fprintf(w, "%s%s over %v, every %v from %s. Errors in percent (MAPE). Regret and kept: in the cheapest 1/4/8 "+
		"of the next 24 hours.\n\n",
		name, count(e.Windows, "forecast"), e.Horizon, e.Stride, e.First.UTC().Format("2006-01-02 15:04"))
	header := table.Row{"model", "MAPE"}
	for d := range scores[0].ByDay {
		header = append(header, fmt.Sprintf("day %d", d+1))
	}
	header = append(header, "regret %", "saving kept %", fmt.Sprintf("in %d %% interval", shownLevel), "learning")
	rows := make([]table.Row, 0, len(scores))
	for _, a := range scores {
		row := table.Row{a.Model, fmt.Sprintf("%.2f", a.MAPE)}
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
			learning = a.Learning.Round(100 * time.Millisecond).String()
		}
		rows = append(rows, append(row, orDash(strings.Join(regret, "/")), orDash(strings.Join(kept, "/")),
			orDash(strings.Join(inside, "/")), learning))
	}
	_, err := fmt.Fprintln(w, columns(header, rows))
	return err
}

// writeBacktestCSV writes a row for each measure of each model.
func writeBacktestCSV(w io.Writer, zone grid.Zone, scores []forecast.Accuracy) error {
	out := csv.NewWriter(w)
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
	rows := [][]string{{"zone", "model", "measure", "of", "value"}}
	for _, a := range scores {
		put := func(measure, of string, value float64) {
			rows = append(rows, []string{string(zone), a.Model, measure, of, number(value)})
		}
		put("mape_percent", "all", a.MAPE)
		for d, v := range a.ByDay {
			put("mape_percent", fmt.Sprintf("day %d", d+1), v)
		}
		for _, c := range a.Choices {
			put("regret_percent", count(c.Hours, "hour"), c.Regret)
			put("saving_kept_percent", count(c.Hours, "hour"), c.Kept)
		}
		for _, c := range a.Coverage {
			of := fmt.Sprintf("%d %% %d-%d h", c.Level, c.From, c.Until)
			put("coverage_percent", of, c.Inside)
			put("width_percent", of, c.Width)
		}
		put("learning_seconds", "all", a.Learning.Seconds())
	}
	return out.WriteAll(rows)
}
