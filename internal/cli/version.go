package cli

import (
	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
)

func newVersion(t cmdutil.Terminal) *cobra.Command {
	var format *cmdutil.Choice
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program and of the Kubernetes client libraries",
		Long: "Print the version of this program and of the Kubernetes client libraries. " +
			"Use kubenergy doctor to check the version of the cluster.",
		Args: cmdutil.NoArguments,
		RunE: func(*cobra.Command, []string) error { return t.Print(cmdutil.ReadBuilt(), format.Value) },
	}
	format = cmdutil.Output(cmd.Flags(), "table", "json", "yaml")
	return cmd
}
