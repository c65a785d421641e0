package cmdutil

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Choice is a flag value that must be one of a list of words.
type Choice struct {
	Value string
	of    string // noun for the value in errors
	words []string
}

// Choose adds a flag that accepts one of the given words. It defaults to the first one.
func Choose(flags *pflag.FlagSet, name, short, of, usage string, words ...string) *Choice {
	c := &Choice{words[0], of, words}
	flags.VarP(c, name, short, strings.TrimSpace(usage+" "+OrOf(c.words)))
	return c
}

// Output adds the flag -o for the output format.
func Output(flags *pflag.FlagSet, formats ...string) *Choice {
	return Choose(flags, "output", "o", "output format", "", formats...)
}

// OrOf joins alternatives with commas and "or".
func OrOf(words []string) string { return humanize.Listed(words, "or") }

// Infer sets the value to the extension of a file name unless the flag is set. It reports whether the extension is
// one of the words.
func (c *Choice) Infer(flags *pflag.FlagSet, name, file string) (known bool) {
	ending := strings.TrimPrefix(filepath.Ext(file), ".")
	known = slices.Contains(c.words, ending) && !slices.Contains([]string{"table", "wide", "text"}, ending)
	if known && !flags.Changed(name) {
		c.Value = ending
	}
	return known
}

func (c *Choice) String() string { return c.Value }

// Type returns the type of the value in help texts.
func (c *Choice) Type() string { return "string" }

// Set implements pflag.Value. It returns an error for unknown words.
func (c *Choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("unknown %s %q: want %s", c.of, text, OrOf(c.words))
	}
	c.Value = text
	return nil
}

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
	names = sliceutil.Map(names, strings.TrimSpace)
	if len(names) == 0 || slices.Contains(names, "") {
		return nil, fmt.Errorf("--%s contains no strategy or an empty one: want one or more, e.g. "+
			"energy,carbon+window (see kubenergy strategies)", flag)
	}
	return names, nil
}
