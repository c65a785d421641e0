package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/sched"
)

func newStrategies(t terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "strategies",
		Short:   "List the strategies that simulate and the scheduler know",
		Example: "  kubenergy strategies",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			wheres, whens := sched.Names()
			_, err := fmt.Fprintf(t.out, "where: %s\nwhen:  %s\n", strings.Join(wheres, ", "), strings.Join(whens, ", "))
			return err
		},
	}
}
