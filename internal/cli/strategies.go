package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

func newStrategies(t cmdutil.Terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "strategies",
		Short:   "List the strategies supported by simulate and the scheduler",
		Example: "  kubenergy strategies",
		Args:    cmdutil.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			wheres, _ := strategy.Names()
			starting, suspending := strategy.Families()
			w := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
			for _, group := range []struct {
				title string
				names []string
			}{
				{"placement:", wheres},
				{"placement across clusters, in simulations only:", strategy.Clusters()},
				{"start rule:", starting},
				{"start rule that may suspend interruptible jobs:", suspending},
			} {
				fmt.Fprintln(w, group.title)
				for _, name := range group.names {
					fmt.Fprintf(w, "  %s\t%s\n", name, strategy.Describe(name))
				}
			}
			fmt.Fprintf(w, "prefix of a placement, in simulations only:\n  cap(LEAST-MOST):\t%s\n",
				strategy.Describe("cap"))
			fmt.Fprintf(w, "queue order: %s\n", strings.Join(sched.Orders(), ", "))
			return w.Flush()
		},
	}
}
