package cmdutil

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/internal/humanize"
)

// Choice is the value of a flag that has one of a few words.
type Choice struct {
	Value string
	of    string // what the words are called in errors
	words []string
}

// Choose adds a flag that has one of some words; where it is not given, it has the first.
func Choose(flags *pflag.FlagSet, name, short, of, usage string, words ...string) *Choice {
	c := &Choice{words[0], of, words}
	flags.VarP(c, name, short, strings.TrimSpace(usage+" "+c.list()))
	return c
}

// Output adds the flag -o, which names a format.
func Output(flags *pflag.FlagSet, formats ...string) *Choice {
	return Choose(flags, "output", "o", "output format", "", formats...)
}

// list names the words.
func (c *Choice) list() string { return OrOf(c.words) }

// OrOf names words of which one is to be chosen.
func OrOf(words []string) string { return humanize.Listed(words, "or") }

// Infer takes the word that a file's name ends in, unless the flag is given. It reports whether there is one.
func (c *Choice) Infer(flags *pflag.FlagSet, name, file string) (known bool) {
	ending := strings.TrimPrefix(filepath.Ext(file), ".")
	known = slices.Contains(c.words, ending) && !slices.Contains([]string{"table", "wide", "text"}, ending)
	if known && !flags.Changed(name) {
		c.Value = ending
	}
	return known
}

func (c *Choice) String() string { return c.Value }

// Type is what help calls the value: any text.
func (c *Choice) Type() string { return "string" }

// Set refuses other words.
func (c *Choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("unknown %s %q: want %s", c.of, text, c.list())
	}
	c.Value = text
	return nil
}
