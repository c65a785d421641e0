// Program mutants implements mutation testing. It changes one operator, condition, number or statement at a time at
// randomly selected places and runs the tests of the package for each of these mutants. Mutants that pass all tests
// are printed. They indicate a missing test or redundant code. See `make mutants`.
//
// The arguments are package directories. A suffix of the form =DIRECTORY selects the tests of another package. The
// working tree is never modified because go test reads mutants through -overlay. A mutant that does not compile is
// replaced by the next one in the sample. The tests of a mutant are killed after four times their usual duration.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A pkg is a package to mutate and the package with its tests.
type pkg struct {
	folder, tests    string
	limit            time.Duration // timeout of the tests
	killed, survived int
}

// A mutant replaces the bytes from start to end of a file.
type mutant struct {
	pkg  *pkg
	file string
	line int
	// Range of bytes in the file, the replacement, and a description of the change.
	start, end int
	text, what string
}

func main() {
	count := flag.Int("n", 600, "number of mutants to test")
	seed := flag.Uint64("seed", 1, "seed of the sample")
	parallel := flag.Int("p", 2, "number of concurrent tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Args(), *count, *seed, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, folders []string, count int, seed uint64, parallel int) error {
	var pkgs []*pkg
	var all []mutant
	for _, argument := range folders {
		folder, tests, given := strings.Cut(argument, "=")
		if !given {
			tests = folder
		}
		p := &pkg{folder: folder, tests: tests}
		found, err := p.mutants()
		if err != nil {
			return err
		}
		pkgs, all = append(pkgs, p), append(all, found...)
		began := time.Now()
		unchanged := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "./"+tests)
		if out, err := unchanged.CombinedOutput(); err != nil {
			return fmt.Errorf("tests of %s fail without changes: %w\n%s", folder, err, out)
		}
		p.limit = 10*time.Second + 4*time.Since(began)
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	var mu sync.Mutex
	next, tried := 0, 0
	take := func() (mutant, bool) {
		mu.Lock()
		defer mu.Unlock()
		if tried >= count || next >= len(all) || ctx.Err() != nil {
			return mutant{}, false
		}
		next++
		tried++
		return all[next-1], true
	}
	var workers sync.WaitGroup
	errs := make(chan error, parallel)
	for range parallel {
		workers.Go(func() {
			for m, more := take(); more; m, more = take() {
				outcome, err := try(ctx, m)
				if err != nil {
					errs <- err
					return
				}
				mu.Lock()
				switch outcome {
				case invalid:
					tried--
				case dead:
					m.pkg.killed++
				case alive:
					m.pkg.survived++
					fmt.Printf("survived: %s:%d: %s\n", m.file, m.line, m.what)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	close(errs)
	if err := errors.Join(<-errs, ctx.Err()); err != nil {
		return err
	}
	summarise(pkgs, seed)
	return nil
}

func summarise(pkgs []*pkg, seed uint64) {
	total, killed := 0, 0
	for _, p := range pkgs {
		total, killed = total+p.killed+p.survived, killed+p.killed
		fmt.Printf("%4d of %4d killed in %s\n", p.killed, p.killed+p.survived, p.folder)
	}
	fmt.Printf("%4d of %4d killed: %.1f %% (seed %d)\n", killed, total, 100*float64(killed)/float64(max(total, 1)), seed)
}

type outcome int

const (
	invalid outcome = iota // does not compile
	dead
	alive
)

// try runs the tests for a mutant.
func try(ctx context.Context, m mutant) (outcome, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return invalid, err
	}
	defer os.RemoveAll(dir)
	source, err := os.ReadFile(m.file)
	if err != nil {
		return invalid, err
	}
	changed, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	absolute, err := filepath.Abs(m.file)
	if err != nil {
		return invalid, err
	}
	mapping, err := json.Marshal(map[string]map[string]string{"Replace": {absolute: changed}})
	if err != nil {
		return invalid, err
	}
	if err := errors.Join(
		os.WriteFile(changed, slices.Concat(source[:m.start], []byte(m.text), source[m.end:]), 0o600),
		os.WriteFile(overlay, mapping, 0o600)); err != nil {
		return invalid, err
	}
	binary := filepath.Join(dir, "package.test")
	compile := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./"+m.pkg.tests)
	if compile.Run() != nil {
		return invalid, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, m.pkg.limit)
	defer cancel()
	tests := exec.CommandContext(ctx, binary, "-test.failfast")
	tests.Dir = m.pkg.tests
	tests.WaitDelay = time.Second
	if tests.Run() == nil {
		return alive, nil
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return invalid, ctx.Err()
	}
	return dead, nil
}

// mutants returns all possible mutants of a package. Tests and generated files are skipped.
func (p *pkg) mutants() ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(p.folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var found []mutant
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(file, "_test.go") || bytes.Contains(source, []byte("// Code generated ")) {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				ast.Inspect(f.Body, func(n ast.Node) bool {
					found = append(found, p.changes(set, source, n, file)...)
					return true
				})
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no possible mutants in %s", p.folder)
	}
	return found, nil
}

// others maps operators to their replacements.
var others = map[token.Token]string{
	token.EQL: "!=", token.NEQ: "==", token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">",
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.LAND: "||", token.LOR: "&&",
}

func (p *pkg) changes(set *token.FileSet, source []byte, n ast.Node, file string) (found []mutant) {
	add := func(from, to token.Pos, text, what string) {
		start, end := set.Position(from).Offset, set.Position(to).Offset
		found = append(found, mutant{
			pkg: p, file: file, line: set.Position(from).Line, start: start, end: end, text: text,
			what: what,
		})
	}
	old := func(n ast.Node) string {
		text := string(source[set.Position(n.Pos()).Offset:set.Position(n.End()).Offset])
		return strings.Join(strings.Fields(text), " ")
	}
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if other := others[n.Op]; other != "" {
			add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other, old(n)+": "+n.Op.String()+" becomes "+other)
		}
	case *ast.IfStmt:
		add(n.Cond.Pos(), n.Cond.End(), "!("+old(n.Cond)+")", "if "+old(n.Cond)+": negated")
	case *ast.BasicLit:
		if v, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			add(n.Pos(), n.End(), strconv.FormatInt(v+1, 10), n.Value+" becomes "+strconv.FormatInt(v+1, 10))
		}
	case *ast.ExprStmt:
		add(n.Pos(), n.End(), "", old(n)+": removed")
	case *ast.IncDecStmt:
		add(n.Pos(), n.End(), "", old(n)+": removed")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE && n.Tok != token.ASSIGN {
			add(n.Pos(), n.End(), "", old(n)+": removed")
		}
	}
	return found
}
