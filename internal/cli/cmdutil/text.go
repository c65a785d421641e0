package cmdutil

import "github.com/kubenergy/kubenergy/internal/humanize"

// Count is a number of things, in words that fit it.
func Count(n int, thing string) string {
	return humanize.Plural(n, thing, thing+"s")
}
