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

func newGridConvert(t cmdutil.Terminal) *cobra.Command {
	var o grid.CSVOptions
	var timeZone, output string
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
		RunE: func(_ *cobra.Command, args []string) error {
			if err := o.SetFormat(timeZone, o.Unit, o.Decimal, o.Dates); err != nil {
				return cmdutil.NewUsageError(err)
			}
			signal, zone, err := forecastcmd.ReadGrid(t, o, args...)
			if err != nil {
				return cmdutil.NewUsageError(err)
			}
			var text bytes.Buffer
			_ = csv.NewWriter(&text).WriteAll(gridTable(signal, zone, o.Price)) // a buffer returns no errors
			if output != "" {
				return os.WriteFile(output, text.Bytes(), 0o644)
			}
			_, err = text.WriteTo(t.Out)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&timeZone, "time-zone", "",
		"IANA time zone of times without an offset, e.g. Europe/Berlin or UTC")
	flags.StringVar(&o.Column, "column", "", "column of the values (default: the only one with a unit)")
	flags.StringVar((*string)(&o.Zone), "zone", "", "grid zone, required if the file contains several zones")
	flags.BoolVar(&o.Price, "price", false, "convert prices instead of carbon intensities")
	flags.StringVar(&o.Unit, "unit", "",
		"unit of the values, e.g. per-MWh, ct/kWh or kg/MWh (default: in the column name)")
	flags.StringVar(&o.Decimal, "decimal", "", "decimal separator: . or , (default: detected)")
	flags.StringVar(&o.Dates, "dates", "",
		"order of dates such as 01/02/2024: day-first or month-first (default: detected)")
	flags.DurationVar(&o.Fill, "fill", 0, cmdutil.FillUsage)
	flags.StringVarP(&output, "output", "o", "", "output file (default: standard output)")
	return cmd
}

// gridTable returns the rows of a file that grid.ReadCSV reads without options.
func gridTable(signal grid.Signal, zone grid.Zone, price bool) [][]string {
	header, end := []string{"datetime_utc", "ci_g_per_kwh", "estimated"}, []string{"0"}
	if price {
		header[1] = "price_per_kwh"
	}
	if signal.Quality == energy.Estimated {
		end[0] = "1"
	}
	if zone != "" {
		header, end = append(header, "zone"), append(end, string(zone))
	}
	table := [][]string{header}
	for i := range signal.Series.Len() {
		at := signal.Series.Start().Add(time.Duration(i) * signal.Series.Step())
		value := strconv.FormatFloat(signal.Series.Value(i), 'g', -1, 64)
		table = append(table, append([]string{at.Format(time.RFC3339), value}, end...))
	}
	return table
}
