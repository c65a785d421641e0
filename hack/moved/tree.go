package main

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/kubenergy/kubenergy/"

// A decl is a top-level declaration of a function, a type, a variable, a constant, or a group of constants that
// depend on each other.
type decl struct {
	file, name string
	tree       string   // canonical form, which must be equal before and after
	idents     []string // names in source order
	texts      []string // strings and directives in source order
}

func (d *decl) String() string { return d.file + ": " + d.name }

// parse returns the declarations of a file.
func parse(name string, text []byte) ([]*decl, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	condition := conditionOf(name, file)
	var all []*decl
	add := func(title string, node ast.Node, docs ...*ast.CommentGroup) {
		w := writer{from: node.Pos(), to: node.End(), imports: importsOf(file), indices: map[*ast.Object]int{}}
		w.tree.WriteString(condition)
		for _, doc := range docs {
			w.directives(doc)
		}
		w.value(reflect.ValueOf(node))
		all = append(all, &decl{name, title, w.tree.String(), w.idents, w.texts})
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			title := d.Name.Name
			if d.Recv != nil {
				title = receiver(d.Recv.List[0].Type) + "." + title
			}
			add(title, d, d.Doc)
		case *ast.GenDecl:
			switch {
			case d.Tok == token.IMPORT:
			case d.Tok == token.CONST && dependent(d):
				add(titleOf(d.Specs[0])+", …", d, d.Doc)
			default:
				for _, spec := range d.Specs {
					add(titleOf(spec), spec, d.Doc, docOf(spec))
				}
			}
		}
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:generate ") {
				all = append(all, &decl{name, "go:generate", "//go:generate", nil, []string{c.Text}})
			}
		}
	}
	return all, nil
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

func titleOf(s ast.Spec) string {
	switch s := s.(type) {
	case *ast.TypeSpec:
		return s.Name.Name
	case *ast.ValueSpec:
		names := make([]string, len(s.Names))
		for i, n := range s.Names {
			names[i] = n.Name
		}
		return strings.Join(names, ", ")
	}
	return "?"
}

func docOf(s ast.Spec) *ast.CommentGroup {
	switch s := s.(type) {
	case *ast.TypeSpec:
		return s.Doc
	case *ast.ValueSpec:
		return s.Doc
	}
	return nil
}

// dependent reports whether the constants of a group depend on their position in the group.
func dependent(d *ast.GenDecl) (yes bool) {
	for _, spec := range d.Specs {
		if v, ok := spec.(*ast.ValueSpec); ok && len(v.Values) == 0 {
			return true
		}
		ast.Inspect(spec, func(n ast.Node) bool {
			if i, ok := n.(*ast.Ident); ok && i.Name == "iota" {
				yes = true
			}
			return true
		})
	}
	return yes
}

// suffix matches the suffixes of file names that are build constraints and that occur in this repository.
var suffix = regexp.MustCompile(`(_(?:linux|darwin|windows|unix))?(_(?:amd64|arm64|arm|386))?(_test)?\.go$`)

// conditionOf returns the build constraints of a file. Packages in directories with the suffix "test" are part of
// the tests.
func conditionOf(name string, file *ast.File) string {
	condition := suffix.FindString(path.Base(name)) + " "
	if strings.HasSuffix(path.Dir(name), "test") && !strings.HasSuffix(name, "_test.go") {
		condition = "_test" + condition
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if constraint.IsGoBuild(c.Text) {
				condition += c.Text + " "
			}
		}
	}
	return condition
}

// importsOf returns the import paths of a file by package name.
func importsOf(file *ast.File) map[string]string {
	all := map[string]string{}
	for _, spec := range file.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(to)
		if version.MatchString(name) && strings.Count(to, "/") > 1 && !strings.HasPrefix(to, "k8s.io/") {
			name = path.Base(path.Dir(to))
		}
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "go-"), ".")
		if spec.Name != nil {
			name = spec.Name.Name
		}
		all[name] = to
	}
	return all
}

var version = regexp.MustCompile(`^v[0-9]+$`)

