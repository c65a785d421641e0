// Package forecast implements the command forecast, which shows forecasts of a GridZone or a file and evaluates
// forecast models.
package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

type forecastFlags struct {
	cmdutil.ClusterFlags
	zone, out           string
	file, column, start string
	quantity, output    *cmdutil.Choice
	hours               int
	score               bool
	duration, fill      time.Duration
}

const (
	// QuantityCarbon is the value of --quantity and of [Outlook.Quantity] for carbon intensity.
	QuantityCarbon = "carbon"
	quantityPrice  = "price"
	offlineHours   = 48
)

// NewCommand returns the command forecast, which shows the forecast of carbon intensity or price.
func NewCommand(t cmdutil.Terminal) *cobra.Command {
	var f forecastFlags
	f.Offline = ", or use --file"
	cmd := &cobra.Command{
		Use:   "forecast --zone NAME",
		Short: "Show the forecast of carbon intensity or price, and the cheapest window",
		Long: `Show the forecast of a GridZone of the cluster, or compute a forecast from a file with the best simple
model. For a recorded series, only the values before --start are used; forecast backtest compares it with trained
models. Times are in UTC.`,
		Example: `  kubenergy forecast --zone DE --duration 2h
  kubenergy forecast --zone DE --quantity price -o svg --out price.svg
  kubenergy forecast --file DE_2022.csv.gz --zone DE --start 2022-06-01`,
		Args:    cmdutil.NoArguments,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return cmdutil.NewUsageError(f.check(cmd)) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), t) },
	}
	flags := cmd.Flags()
	f.Add(flags, "")
	flags.StringVar(&f.zone, "zone", "",
		"name or zone of a GridZone; with --file, the zone if the file contains several")
	f.quantity = cmdutil.Choose(flags, "quantity", "", "quantity", "", QuantityCarbon, quantityPrice)
	flags.IntVar(&f.hours, "hours", 0,
		fmt.Sprintf("length of the forecast in hours (default: all known values, or %d with --file)", offlineHours))
	flags.DurationVar(&f.duration, "duration", time.Hour, "length of the cheapest window to mark")
	flags.StringVar(&f.file, "file", "", "CSV file to forecast without a cluster; may be compressed with gzip")
	flags.StringVar(&f.column, "column", "", "column of the file (default "+grid.DefaultColumn+", or the only column)")
	flags.DurationVar(&f.fill, "fill", 0, cmdutil.FillUsage)
	flags.StringVar(&f.start, "start", "", "start of the forecast with --file, as date (2022-06-01), RFC 3339 or "+
		"relative time (-7d) (default: end of the file)")
	flags.BoolVar(&f.score, "score", false, "show the accuracy of the forecasts that the controller issued in the "+
		"last four weeks, by lead time")
	f.output = cmdutil.Output(flags, "text", "svg", "csv", "json")
	flags.StringVar(&f.out, "out", "", "output file; the extension determines the format unless -o is set")
	cmd.AddCommand(newForecastBacktest(t))
	return cmd
}

// Outlook is a forecast with its cheapest window.
type Outlook struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Zone       string          `json:"zone"`
	Quantity   string          `json:"quantity"`
	Unit       string          `json:"unit"`
	Quality    string          `json:"quality"`
	Source     string          `json:"source"`
	Model      string          `json:"forecastSource,omitempty"`
	AsOf       time.Time       `json:"asOf,omitzero"` // zero if it does not age
	Step       string          `json:"step"`
	Cheapest   *cheapestWindow `json:"cheapest,omitempty"`
	Values     []stepValue     `json:"values"`

	Now               time.Time     `json:"-"`
	Series, Low, High *grid.Series  `json:"-"`
	Window            sched.Window  `json:"-"`
	Duration          time.Duration `json:"-"`
	Width             int           `json:"-"` // width of the terminal
}

type cheapestWindow struct {
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Mean    float64   `json:"mean"`
	MeanNow float64   `json:"meanIfStartedNow"`
}

type stepValue struct {
	Start time.Time `json:"start"`
	Value float64   `json:"value"`
	Low   *float64  `json:"low,omitempty"`
	High  *float64  `json:"high,omitempty"`
}

func (f *forecastFlags) check(cmd *cobra.Command) error {
	f.output.Infer(cmd.Flags(), "output", f.out)
	switch {
	case f.zone == "" && f.file == "":
		return errors.New("want --zone or --file")
	case f.file == "" && (f.start != "" || f.column != "" || f.fill != 0):
		return errors.New("--start, --column and --fill require --file")
	case f.score && (f.file != "" || f.output.Value == "svg"):
		return errors.New("--score requires a cluster, and the output format text, csv or json")
	case f.fill < 0:
		return fmt.Errorf("--fill is %v: want 0 or more", f.fill)
	case f.hours < 0 || f.hours > int(forecast.MaxHorizon.Hours()):
		return fmt.Errorf("--hours is %d: want 1 to %d", f.hours, int(forecast.MaxHorizon.Hours()))
	case f.duration <= 0:
		return fmt.Errorf("--duration is %v: want more than 0", f.duration)
	}
	return nil
}

