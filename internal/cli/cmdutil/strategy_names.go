package cmdutil

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// FillUsage is the help text of the flag --fill.
const FillUsage = "up to how long gaps of the grid file are filled, as 3h; the intensity is then marked as estimated"

// StrategyNames returns what a flag names, nil where it is not given: without the blanks that people put behind
// commas. A flag that is given and names nothing is an error: as a script's variable that is not set, it would mean
// something else.
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
		return nil, fmt.Errorf("--%s names no strategy, or an empty one: want one or more, as energy,carbon+window "+
			"(see kubenergy strategies)", flag)
	}
	return names, nil
}
