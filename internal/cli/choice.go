package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/internal/report"
)

// choice is the value of a flag that has one of a few words.
type choice struct {
	value string
	of    string // what the words are called in errors
	words []string
}

// choose adds a flag that has one of some words; where it is not given, it has the first.
func choose(flags *pflag.FlagSet, name, short, of, usage string, words ...string) *choice {
	c := &choice{words[0], of, words}
	flags.VarP(c, name, short, strings.TrimSpace(usage+" "+c.list()))
	return c
}

// output adds the flag -o, which names a format.
func output(flags *pflag.FlagSet, formats ...string) *choice {
	return choose(flags, "output", "o", "output format", "", formats...)
}

// list names the words.
func (c *choice) list() string { return orOf(c.words) }

// orOf names words of which one is to be chosen.
func orOf(words []string) string { return report.Listed(words, "or") }

// infer takes the word that a file's name ends in, unless the flag is given. It reports whether there is one.
func (c *choice) infer(flags *pflag.FlagSet, name, file string) (known bool) {
	ending := strings.TrimPrefix(filepath.Ext(file), ".")
	known = slices.Contains(c.words, ending) && !slices.Contains([]string{"table", "wide", "text"}, ending)
	if known && !flags.Changed(name) {
		c.value = ending
	}
	return known
}

func (c *choice) String() string { return c.value }

// Type is what help calls the value: any text.
func (c *choice) Type() string { return "string" }

// Set refuses other words.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("unknown %s %q: want %s", c.of, text, c.list())
	}
	c.value = text
	return nil
}
