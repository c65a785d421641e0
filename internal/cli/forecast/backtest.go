package forecast

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
)

type backtestFlags struct {
	grids                            []string
	weather, zone, column            string
	start                            string
	output                           *cmdutil.Choice
	horizon, stride, leaveOut, refit time.Duration
	fill                             time.Duration
	windows                          int
	calibrate                        bool
	models                           []string
	seed                             uint64
}

func newForecastBacktest(t cmdutil.Terminal) *cobra.Command {
	var f backtestFlags
	cmd := &cobra.Command{
		Use:   "backtest --grid FILE [--weather FILE]",
		Short: "Evaluate forecast models on a recorded series",
		Long: `Forecast a recorded series repeatedly, using only the values before each forecast, and compare the
forecasts with the actual values. The output contains the mean absolute percentage error (MAPE) by day ahead, the regret
of running in the hours with the lowest forecast of the next 24 hours, and the coverage of the prediction intervals of
trained models. These models are trained on the values before the first forecast, and retrained after every --refit.

The defaults follow the protocol of EnsembleCI, which consists of 178 daily forecasts over 96 hours. The last one ends a
day before the end of the file.`,
		Example: `  kubenergy forecast backtest --grid DE_lifecycle_emissions.csv.gz \
      --weather DE_weather_forecast.csv.gz
  kubenergy forecast backtest --grid 'DE_202?.csv.gz' --zone DE --start 2023-01-01 --calibrate -o json`,
		Args:    cmdutil.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return cmdutil.NewUsageError(f.check()) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, t) },
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.grids, "grid", nil, "CSV file with carbon intensity over time, may be compressed with "+
		"gzip; several files or a quoted pattern are joined")
	flags.StringVar(&f.weather, "weather", "",
		"CSV file with hourly time, wind speed, temperature, dew point, radiation and precipitation; may be gzip")
	flags.StringVar(&f.zone, "zone", "", "grid zone, required if the files contain several zones")
	flags.StringVar(&f.column, "column", "",
		"column of the files (default "+grid.DefaultColumn+", carbon_intensity, or the only column)")
	flags.DurationVar(&f.fill, "fill", 0, cmdutil.FillUsage)
	flags.DurationVar(&f.horizon, "horizon", forecast.LearntHorizon, "length of each forecast")
	flags.DurationVar(&f.stride, "stride", 24*time.Hour, "interval between forecasts")
	flags.IntVar(&f.windows, "test-windows", 178, "number of forecasts; with --start, defaults to the maximum "+
		"number for the file")
	flags.StringVar(&f.start, "start", "", "start of the first forecast, as date (2023-01-01), RFC 3339 or relative "+
		"time (-7d) (default: the last one ends --leave-out before the end of the file)")
	flags.DurationVar(&f.leaveOut, "leave-out", 24*time.Hour, "time excluded at the end of the file")
	flags.DurationVar(&f.refit, "refit", 0, "interval for retraining models, e.g. 672h (0: train once)")
	flags.BoolVar(&f.calibrate, "calibrate", false, "correct the forecasts of trained models by their recent errors")
	flags.StringSliceVar(&f.models, "models", nil, "models to compare (default: all): "+strings.Join(forecast.Models(),
		", "))
	flags.Uint64Var(&f.seed, "seed", 0, "random seed for the samples of tree models")
	f.output = cmdutil.Output(flags, "table", "json", "csv")
	return cmd
}

func (f *backtestFlags) check() error {
	switch {
	case len(f.grids) == 0:
		return errors.New("missing --grid")
	case f.windows <= 0:
		return fmt.Errorf("--test-windows is %d: want at least 1", f.windows)
	case f.leaveOut < 0:
		return fmt.Errorf("--leave-out is %v: want 0 or more", f.leaveOut)
	case f.stride <= 0:
		return fmt.Errorf("--stride is %v: want more than 0", f.stride)
	case f.fill < 0:
		return fmt.Errorf("--fill is %v: want 0 or more", f.fill)
	}
	for _, m := range f.models {
		if !slices.Contains(forecast.Models(), m) {
			return fmt.Errorf("--models: unknown model %q: want one or more of %s", m, strings.Join(forecast.Models(),
				", "))
		}
		if m == forecast.WithWeather && f.weather == "" {
			return fmt.Errorf("--models: model %q requires --weather", m)
		}
	}
	return nil
}

func (f *backtestFlags) run(cmd *cobra.Command, t cmdutil.Terminal) error {
	e, zone, err := f.evaluation(cmd, t)
	if err != nil {
		return cmdutil.NewUsageError(err)
	}
	p := t.Progress(cmd.CommandPath(), "parts")
	defer p.Close()
	e.Progress = p.Update
	scores, err := forecast.Evaluate(cmd.Context(), e)
	if err != nil {
		if cmd.Context().Err() != nil {
			return err
		}
		return cmdutil.NewUsageError(err) // the request exceeds the data of the files
	}
	return t.Print(newBacktest(e, zone, scores), f.output.Value)
}