func (f *forecastFlags) run(ctx context.Context, t cmdutil.Terminal) error {
	var o *Outlook
	var err error
	if f.score {
		return f.printScores(ctx, t)
	}
	if f.file != "" {
		o, err = f.fromFile(t)
	} else {
		o, err = f.fromCluster(ctx, t)
	}
	if err != nil {
		return err
	}
	o.APIVersion, o.Kind, o.Quantity = "kubenergy.io/v1alpha1", "Forecast", f.quantity.Value
	o.Duration, o.Width = f.duration, t.Width()
	if err := o.crop(f.hours); err != nil {
		return err
	}
	o.Window = Cheapest(o.Series, o.Now, f.duration)
	o.fillOutput()
	return t.PrintTo(f.out, o, f.output.Value)
}

// fromCluster reads the forecast from the status of a GridZone.
func (f *forecastFlags) fromCluster(ctx context.Context, t cmdutil.Terminal) (*Outlook, error) {
	status, name, err := f.status(ctx, t)
	if err != nil {
		return nil, err
	}
	o, err := ReadOutlook(status)
	if err != nil {
		return nil, fmt.Errorf("GridZone %s: %s: %w", name, f.quantity, err)
	}
	o.Zone, o.Now = name, t.Now()
	return o, nil
}

// status returns the status of the signal, and the name of its GridZone with the zone.
func (f *forecastFlags) status(ctx context.Context, t cmdutil.Terminal) (*v1alpha1.SignalStatus, string, error) {
	c, err := f.Open(t)
	if err != nil {
		return nil, "", err
	}
	zones, err := cmdutil.ListZones(ctx, c)
	if err != nil {
		return nil, "", fmt.Errorf("listing GridZones: %s", cmdutil.Because(err))
	}
	z, err := chooseZone(zones, f.zone)
	if err != nil {
		return nil, "", err
	}
	status, name := z.Status.Carbon, z.Name
	if f.quantity.Value == quantityPrice {
		status = z.Status.Price
	}
	if status == nil {
		return nil, "", fmt.Errorf("GridZone %s has no %s: see kubectl describe gridzone %s", z.Name, f.quantity,
			z.Name)
	}
	if z.Spec.Zone != z.Name {
		name += " (" + z.Spec.Zone + ")"
	}
	return status, name, nil
}

func (f *forecastFlags) printScores(ctx context.Context, t cmdutil.Terminal) error {
	status, name, err := f.status(ctx, t)
	if err != nil {
		return err
	}
	return t.PrintTo(f.out, &scores{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "ForecastAccuracy", Zone: name, Quantity: f.quantity.Value,
		Model: status.ForecastSource, Accuracy: append([]v1alpha1.ForecastAccuracy{}, status.Accuracy...),
	}, f.output.Value)
}

func chooseZone(zones []v1alpha1.GridZone, name string) (*v1alpha1.GridZone, error) {
	names := sliceutil.Map(zones, func(z v1alpha1.GridZone) string { return z.Name })
	i := slices.Index(names, name)
	if i < 0 {
		i = slices.IndexFunc(zones, func(z v1alpha1.GridZone) bool { return strings.EqualFold(z.Spec.Zone, name) })
	}
	switch {
	case i >= 0:
		return &zones[i], nil
	case len(zones) == 0:
		return nil, errors.New("the cluster has no GridZone: use --file to forecast without a cluster")
	}
	return nil, fmt.Errorf("GridZone %q not found: want one of %s", name, strings.Join(names, ", "))
}

// ReadOutlook returns the outlook in the status of a GridZone. Low and High are nil unless both have the same
// number of values as the forecast. The caller must set the fields that the status does not contain, such as the
// zone and the current time. It returns an error if the status does not contain a valid series or quality.
func ReadOutlook(s *v1alpha1.SignalStatus) (*Outlook, error) {
	signal, err := kube.Signal(s, nil)
	if err != nil {
		return nil, err
	}
	o := &Outlook{
		Unit: s.Unit, Source: s.Source, Quality: s.Quality, AsOf: signal.AsOf, Model: s.ForecastSource,
		Series: signal.Series,
	}
	if len(s.Low) != len(s.Values) || len(s.High) != len(s.Values) {
		return o, nil // an interval for a part of the forecast is useless
	}
	if o.Low, err = grid.NewSeries(s.Start.Time, s.Step.Duration, s.Low); err != nil {
		return nil, err
	}
	o.High, err = grid.NewSeries(s.Start.Time, s.Step.Duration, s.High)
	return o, err
}

