package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestSame(t *testing.T) {
	const head = "package a\n\nimport (\n\t\"time\"\n\n\t\"github.com/kubenergy/kubenergy/grid\"\n)\n\n"
	const moved = "package b\n\nimport (\n\t\"time\"\n\n\t\"github.com/kubenergy/kubenergy/internal/grid\"\n)\n\n"
	for name, c := range map[string]struct {
		old, new string
		same     bool
	}{
		"renamed variable": {
			"func F(a int) int { most := a; return most }", "func F(a int) int { largest := a; return largest }", true,
		},
		"renamed function and package": {
			"func F() time.Time { return grid.Earlier(now()) }", "func G() time.Time { return earlier(moment()) }", true,
		},
		"a new name hides a builtin function": {
			"func F(a, b int) int { most := max(a, b); return max(most, a) }",
			"func F(a, b int) int { max := max(a, b); return max(max, a) }", false,
		},
		"a new name hides a package": {
			"func F(g int) { grid.Earlier(g) }", "func F(grid int) { grid.Earlier(grid) }", false,
		},
		"variables exchanged": {
			"func F(a, b int) int { return a - b }", "func F(a, b int) int { return b - a }", false,
		},
		"another function of the standard library": {
			"var v = time.Now()", "var v = time.Time{}", false,
		},
		"another predeclared name":   {"var v = true", "var v = false", false},
		"another operator":           {"var v = 1 + 2", "var v = 1 - 2", false},
		"the other end of a slice":   {"var v = w[1:]", "var v = w[:1]", false},
		"another number":             {"var v = 1", "var v = 2", false},
		"an alias":                   {"type T = int", "type T int", false},
		"one of many arguments":      {"var v = f(w...)", "var v = f(w)", false},
		"another tag":                {"type T struct { A int `json:\"a\"` }", "type T struct { A int `json:\"b\"` }", false},
		"a comment":                  {"type T struct { A int }", "// T is new.\ntype T struct {\n\tA int // and so is A\n}", true},
		"a path in a string":         {`var v = "see docs/a.md: why"`, `var v = "see internal/docs/a.md: why"`, true},
		"a string":                   {`var v = "see docs/a.md: why"`, `var v = "see docs/a.md: who"`, false},
		"a directive":                {"//go:embed a\nvar v string", "//go:embed b\nvar v string", true},
		"no directive":               {"//go:embed a\nvar v string", "var v string", false},
		"separated constants":        {"const (\n\ta = 1\n\tb = 2\n)", "const b = 2\n\nconst a = 1", true},
		"constants in another order": {"const (\n\ta = iota\n\tb\n\tc = 5\n)", "const (\n\ta = iota\n\tc = 5\n\tb\n)", false},
		"a key that is called as a variable": {
			"func F(max int) T { return T{most: max} }", "func F(max int) T { return T{max: max} }", true,
		},
		"a method with the name of a builtin function": {
			"func (t T) F() { t.print(1) }", "func (t T) F() { t.Print(1) }", true,
		},
		"a builtin function": {"func F(t T) { print(1) }", "func F(t T) { grid.Print(1) }", false},
		"a field of a field": {"func F(t T) { t.a.b() }", "func F(t T) { t.a() }", false},
		"a constant of another package as a key": {
			"var v = map[string]int{kindJob: 1}", "var v = map[string]int{grid.KindJob: 1}", true,
		},
		"one of two": {"func F() {}\n\nfunc G() {}", "func F() {}", false},
	} {
		old, err := parse("a/a.go", []byte(head+c.old))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		after, err := parse("b/b.go", []byte(moved+c.new))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		pairs, removed, added := match(old, after)
		if same := len(removed)+len(added) == 0; same != c.same {
			t.Errorf("%s: same = %v, %d pairs, only before %v, only after %v", name, same, len(pairs), removed, added)
		}
	}
}

func TestConditions(t *testing.T) {
	for file, text := range map[string]string{
		"a/a_test.go": "package a\n\nvar v = 1", "a/a_linux.go": "package a\n\nvar v = 1", "a/a_386.go": "package a\n\nvar v = 1",
		"a/b.go": "//go:build linux\n\npackage a\n\nvar v = 1",
	} {
		old, err := parse("a/a.go", []byte("package a\n\nvar v = 1"))
		if err != nil {
			t.Fatal(err)
		}
		after, err := parse(file, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if pairs, _, _ := match(old, after); len(pairs) > 0 {
			t.Errorf("%s matches a/a.go despite different build constraints", file)
		}
	}
}

func TestReport(t *testing.T) {
	old, err := parse("a/a.go", []byte("package a\n\nfunc most() string { return \"a/a.go\" }\n"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := parse("internal/b/b.go", []byte("package b\n\nfunc Max() string { return \"internal/b/b.go\" }\n"))
	if err != nil {
		t.Fatal(err)
	}
	pairs, removed, added := match(old, after)
	if len(pairs) != 1 || len(removed)+len(added) > 0 {
		t.Fatalf("pairs %v, only before %v, only after %v", pairs, removed, added)
	}
	var out bytes.Buffer
	report(&out, pairs, true)
	for _, want := range []string{
		"1 declarations of 1 files were moved", "1 × a/a.go → internal/b/b.go", "a most → internal/b Max",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}
