package slurm

import (
	"regexp"
	"strings"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// marked finds what a comment says to us, between other words: kubenergy:allowed-delay=6h,expected-duration=45m.
var marked = regexp.MustCompile(`(?:^|\s)kubenergy:(\S+)`)

// marksOf returns what a comment says, as the annotations that say the same; nil: nothing.
func marksOf(comment string) map[string]string {
	m := marked.FindStringSubmatch(comment)
	if m == nil {
		return nil
	}
	marks := map[string]string{}
	for entry := range strings.SplitSeq(m[1], ",") {
		key, value, _ := strings.Cut(entry, "=")
		if key != "" {
			marks[v1alpha1.Prefix+key] = value
		}
	}
	return marks
}

// namespaceOf returns the namespace that an account is: policies, budgets and the ledger know it by that. Characters
// that no namespace has become dashes.
func namespaceOf(account string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(account))
	const longest = 63
	if name = strings.Trim(name[:min(len(name), longest)], "-"); name == "" {
		return "none"
	}
	return name
}
