package surface

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A code is what the Go files of the module, without those of tests, declare and say. Packages move and take new names,
// but texts that users see do not: only texts are taken from it.
type code struct {
	files     map[string][]*ast.File         // by folder
	constants map[string]map[string]ast.Expr // by folder and name
	folders   []string                       // of them, sorted
}

// readCode parses what the binaries are made of.
func readCode(t *testing.T) *code {
	t.Helper()
	c := &code{files: map[string][]*ast.File{}, constants: map[string]map[string]ast.Expr{}}
	skip := regexp.MustCompile(`^(\..+|_.*|testdata|test|build|bin|out|.+test)$`)
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != root && skip.MatchString(entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err == nil {
			c.add(filepath.Dir(name), file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c.folders = slices.Sorted(maps.Keys(c.constants))
	return c
}

func (c *code) add(folder string, file *ast.File) {
	c.files[folder] = append(c.files[folder], file)
	if c.constants[folder] == nil {
		c.constants[folder] = map[string]ast.Expr{}
	}
	for _, declared := range file.Decls {
		group, ok := declared.(*ast.GenDecl)
		for i := 0; ok && group.Tok == token.CONST && i < len(group.Specs); i++ {
			spec := group.Specs[i].(*ast.ValueSpec)
			for at, value := range spec.Values {
				c.constants[folder][spec.Names[at].Name] = value
			}
		}
	}
}

// text returns what an expression is, if it is made of texts that are written down.
func (c *code) text(folder string, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := c.text(folder, e.X)
		right, also := c.text(folder, e.Y)
		return left + right, ok && also && e.Op == token.ADD
	case *ast.Ident:
		if value := c.constants[folder][e.Name]; value != nil {
			return c.text(folder, value)
		}
	case *ast.SelectorExpr:
		of, ok := e.X.(*ast.Ident)
		for _, other := range c.folders {
			if value := c.constants[other][e.Sel.Name]; ok && value != nil && filepath.Base(other) == of.Name {
				return c.text(other, value)
			}
		}
	}
	return "", false
}

// texts calls found with every text below a node, once with those that are put together of others.
func (c *code) texts(folder string, below ast.Node, found func(text string)) {
	ast.Inspect(below, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := c.text(folder, e)
		if ok {
			found(text)
		}
		return !ok
	})
}

// all calls found with every text there is.
func (c *code) all(found func(text string)) {
	for folder, files := range c.files {
		for _, file := range files {
			c.texts(folder, file, found)
		}
	}
}

const ours = "kubenergy.io/"

// Keys of objects, and names that are no keys but as public: what other systems' users wrote, and what we answer to.
var (
	keys    = regexp.MustCompile(`^([a-z0-9-]+\.)+[a-z-]+/[A-Za-z0-9._-]+$`)
	modules = regexp.MustCompile(`^(modernc\.org|sigs\.k8s\.io|go\.uber\.org)/`)
	names   = regexp.MustCompile(`^(kubenergy-(system|ca)|compute-gardener-scheduler|my-energy-scheduler` +
		`|workload-profile|scheduler-knowledge-base|profiles\.yaml)$`)
	inChart = regexp.MustCompile(`\b(kubenergy|compute-gardener-scheduler\.kubernetes|energy\.thesis)\.io/[\w.-]*\w`)
)

// TestKeys looks for annotations, labels and other keys, for tables that say which of them stand for which, and for the
// fields of the plugins' arguments.
func TestKeys(t *testing.T) {
	f := facts{}
	c := readCode(t)
	for folder, files := range c.files {
		for _, file := range files {
			c.texts(folder, file, func(text string) {
				if isKey(text) {
					f.add(text)
				}
			})
			c.addAliases(f, folder, file)
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

func isKey(text string) bool {
	return keys.MatchString(text) && !modules.MatchString(text) || names.MatchString(text)
}

// addAliases adds the entries of tables that hold a key of ours and one other: what stands for it.
func (c *code) addAliases(f facts, folder string, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.KeyValueExpr, *ast.CompositeLit:
			our, their := facts{}, facts{}
			c.texts(folder, n, func(text string) {
				switch {
				case strings.HasPrefix(text, ours):
					our[text] = true
				case keys.MatchString(text) || text == "workload-profile":
					their[text] = true
				}
			})
			if len(our) == 1 && len(their) == 1 {
				f.add(slices.Collect(maps.Keys(our))[0], "as", slices.Collect(maps.Keys(their))[0])
			}
		}
		return true
	})
}

// argumentTypes are the structs that a KubeSchedulerConfiguration holds, by the names that the list has for them: users
// do not see what Go calls them.
var argumentTypes = map[string]string{
	"EnergyArgs": "EnergyArgs", "HoldArgs": "HoldArgs", "Limits": "BatchArgs", "batch.Limits": "BatchArgs",
}

// addArguments adds the fields of the structs that a KubeSchedulerConfiguration holds.
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

// deployed calls found with every file that is applied or installed as it is.
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
	noVariable = map[string]bool{"NON_DIRECT_DEBIT": true} // a tariff's
	expanded   = regexp.MustCompile(`\bKUBENERGY_[A-Z_]+\b`)
)

// TestVariables looks for texts that are names of environment variables.
func TestVariables(t *testing.T) {
	f := facts{}
	readCode(t).all(func(text string) {
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
	part     = regexp.MustCompile(`_(bucket|sum|count|)$`) // of a histogram, or of a name
	recorded = regexp.MustCompile(`(?m)((?:record|alert): [A-Za-z]\w*)`)
	row      = regexp.MustCompile("^\\| `[a-z]+_")
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// TestMetrics reads docs/reference/metrics.md, names in the code, and the rules, which have the names of other systems.
// Tests of the agent and of the controller hold the document to their pages; nothing holds the scheduler's part to its
// page.
func TestMetrics(t *testing.T) {
	f := facts{}
	readCode(t).all(func(text string) {
		if metric.MatchString(text) && !part.MatchString(text) {
			f.add("name", text)
		}
	})
	binary := ""
	for _, line := range lines(t, filepath.Join(root, "docs/reference/metrics.md")) {
		cells := strings.Split(line, "|")
		switch {
		case strings.HasPrefix(line, "## "):
			binary = strings.TrimPrefix(line, "## ")
		case strings.HasPrefix(binary, "kubenergy-") && row.MatchString(line) && len(cells) > 4:
			for _, name := range quoted.FindAllStringSubmatch(cells[1], -1) {
				f.add("name", name[1])
				f.add(binary, name[1], cells[2], cells[3])
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
