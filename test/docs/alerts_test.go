package docs

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/reference"
)

// A ruleGroup is a group of alerting rules in the format of Prometheus.
type ruleGroup struct {
	Rules []struct {
		Alert, For          string
		Labels, Annotations map[string]string
	}
}

var (
	alertLabel = regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`)
	alertValue = regexp.MustCompile(`\{\{ \$value[^}]*\}\}`)
)

// TestAlerts generates the table in docs/reference/alerts.md from the rules of the chart.
func TestAlerts(t *testing.T) {
	var rows strings.Builder
	for _, name := range []string{"alerts.yaml", "agent.yaml"} {
		text, err := os.ReadFile(filepath.Join(kit.Root, "charts/kubenergy/files/metrics", name))
		if err != nil {
			t.Fatal(err)
		}
		var groups []ruleGroup
		if err := yaml.Unmarshal(text, &groups); err != nil {
			t.Fatal(err)
		}
		for _, group := range groups {
			for _, r := range group.Rules {
				summary, about := plain(r.Annotations["summary"]), plain(r.Annotations["description"])
				sentences := strings.SplitAfterN(about, ". ", 3) // the alert itself contains the others
				about = strings.TrimSpace(strings.Join(sentences[:min(2, len(sentences))], ""))
				if summary == "" || about == "" || strings.Contains(summary+about, "{{") {
					t.Errorf("%s: alert %s lacks a summary or a description, or has an unsupported template",
						name, r.Alert)
				}
				fmt.Fprintf(&rows, "* `%s` (%s, %s): %s. %s\n", r.Alert, r.Labels["severity"], cmp.Or(r.For, "0m"),
					summary, about)
			}
		}
	}
	reference.Hold(t, "docs/reference/alerts.md", "./test/docs -run TestAlerts", rows.String(), *rewrite)
}

// plain replaces labels in a template by their names in capitals, and values by an ellipsis.
func plain(template string) string {
	return alertLabel.ReplaceAllStringFunc(alertValue.ReplaceAllString(template, "…"), func(found string) string {
		return strings.ToUpper(alertLabel.FindStringSubmatch(found)[1])
	})
}

// eventNames matches the constants of event reasons. reasonNames matches further constants that are event reasons
// in packages that do not set conditions of our kinds.
var (
	eventNames  = regexp.MustCompile(`^event[A-Z]`)
	reasonNames = regexp.MustCompile(`^reason[A-Z]`)
)

// TestEvents compares the event reasons listed in docs/reference/alerts.md with the constants in the code.
func TestEvents(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(kit.Root, "docs/reference/alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Events\n")
	var have []string
	for _, m := range regexp.MustCompile("(?m)^\\* `(\\w+)` \\(").FindAllStringSubmatch(section, -1) {
		have = append(have, m[1])
	}
	c := reference.ReadCode(t)
	want := []string{"WouldHold"} // a literal without a constant
	for folder, all := range c.Files {
		for _, file := range all {
			ast.Inspect(file, func(n ast.Node) bool {
				group, ok := n.(*ast.GenDecl)
				for i := 0; ok && group.Tok == token.CONST && i < len(group.Specs); i++ {
					spec := group.Specs[i].(*ast.ValueSpec)
					name := spec.Names[0].Name
					if len(spec.Values) == 1 && (eventNames.MatchString(name) ||
						(strings.HasSuffix(folder, "internal/scheduler/hold") || strings.HasSuffix(folder, "internal/power")) &&
							reasonNames.MatchString(name)) {
						if reason, ok := c.Text(folder, spec.Values[0]); ok {
							want = append(want, reason)
						}
					}
				}
				return true
			})
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("events in docs/reference/alerts.md = %q, want %q", have, want)
	}
}
