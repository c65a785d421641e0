package cli

import (
	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
)

func newVersion(t cmdutil.Terminal) *cobra.Command {
	var format *cmdutil.Choice
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which commit this program is of, and which Kubernetes it was built for",
		Long: "Say which commit this program is of, and which Kubernetes it was built for. " +
			"kubenergy doctor looks at the cluster's.",
		Args: cmdutil.NoArguments,
		RunE: func(*cobra.Command, []string) error { return t.Print(cmdutil.ReadBuilt(), format.Value) },
	}
	format = cmdutil.Output(cmd.Flags(), "table", "json", "yaml")
	return cmd
}
