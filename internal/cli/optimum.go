package cli

import (
	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/report"
)

type optimumFlags struct {
	cmdutil.ControllerFlags
	spanFlags
	output *cmdutil.Choice
}

func newOptimum(t cmdutil.Terminal) *cobra.Command {
	var f optimumFlags
	cmd := &cobra.Command{
		Use:   "optimum",
		Short: "Compare the starts of held jobs with the best ones in hindsight",
		Long: `Compare the emissions of the held jobs of an interval, by default of the last seven days, with those of
their best permitted starts in hindsight. The output contains the part of the possible savings that was achieved (η),
the causes of the rest, and the savings of one more hour of allowed delay. The parts result from repeating the recorded
decisions with the actual carbon intensities and run times. Each job is considered alone, with its booked energy. Times
are in UTC.`,
		Example: `  kubenergy optimum
  kubenergy optimum --from -14d --to -7d -n batch -o json`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, t) },
	}
	flags := cmd.Flags()
	f.ControllerFlags.Add(flags, "")
	f.spanFlags.add(flags, "")
	f.output = cmdutil.Output(flags, "text", "json")
	return cmd
}

func (f *optimumFlags) run(cmd *cobra.Command, t cmdutil.Terminal) error {
	q, err := f.query(t.Now())
	if err != nil {
		return cmdutil.NewUsageError(err)
	}
	c, err := f.Connect(cmd.Context(), t, f.namespaces...)
	if err != nil {
		return err
	}
	evidence, known, missing, err := c.Evidence(cmd.Context(), q, true, f.decisions)
	if err != nil {
		return err
	}
	if evidence == nil || !known {
		evidence = &report.Evidence{}
	}
	o := report.FindOptimum(evidence, q.From, q.To)
	if o.Jobs == 0 {
		o.Notes = missing
	}
	return t.Print(o, f.output.Value)
}
