package cmdutil

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// FillUsage is the help text of the flag --fill.
const FillUsage = "maximum length of gaps to fill in the grid file, e.g. 3h; the intensity is then marked as estimated"

// StrategyNames returns the values of a flag without surrounding spaces, or nil if the flag is not set. An empty
// value is an error, because it is likely the result of an unset variable in a script.
func StrategyNames(cmd *cobra.Command, flag string) ([]string, error) {
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
		return nil, fmt.Errorf("--%s contains no strategy or an empty one: want one or more, e.g. "+
			"energy,carbon+window (see kubenergy strategies)", flag)
	}
	return names, nil
}
