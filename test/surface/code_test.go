package surface

import (
	"cmp"
	"go/ast"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit/reference"
)

var inChart = regexp.MustCompile(`\b(kubenergy|compute-gardener-scheduler\.kubernetes|energy\.thesis)\.io/[\w.-]*\w`)

// TestKeys lists annotations, labels and other keys, tables of aliases, and the fields of plugin arguments.
func TestKeys(t *testing.T) {
	f := facts{}
	c := reference.ReadCode(t)
	c.All(func(text string) {
		if reference.IsKey(text) {
			f.add(text)
		}
	})
	c.Aliases(func(our, their string) { f.add(our, "as", their) })
	for _, files := range c.Files {
		for _, file := range files {
			addArguments(f, file)
		}
	}
	deployed(t, func(text string) {
		for _, key := range inChart.FindAllString(text, -1) {
			f.add(key, "in manifests")
		}
	})
	f.check(t, "keys")
}

// argumentTypes maps the structs in a KubeSchedulerConfiguration to their names in the list, because users do not
// see the names of Go types.
var argumentTypes = map[string]string{
	"EnergyArgs": "EnergyArgs", "HoldArgs": "HoldArgs", "Limits": "BatchArgs", "batch.Limits": "BatchArgs",
}

// addArguments adds the fields of structs in a KubeSchedulerConfiguration.
func addArguments(f facts, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || argumentTypes[spec.Name.Name] == "" {
			return true
		}
		fields, ok := spec.Type.(*ast.StructType)
		for i := 0; ok && i < len(fields.Fields.List); i++ {
			if tag := fields.Fields.List[i].Tag; tag != nil {
				kind := types.ExprString(fields.Fields.List[i].Type)
				f.add("argument", argumentTypes[spec.Name.Name], cmp.Or(argumentTypes[kind], kind), tag.Value)
			}
		}
		return true
	})
}

// deployed calls found with every file that is applied or installed without changes.
func deployed(t *testing.T, found func(text string)) {
	t.Helper()
	for _, folder := range []string{"charts", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(name) == ".go" || filepath.Ext(name) == ".md" {
				return err
			}
			text, err := os.ReadFile(name)
			found(string(text))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

var (
	variable   = regexp.MustCompile(`^([A-Z][A-Z0-9]*(_[A-Z0-9]+)+_?|TERM|COLUMNS|KUBECONFIG|GOMAXPROCS)$`)
	noVariable = map[string]bool{"NON_DIRECT_DEBIT": true} // a tariff
	expanded   = regexp.MustCompile(`\bKUBENERGY_[A-Z_]+\b`)
)

// TestVariables lists string literals that are names of environment variables.
func TestVariables(t *testing.T) {
	f := facts{}
	reference.ReadCode(t).All(func(text string) {
		if variable.MatchString(text) && !noVariable[text] {
			f.add(text)
		}
	})
	deployed(t, func(text string) {
		for _, name := range expanded.FindAllString(text, -1) {
			f.add(name, "in manifests")
		}
	})
	f.check(t, "variables")
}

var (
	metric   = regexp.MustCompile(`^kubenergy_[a-z0-9_]+$`)
	part     = regexp.MustCompile(`_(bucket|sum|count|)$`) // part of a histogram or of a name
	recorded = regexp.MustCompile(`(?m)((?:record|alert): [A-Za-z]\w*)`)
	item     = regexp.MustCompile("^\\* (`[a-z]+_[^`]*`(?:, `[^`]*`)*)(.*)")
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// typeAndLabels returns the type and the labels in the parentheses at the start of a text, as in " (gauge; `node`)".
func typeAndLabels(text string) (kind, labels string) {
	if !strings.HasPrefix(text, " (") {
		return "", ""
	}
	depth := 0
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 && r == ')' {
			text = text[2:i]
			break
		}
	}
	kind, labels, _ = strings.Cut(text, "; `")
	if labels != "" {
		labels = "`" + labels
	}
	return kind, labels
}

// TestMetrics lists the metrics in docs/reference/metrics.md, metric names in the code and rules with names of
// other systems. Tests of the agent and the controller compare the document with their metrics pages. The metrics
// of the scheduler are not compared.
func TestMetrics(t *testing.T) {
	f := facts{}
	reference.ReadCode(t).All(func(text string) {
		if metric.MatchString(text) && !part.MatchString(text) {
			f.add("name", text)
		}
	})
	binary := ""
	page := strings.Join(lines(t, filepath.Join(root, "docs/reference/metrics.md")), "\n")
	for line := range strings.SplitSeq(strings.ReplaceAll(page, "\n  ", " "), "\n") {
		m := item.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "## "):
			binary = strings.TrimPrefix(line, "## ")
		case strings.HasPrefix(binary, "kubenergy-") && m != nil:
			kind, labels := typeAndLabels(m[2])
			for _, name := range quoted.FindAllStringSubmatch(m[1], -1) {
				f.add("name", name[1])
				f.add(binary, name[1], kind, labels)
			}
		}
	}
	deployed(t, func(text string) {
		for _, m := range recorded.FindAllStringSubmatch(text, -1) {
			f.add("rule", m[1])
		}
	})
	f.check(t, "metrics")
}
