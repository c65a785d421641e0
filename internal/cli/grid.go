package cli

import (
	"bytes"
	"encoding/csv"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	forecastcmd "github.com/kubenergy/kubenergy/internal/cli/forecast"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

func newGrid(t cmdutil.Terminal) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "grid",
		Short:   "Convert files of carbon intensities and prices",
		Example: "  kubenergy grid convert --time-zone Europe/Berlin smard.csv > prices.csv",
		Args:    cmdutil.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGridConvert(t))
	return cmd
}

type gridFlags struct {
	options                                      grid.CSVOptions
	zone, timeZone, unit, decimal, dates, output string
}

func newGridConvert(t cmdutil.Terminal) *cobra.Command {
	var f gridFlags
	cmd := &cobra.Command{
		Use:   "convert FILE...",
		Short: "Convert a grid file of a provider to CSV with times in UTC",
		Long: `Convert one column of a grid file to CSV with the start of each interval in UTC and values in gCO2e/kWh,
or with --price in the currency per kWh. Several files and quoted patterns are joined in time. The separator is
detected, as are a decimal comma and the layouts of dates of ENTSO-E, SMARD, Electricity Maps, energy-charts.info and
gridstatus. If the file leaves one of them open, the error contains the flag to set.`,
		Example: `  kubenergy grid convert --time-zone Europe/Berlin --price smard.csv -o prices.csv
  kubenergy grid convert --time-zone America/New_York --column LMP --price --unit per-MWh lmp.csv > prices.csv`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmdutil.UsageErrorf("want one or more files, e.g. %s DE.csv", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return f.convert(t, args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.timeZone, "time-zone", "",
		"IANA time zone of times without an offset, e.g. Europe/Berlin or UTC")
	flags.StringVar(&f.options.Column, "column", "", "column of the values (default: the only one with a unit)")
	flags.StringVar(&f.zone, "zone", "", "grid zone, required if the file contains several zones")
	flags.BoolVar(&f.options.Price, "price", false, "convert prices instead of carbon intensities")
	flags.StringVar(&f.unit, "unit", "",
		"unit of the values, e.g. per-MWh, ct/kWh or kg/MWh (default: in the column name)")
	flags.StringVar(&f.decimal, "decimal", "", "decimal separator: . or , (default: detected)")
	flags.StringVar(&f.dates, "dates", "",
		"order of dates such as 01/02/2024: day-first or month-first (default: detected)")
	flags.DurationVar(&f.options.Fill, "fill", 0, cmdutil.FillUsage)
	flags.StringVarP(&f.output, "output", "o", "", "output file (default: standard output)")
	return cmd
}

func (f *gridFlags) convert(t cmdutil.Terminal, files []string) error {
	f.options.Zone = grid.Zone(f.zone)
	if err := f.options.SetFormat(f.timeZone, f.unit, f.decimal, f.dates); err != nil {
		return cmdutil.NewUsageError(err)
	}
	signal, zone, err := forecastcmd.ReadGrid(t, f.options, files...)
	if err != nil {
		return cmdutil.NewUsageError(err)
	}
	header, end := []string{"datetime_utc", "ci_g_per_kwh", "estimated"}, []string{"0"}
	if f.options.Price {
		header[1] = "price_per_kwh"
	}
	if signal.Quality == energy.Estimated {
		end[0] = "1"
	}
	if zone != "" {
		header, end = append(header, "zone"), append(end, string(zone))
	}
	var text bytes.Buffer
	out := csv.NewWriter(&text)
	_ = out.Write(header)
	s := signal.Series
	for i := range s.Len() {
		row := []string{
			s.Start().Add(time.Duration(i) * s.Step()).Format(time.RFC3339),
			strconv.FormatFloat(s.Value(i), 'g', -1, 64),
		}
		_ = out.Write(append(row, end...))
	}
	out.Flush() // a buffer returns no errors
	if f.output != "" {
		return os.WriteFile(f.output, text.Bytes(), 0o644)
	}
	_, err = t.Out.Write(text.Bytes())
	return err
}