// evaluation reads the files and returns the parameters of the evaluation.
func (f *backtestFlags) evaluation(cmd *cobra.Command, t cmdutil.Terminal) (forecast.Evaluation, grid.Zone, error) {
	e := forecast.Evaluation{
		Stride: f.stride, Horizon: f.horizon, Windows: f.windows, Refit: f.refit, Calibrate: f.calibrate, Seed: f.seed,
		Models: f.models, Now: t.Now,
	}
	signal, zone, err := ReadGrid(t, grid.CSVOptions{
		Column: f.column, Zone: grid.Zone(f.zone), Fill: f.fill,
	}, f.grids...)
	if err != nil {
		return e, "", err
	}
	e.History = signal.Series
	if f.weather != "" {
		if e.Weather, err = forecast.ReadWeather(f.weather); err != nil {
			return e, "", err
		}
	}
	if len(e.Models) == 0 {
		e.Models = slices.DeleteFunc(forecast.Models(), func(m string) bool {
			return m == forecast.WithWeather && e.Weather == nil
		})
	}
	return e, zone, f.place(&e, cmd.Flags().Changed("test-windows"))
}

// place sets the start of the first forecast and the number of forecasts.
func (f *backtestFlags) place(e *forecast.Evaluation, windowsGiven bool) (err error) {
	begin, end := e.History.Start().Add(forecast.MinBefore), e.History.End()
	if f.start == "" {
		end = end.Add(-f.leaveOut - f.horizon)
		most := 0
		if !end.Before(begin) {
			most = 1 + int(end.Sub(begin)/f.stride)
		}
		if most < f.windows {
			return f.tooShort(e.History, most)
		}
		e.First = end.Add(-time.Duration(f.windows-1) * f.stride)
		return nil
	}
	if e.First, err = humanize.ParseTime("--start", f.start, e.Now()); err != nil {
		return err
	}
	if e.First.Before(begin) {
		return fmt.Errorf("--start is %s: the values start at %s and forecasts require one day of values: want %s or "+
			"later", e.First.Format(time.RFC3339), e.History.Start().Format(time.RFC3339), begin.Format(time.RFC3339))
	}
	if room := int(end.Sub(e.First.Add(f.horizon))/f.stride) + 1; !windowsGiven && room > 0 {
		e.Windows = room
	}
	return nil
}

// tooShort returns an error with the number of forecasts that the files allow.
func (f *backtestFlags) tooShort(s *grid.Series, most int) error {
	span := fmt.Sprintf("the values cover %s to %s", s.Start().Format(time.RFC3339), s.End().Format(time.RFC3339))
	if most == 0 {
		return fmt.Errorf("%s, which is too short for a forecast over %v: want one day more than the sum of --horizon "+
			"and --leave-out", span, f.horizon)
	}
	return fmt.Errorf("%s, which is too short for %d forecasts, one every %v: want --test-windows %d or less", span,
		f.windows, f.stride, most)
}

// ReadGrid reads consecutive files of one zone. A name may be a pattern. It prints notes about the files, and
// adds the relevant flag to errors.
func ReadGrid(t cmdutil.Terminal, o grid.CSVOptions, names ...string) (grid.Signal, grid.Zone, error) {
	o.Filled, o.AssumedUTC, o.ZoneUnused = new(int), new(bool), new(bool)
	signal, zone, err := grid.ReadFiles(o, names...)
	if row, ok := errors.AsType[*grid.RowError](err); ok {
		switch row.Option {
		case "":
		case grid.OptionFill:
			err = fmt.Errorf("%w; set --fill 3h to fill gaps of up to 3h", err)
		default:
			err = fmt.Errorf("--%s: %w", row.Option, err)
		}
	}
	for _, note := range o.Notes(strings.Join(names, ", ")) {
		fmt.Fprintln(t.Err, note)
	}
	return signal, zone, err
}

type (
	backtest struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Zone       grid.Zone      `json:"zone,omitempty"`
		First      time.Time      `json:"first"`
		Windows    int            `json:"windows"`
		Stride     string         `json:"stride"`
		Horizon    string         `json:"horizon"`
		Refit      string         `json:"refit,omitempty"`
		Calibrated bool           `json:"calibrated"`
		Models     []accuracyJSON `json:"models"`
	}
	accuracyJSON struct {
		forecast.Accuracy
		Learning float64 `json:"learningSeconds"`
	}
)

func newBacktest(e forecast.Evaluation, zone grid.Zone, scores []forecast.Accuracy) *backtest {
	b := &backtest{
		APIVersion: "kubenergy.io/v1alpha1", Kind: "ForecastBacktest", Zone: zone, First: e.First.UTC(),
		Windows: e.Windows, Stride: e.Stride.String(), Horizon: e.Horizon.String(), Calibrated: e.Calibrate,
	}
	if e.Refit > 0 {
		b.Refit = e.Refit.String()
	}
	for _, a := range scores {
		b.Models = append(b.Models, accuracyJSON{a, a.Learning.Seconds()})
	}
	return b
}

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
