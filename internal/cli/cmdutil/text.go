package cmdutil

import "github.com/kubenergy/kubenergy/internal/report"

// Count is a number of things, in words that fit it.
func Count(n int, thing string) string {
	return report.Plural(n, thing, thing+"s")
}
