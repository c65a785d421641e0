package cli

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// strategyNames returns what a flag names, nil where it is not given: without the blanks that people put behind
// commas. A flag that is given and names nothing is an error: as a script's variable that is not set, it would mean
// something else.
func strategyNames(cmd *cobra.Command, flag string) ([]string, error) {
	if !cmd.Flags().Changed(flag) {
		return nil, nil
	}
	names, err := cmd.Flags().GetStringSlice(flag)
	if err != nil {
		return nil, err
	}
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	if len(names) == 0 || slices.Contains(names, "") {
		return nil, fmt.Errorf("--%s names no strategy, or an empty one: want one or more, as energy,carbon+window "+
			"(see kubenergy strategies)", flag)
	}
	return names, nil
}

func newStrategies(t terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "strategies",
		Short:   "List the strategies that simulate and the scheduler know",
		Example: "  kubenergy strategies",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			wheres, _ := strategy.Names()
			starting, suspending := strategy.Families()
			w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
			for _, group := range []struct {
				title string
				names []string
			}{
				{"where:", wheres},
				{"where, of several clusters, in simulations:", strategy.Clusters()},
				{"when:", starting},
				{"when, and may suspend what is interruptible:", suspending},
			} {
				fmt.Fprintln(w, group.title)
				for _, name := range group.names {
					fmt.Fprintf(w, "  %s\t%s\n", name, strategy.Describe(name))
				}
			}
			fmt.Fprintf(w, "before a where, in simulations:\n  cap(LEAST-MOST):\t%s\n", strategy.Describe("cap"))
			fmt.Fprintf(w, "order: %s\n", strings.Join(sched.Orders(), ", "))
			return w.Flush()
		},
	}
}