// A writer writes the canonical form of a declaration.
type writer struct {
	from, to token.Pos // position of the declaration
	imports  map[string]string
	indices  map[*ast.Object]int // indices of nested declarations in source order
	tree     strings.Builder
	idents   []string
	texts    []string
}

func (w *writer) directives(doc *ast.CommentGroup) {
	if doc == nil {
		return
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:") && !strings.HasPrefix(c.Text, "//go:generate ") {
			word, _, _ := strings.Cut(c.Text, " ")
			w.tree.WriteString(word + " ")
			w.texts = append(w.texts, c.Text)
		}
	}
}

// name writes the index of an identifier that is declared inside the declaration, or a placeholder for other
// identifiers. Predeclared identifiers are written unchanged.
func (w *writer) name(i *ast.Ident) {
	switch inside := i.Obj != nil && w.from <= i.Obj.Pos() && i.Obj.Pos() < w.to; {
	case i.Name == "_" || i.Obj == nil && types.Universe.Lookup(i.Name) != nil:
		w.tree.WriteString(i.Name + " ")
		return
	case inside:
		if _, known := w.indices[i.Obj]; !known {
			w.indices[i.Obj] = len(w.indices)
		}
		fmt.Fprintf(&w.tree, "#%d ", w.indices[i.Obj])
	default:
		w.tree.WriteString("# ")
	}
	w.idents = append(w.idents, i.Name)
}

// member writes a placeholder for the name of a field, a method or a declaration of the module.
func (w *writer) member(i *ast.Ident) {
	w.tree.WriteString("# ")
	w.idents = append(w.idents, i.Name)
}

// key returns the name in the key of a composite literal. It is usually a field, which the parser does not resolve,
// or a constant of the module.
func (w *writer) key(key ast.Expr) string {
	switch key := key.(type) {
	case *ast.Ident:
		return key.Name
	case *ast.SelectorExpr:
		if from, ok := w.qualified(key); ok && strings.HasPrefix(from+"/", module) {
			return key.Sel.Name
		}
	}
	return ""
}

// qualified returns the import path of the package that qualifies an identifier.
func (w *writer) qualified(s *ast.SelectorExpr) (from string, ok bool) {
	x, ok := s.X.(*ast.Ident)
	if !ok || x.Obj != nil {
		return "", false
	}
	from, ok = w.imports[x.Name]
	return from, ok
}

var ignored = []reflect.Type{
	reflect.TypeFor[*ast.CommentGroup](), reflect.TypeFor[*ast.Object](), reflect.TypeFor[*ast.Scope](),
}

// value writes the canonical form of a part of the syntax tree.
func (w *writer) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		w.value(v.Elem())
		return
	case reflect.Pointer:
		switch {
		case slices.Contains(ignored, v.Type()):
		case v.IsNil():
			w.tree.WriteString("- ")
		default:
			w.node(v)
		}
		return
	case reflect.Slice:
		fmt.Fprintf(&w.tree, "%d[", v.Len())
		for i := range v.Len() {
			w.value(v.Index(i))
		}
		w.tree.WriteString("] ")
		return
	case reflect.Invalid:
		w.tree.WriteString("- ")
		return
	}
	fmt.Fprint(&w.tree, v.Interface(), " ")
}