// fromFile forecasts a recorded series.
func (f *forecastFlags) fromFile(t cmdutil.Terminal) (*Outlook, error) {
	signal, zone, err := ReadGrid(t, grid.CSVOptions{
		Column: f.column, Zone: grid.Zone(f.zone), Price: f.quantity.Value == quantityPrice, Fill: f.fill,
	}, f.file)
	if err != nil {
		return nil, cmdutil.NewUsageError(err)
	}
	from := signal.Series.End()
	if f.start != "" {
		if from, err = humanize.ParseTime("--start", f.start, t.Now()); err != nil {
			return nil, cmdutil.NewUsageError(err)
		}
	}
	f.hours = cmp.Or(f.hours, offlineHours)
	made, err := forecast.Best(signal.Series, from, time.Duration(f.hours)*time.Hour)
	if err != nil {
		return nil, cmdutil.UsageErrorf("forecasting %s: %w", f.file, err)
	}
	o := &Outlook{
		Zone: string(zone), Unit: "gCO2e/kWh", Source: filepath.Base(f.file), Quality: "estimated", Model: made.Model,
		Now: from, Series: made.Series, Low: made.Low, High: made.High,
	}
	if f.quantity.Value == quantityPrice {
		o.Unit = "per kWh"
	}
	return o, nil
}

// crop limits the series to the given number of hours from now, or only removes the past if hours is 0.
func (o *Outlook) crop(hours int) error {
	if !o.Series.Covers(o.Now, o.Now) {
		return fmt.Errorf("zone %s: the forecast ended at %s: check whether kubenergy-controller is running", o.Zone,
			o.Series.End().Format(time.RFC3339))
	}
	end := o.Series.End()
	if hours > 0 {
		end = o.Now.Add(time.Duration(hours) * time.Hour)
	}
	for _, s := range []**grid.Series{&o.Series, &o.Low, &o.High} {
		if *s != nil {
			*s = (*s).Between(o.Now, end)
		}
	}
	return nil
}

// Cheapest returns the earliest window with the minimum mean, or the zero value if the forecast is too short.
func Cheapest(s *grid.Series, now time.Time, duration time.Duration) sched.Window {
	now, latest := timeutil.Later(now, s.Start()), s.End().Add(-duration)
	if latest.Before(now) {
		return sched.Window{}
	}
	start := sched.BestStart(s, now, latest, duration)
	return sched.Window{Start: start, End: start.Add(duration)}
}

func (o *Outlook) windowed() bool { return o.Window.End.After(o.Window.Start) }

// SVG returns the outlook as an SVG image.
func (o *Outlook) SVG() ([]byte, error) {
	return (&report.Outlook{
		Title: o.title(), Label: o.name() + "\n(" + o.Unit + ")", Series: o.Series, Low: o.Low, High: o.High,
		Band: "80 % interval", Window: o.Window,
	}).SVG()
}

func (o *Outlook) name() string {
	if o.Quantity == quantityPrice {
		return "Price"
	}
	return "Carbon intensity"
}

// title returns a title with the zone, quantity, source, age and quality.
func (o *Outlook) title() string {
	title := fmt.Sprintf("%s: %s in %s, %s, from %s", o.Zone, strings.ToLower(o.name()), o.Unit, o.Quality, o.Source)
	if !o.AsOf.IsZero() {
		title += fmt.Sprintf(" (%s old)", humanize.Rounded(max(0, o.Now.Sub(o.AsOf))))
	}
	if o.Model != "" && o.Model != o.Source {
		title += "; forecast by " + o.Model
	}
	return title
}

// fillOutput sets the fields of the machine-readable formats.
func (o *Outlook) fillOutput() {
	o.Step = o.Series.Step().String()
	if o.windowed() {
		o.Cheapest = &cheapestWindow{
			o.Window.Start.UTC(), o.Window.End.UTC(),
			o.Series.Mean(o.Window.Start, o.Window.End), o.Series.Mean(o.Now, o.Now.Add(o.Duration)),
		}
	}
	for i := range o.Series.Len() {
		v := stepValue{Start: o.Series.Start().Add(time.Duration(i) * o.Series.Step()), Value: o.Series.Value(i)}
		if o.Low != nil {
			v.Low, v.High = new(o.Low.Value(i)), new(o.High.Value(i))
		}
		o.Values = append(o.Values, v)
	}
}

// Sheet returns a table with one row per step.
func (o *Outlook) Sheet() *report.Table {
	name := map[string]string{QuantityCarbon: "gco2e_per_kwh", quantityPrice: "price_per_kwh"}[o.Quantity]
	t := report.Sheet("start", name, "low", "high")
	for i := range t.Columns {
		t.Columns[i].Exact = func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	}
	if o.Low == nil {
		t.Columns = t.Columns[:2]
	}
	for _, v := range o.Values {
		t.Add(v.Start, v.Value, v.Low, v.High)
	}
	return t
}
