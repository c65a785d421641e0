// Package reference reads what users depend on where it is written: keys in Go files, fields in schemas, flags in the
// help of commands. test/surface lists it, and test/docs writes pages of it.
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

// A Code is what the Go files of the module, without those of tests, declare and say. Packages move and take new names,
// but texts that users see do not: only texts are taken from it.
type Code struct {
	Files     map[string][]*ast.File         // by folder
	constants map[string]map[string]ast.Expr // by folder and name
	folders   []string                       // of them, sorted
}

// ReadCode parses what the binaries are made of.
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

// Text returns what an expression is, if it is made of texts that are written down.
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

// Texts calls found with every text below a node, once with those that are put together of others.
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

// All calls found with every text there is.
func (c *Code) All(found func(text string)) {
	for folder, files := range c.Files {
		for _, file := range files {
			c.Texts(folder, file, found)
		}
	}
}

const ours = "kubenergy.io/"

// Keys of objects, and names that are no keys but as public: what other systems' users wrote, and what we answer to.
var (
	keys    = regexp.MustCompile(`^([a-z0-9-]+\.)+[a-z-]+/[A-Za-z0-9._-]+$`)
	modules = regexp.MustCompile(`^(modernc\.org|sigs\.k8s\.io|go\.uber\.org|go\.opentelemetry\.io)/`)
	names   = regexp.MustCompile(`^(kubenergy-(system|ca)|compute-gardener-scheduler|my-energy-scheduler` +
		`|workload-profile|scheduler-knowledge-base|profiles\.yaml)$`)
)

// IsKey reports whether a text is a key of objects, or a name that is as public.
func IsKey(text string) bool {
	return keys.MatchString(text) && !modules.MatchString(text) || names.MatchString(text)
}

// Aliases calls found with the entries of tables that hold a key of ours and one other: what stands for it.
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
