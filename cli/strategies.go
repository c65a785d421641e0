package cli

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

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
			_, suspending := sched.Families()
			w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "where:")
			for _, name := range wheres {
				fmt.Fprintf(w, "  %s\t%s\n", name, sched.Describe(name))
			}
			fmt.Fprintln(w, "when:")
			for _, name := range whens {
				if !slices.Contains(suspending, name) {
					fmt.Fprintf(w, "  %s\t%s\n", name, sched.Describe(name))
				}
			}
			fmt.Fprintln(w, "when, and may suspend what is interruptible:")
			for _, name := range suspending {
				fmt.Fprintf(w, "  %s\t%s\n", name, sched.Describe(name))
			}
			fmt.Fprintf(w, "before a where, in simulations:\n  cap(LEAST-MOST):\t%s\n", sched.Describe("cap"))
			fmt.Fprintf(w, "order: %s\n", strings.Join(sched.Orders(), ", "))
			return w.Flush()
		},
	}
}