func (w *writer) node(v reflect.Value) {
	switch n := v.Interface().(type) {
	case *ast.Ident:
		w.name(n)
		return
	case *ast.FuncDecl:
		if n.Recv != nil { // methods may have predeclared names, like fields
			w.tree.WriteString("method ")
			w.member(n.Name)
			w.value(reflect.ValueOf(n.Recv))
			w.value(reflect.ValueOf(n.Type))
			w.value(reflect.ValueOf(n.Body))
			return
		}
	case *ast.SelectorExpr:
		if from, ok := w.qualified(n); ok && !strings.HasPrefix(from+"/", module) {
			w.tree.WriteString(from + "." + n.Sel.Name + " ")
			return
		} else if !ok {
			w.tree.WriteString(". ")
			w.value(reflect.ValueOf(n.X))
		}
		w.member(n.Sel)
		return
	case *ast.BasicLit:
		if n.Kind == token.STRING {
			text, err := strconv.Unquote(n.Value)
			if err != nil {
				text = n.Value
			}
			w.tree.WriteString("string ")
			w.texts = append(w.texts, text)
			return
		}
	case *ast.CompositeLit:
		w.value(reflect.ValueOf(n.Type))
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if key := w.key(kv.Key); key != "" {
					w.tree.WriteString("#: ")
					w.idents = append(w.idents, key)
					w.value(reflect.ValueOf(kv.Value))
					continue
				}
			}
			w.value(reflect.ValueOf(e))
		}
		w.tree.WriteString("} ")
		return
	}
	e := v.Elem()
	w.tree.WriteString(e.Type().Name() + "{")
	for i := range e.NumField() {
		field := e.Type().Field(i)
		if field.Type == reflect.TypeFor[token.Pos]() {
			if field.Name == "Ellipsis" || field.Name == "Assign" && e.Type() == reflect.TypeFor[ast.TypeSpec]() {
				fmt.Fprint(&w.tree, e.Field(i).Int() != 0, " ")
			}
			continue
		}
		if field.Name == "Tag" && e.Type() == reflect.TypeFor[ast.Field]() && !e.Field(i).IsNil() {
			w.tree.WriteString(e.Field(i).Interface().(*ast.BasicLit).Value + " ")
			continue
		}
		w.value(e.Field(i))
	}
	w.tree.WriteString("} ")
}

// A pair contains matching declarations of the base revision and the working tree.
type pair struct{ old, new *decl }

// match pairs declarations with equal trees. Candidates with equal names in the same file are preferred, and
// candidates that only have the same tree are used last.
func match(before, after []*decl) (pairs []pair, removed, added []*decl) {
	byTree := map[string][]*decl{}
	for _, d := range after {
		byTree[d.tree] = append(byTree[d.tree], d)
	}
	rest := before
	for _, fits := range []func(a, b *decl) bool{
		func(a, b *decl) bool { return a.file == b.file && a.name == b.name && slices.Equal(a.idents, b.idents) },
		func(a, b *decl) bool {
			return path.Base(a.file) == path.Base(b.file) && slices.Equal(a.idents, b.idents)
		},
		func(a, b *decl) bool { return slices.Equal(a.idents, b.idents) },
		func(a, b *decl) bool { return a.file == b.file && a.name == b.name },
		func(a, b *decl) bool { return a.name == b.name },
		func(a, b *decl) bool { return 4*different(a.idents, b.idents) < len(a.idents) },
		func(a, b *decl) bool { return true },
	} {
		var left []*decl
		for _, d := range rest {
			candidates := byTree[d.tree]
			i := slices.IndexFunc(candidates, func(c *decl) bool { return fits(d, c) && sameTexts(d.texts, c.texts) })
			if i < 0 {
				left = append(left, d)
				continue
			}
			pairs = append(pairs, pair{d, candidates[i]})
			byTree[d.tree] = slices.Delete(candidates, i, i+1)
		}
		rest = left
	}
	for _, d := range after {
		if slices.Contains(byTree[d.tree], d) {
			added = append(added, d)
		}
	}
	return pairs, rest, added
}

func different(a, b []string) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// file matches a potential path of a file or directory in a text.
var file = regexp.MustCompile(`[\w.*@{}-]*(/[\w.*@{}-]*)+|[\w*-]+\.(go|yaml|json|md|csv|tsv|txt|html|golden|svg|sh|service)\b`)

// sameTexts reports whether two lists of texts differ only in paths. A text without spaces may be a path, and
// arguments of directives are treated as paths.
func sameTexts(a, b []string) bool {
	return slices.EqualFunc(a, b, func(a, b string) bool {
		return a == b || strings.HasPrefix(a, "//go:") || !strings.ContainsAny(a+b, " \n\t") ||
			file.ReplaceAllString(a, "") == file.ReplaceAllString(b, "")
	})
}
