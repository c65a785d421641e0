// Package reference extracts the user-facing API of the module from its sources: keys from Go files, fields from
// schemas and flags from the help of commands. test/surface lists this API, and test/docs generates reference pages
// from it.
package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
)

// A Code contains the parsed Go files of the module without tests. Only string literals and constants are read from
// it, because packages may be moved or renamed while user-facing strings are stable.
type Code struct {
	Files     map[string][]*ast.File         // by directory
	constants map[string]map[string]ast.Expr // by directory and name
	folders   []string                       // sorted keys of Files
}

// ReadCode parses the source files of the binaries.
func ReadCode(t testing.TB) *Code {
	t.Helper()
	c := &Code{Files: map[string][]*ast.File{}, constants: map[string]map[string]ast.Expr{}}
	skip := regexp.MustCompile(`^(\..+|_.*|testdata|test|hack|bin|out|.+test)$`)
	err := filepath.WalkDir(kit.Root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != kit.Root && skip.MatchString(entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
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

func (c *Code) add(folder string, file *ast.File) {
	c.Files[folder] = append(c.Files[folder], file)
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

// Text returns the value of an expression that consists of string literals and constants.
func (c *Code) Text(folder string, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := c.Text(folder, e.X)
		right, also := c.Text(folder, e.Y)
		return left + right, ok && also && e.Op == token.ADD
	case *ast.Ident:
		if value := c.constants[folder][e.Name]; value != nil {
			return c.Text(folder, value)
		}
	case *ast.SelectorExpr:
		of, ok := e.X.(*ast.Ident)
		for _, other := range c.folders {
			if value := c.constants[other][e.Sel.Name]; ok && value != nil && filepath.Base(other) == of.Name {
				return c.Text(other, value)
			}
		}
	}
	return "", false
}

// Texts calls found with every string below a node. A concatenated string is reported once as a whole.
func (c *Code) Texts(folder string, below ast.Node, found func(text string)) {
	ast.Inspect(below, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := c.Text(folder, e)
		if ok {
			found(text)
		}
		return !ok
	})
}

// All calls found with every string of the module.
func (c *Code) All(found func(text string)) {
	for folder, files := range c.Files {
		for _, file := range files {
			c.Texts(folder, file, found)
		}
	}
}

const ours = "kubenergy.io/"

// keys matches keys of objects. names matches other public names, such as names set by users of other systems that
// KubEnergy also accepts.
var (
	keys    = regexp.MustCompile(`^([a-z0-9-]+\.)+[a-z-]+/[A-Za-z0-9._-]+$`)
	modules = regexp.MustCompile(`^(modernc\.org|sigs\.k8s\.io|go\.uber\.org|go\.opentelemetry\.io)/`)
	names   = regexp.MustCompile(`^(kubenergy-(system|ca)|compute-gardener-scheduler|my-energy-scheduler` +
		`|workload-profile|scheduler-knowledge-base|profiles\.yaml)$`)
)

// IsKey reports whether a string is a key of objects or another public name.
func IsKey(text string) bool {
	return keys.MatchString(text) && !modules.MatchString(text) || names.MatchString(text)
}

// Aliases calls found with each pair of a KubEnergy key and the key of another system that is its alias. Pairs are
// read from composite literals.
func (c *Code) Aliases(found func(our, their string)) {
	for folder, files := range c.Files {
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n.(type) {
				case *ast.KeyValueExpr, *ast.CompositeLit:
					if our, their, ok := c.alias(folder, n); ok {
						found(our, their)
					}
				}
				return true
			})
		}
	}
}

func (c *Code) alias(folder string, n ast.Node) (our, their string, ok bool) {
	of, to := map[string]bool{}, map[string]bool{}
	c.Texts(folder, n, func(text string) {
		switch {
		case strings.HasPrefix(text, ours):
			our, of[text] = text, true
		case keys.MatchString(text) || text == "workload-profile":
			their, to[text] = text, true
		}
	})
	return our, their, len(of) == 1 && len(to) == 1
}
