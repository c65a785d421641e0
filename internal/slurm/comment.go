package slurm

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// marked matches annotations in a comment, such as kubenergy:allowed-delay=6h,expected-duration=45m. The comment
// may contain other text.
var marked = regexp.MustCompile(`(?:^|\s)kubenergy:(\S+)`)

// marksOf returns the annotations in a comment, or nil if there are none.
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

// namespaceOf returns the namespace name of a Slurm account, which policies, budgets and the ledger use. Characters
// that are invalid in a namespace name are replaced by dashes.
func namespaceOf(account string) string { return cmp.Or(workload.LabelName(account), "none") }
