package docs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/reference"
)

// languages lists the allowed languages of fenced blocks. Diagrams, formulas and output use "text", and all shells
// use "sh".
var languages = []string{"sh", "text", "yaml", "json", "go", "csv", "promql", "mermaid"}

// A sh block without a mark is run here, in a bare clone. Other sh blocks specify after the language which test
// runs them or why they are not tested: ```sh test=TestLifecycle or ```sh notest="needs a cluster". A comment <!--
// sh test=TestLifecycle --> applies to all following blocks without a mark.
var (
	named  = regexp.MustCompile(`^test=(\w+)$`)
	reason = regexp.MustCompile(`^notest="[^"]{8,}"$`)
)

// TestBlocks verifies the marks of all fenced blocks and that their commands and flags exist.
func TestBlocks(t *testing.T) {
	c := newChecker(t)
	for name, p := range pages(t) {
		for _, b := range p.blocks {
			for _, wrong := range c.block(p, b) {
				t.Errorf("%s:%d: %s", name, b.line, wrong)
			}
		}
	}
	files(t, ".md", func(name, text string) {
		for _, command := range indented.FindAllString(text, -1) {
			t.Errorf("%s: command is in an indented block, want a fenced sh block: %s",
				name, strings.TrimSpace(command))
		}
	})
}

// inlineCommand matches inline code with a go test or make command, or with the flags of another run of the same
// packages, in a paragraph, table cell or comment. Tables escape | as \|.
var inlineCommand = regexp.MustCompile("(?s)`((?:[A-Z_]+=\\S+ )*(?:go test|make)\\s[^`]*|-run\\s[^`]*)`|<!--[^>]*(go test [^>]*) -->")

// TestInlineCommands verifies that the packages, tests and targets in commands outside fenced blocks exist.
func TestInlineCommands(t *testing.T) {
	c := newChecker(t)
	files(t, ".md", func(name, text string) {
		for _, m := range inlineCommands(text) {
			for _, words := range simple(m) {
				if wrong := c.command(words); wrong != "" {
					t.Errorf("%s: %s: %s", name, m, wrong)
				}
			}
		}
	})
}

// inlineCommands returns the commands outside fenced blocks, each on one line. Flags without a command use the
// packages of the preceding command.
func inlineCommands(text string) (all []string) {
	var prose strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		if fence.MatchString(strings.TrimSuffix(line, "\n")) {
			fenced = !fenced
		} else if !fenced {
			prose.WriteString(line)
		}
	}
	packages := ""
	for _, m := range inlineCommand.FindAllStringSubmatch(prose.String(), -1) {
		command := strings.ReplaceAll(strings.Join(strings.Fields(m[1]+m[2]), " "), `\|`, "|")
		if strings.HasPrefix(command, "-run") {
			command = "go test" + packages + " " + command
		} else if packages = ""; strings.Contains(command, "go test") {
			for _, word := range strings.Fields(command) {
				if strings.HasPrefix(word, "./") {
					packages += " " + word
				}
			}
		}
		all = append(all, command)
	}
	return all
}

func TestInlineCommandsAreFound(t *testing.T) {
	text := "| P | by `go test ./a/b -run 'X\\|Y'`, and `-run\nZ` |\n```sh\n`make fenced`\n```\n" +
		"`KEY=1 make x`, `made`, <!-- figures: go test ./c -run V -rewrite -->"
	want := []string{"go test ./a/b -run 'X|Y'", "go test ./a/b -run Z", "KEY=1 make x", "go test ./c -run V -rewrite"}
	if got := inlineCommands(text); !slices.Equal(got, want) {
		t.Errorf("inlineCommands() = %q, want %q", got, want)
	}
}

// TestRecipes verifies that the packages, tests and targets in the recipes of the Makefile and in the parts of
// hack/nightly exist.
func TestRecipes(t *testing.T) {
	c := newChecker(t)
	nightly, err := os.ReadFile(filepath.Join(kit.Root, "hack", "nightly", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := recipes(c.makefile)
	n := len(all)
	for _, m := range regexp.MustCompile(`"((?:[A-Z_]+=\S+ )*(?:go test|make) [^"%]*)"`).FindAllSubmatch(nightly, -1) {
		all = append(all, string(m[1]))
	}
	if n < 30 || len(all) < n+10 {
		t.Errorf("only %d commands of the Makefile and %d of hack/nightly were found", n, len(all)-n)
	}
	for _, command := range all {
		for _, words := range simple(command) {
			if wrong := c.command(words); wrong != "" {
				t.Errorf("%s: %s", command, wrong)
			}
		}
	}
}

var (
	testRuns  = regexp.MustCompile(`\$\((?:go_test|shuffled)\)`)
	expansion = regexp.MustCompile(`\$\([^()]*\)`)
	aRun      = regexp.MustCompile(`-(?:run|skip) +'\^\(VARIABLE\)\$'`)
)

// recipes returns the commands of a Makefile that start with go test or $(go_test). Other variables are replaced by
// the word VARIABLE, and patterns that consist of a variable are removed.
func recipes(makefile string) (all []string) {
	text := testRuns.ReplaceAllString(strings.ReplaceAll(makefile, "\\\n", " "), "go test")
	for expansion.MatchString(text) {
		text = expansion.ReplaceAllString(text, "VARIABLE")
	}
	for line := range strings.Lines(strings.ReplaceAll(text, "$$", "$")) {
		if _, command, found := strings.Cut(line, "go test "); found && strings.HasPrefix(line, "\t") {
			all = append(all, "go test "+aRun.ReplaceAllString(strings.TrimSpace(command), ""))
		}
	}
	return all
}

func TestRecipesAreFound(t *testing.T) {
	text := "list := $$(go test ./none)\na: ## go test ./none.\n\tX=$(or $(X),1) go test ./a -run 'B|C' $(if $(TO),-to '$(TO)')\n" +
		"\t@$(light); $(shuffled) -skip '^($(norace))$$' \\\n\t  ./d\n"
	var got []string
	for _, command := range recipes(text) {
		got = append(got, strings.Join(strings.Fields(command), " "))
	}
	if want := []string{"go test ./a -run 'B|C' VARIABLE", "go test ./d"}; !slices.Equal(got, want) {
		t.Errorf("recipes() = %q, want %q", got, want)
	}
}

// TestExamples verifies the example commands in the help of the command line.
func TestExamples(t *testing.T) {
	c := newChecker(t)
	for name, help := range c.help {
		_, examples, _ := strings.Cut(help, "Examples:\n")
		examples, _, _ = strings.Cut(examples, "\n\n")
		for _, command := range commands(examples) {
			for _, words := range simple(command) {
				if wrong := c.command(words); wrong != "" {
					t.Errorf("%s --help: %s: %s", name, command, wrong)
				}
			}
		}
	}
}

// indented matches an indented block of code, which should be fenced instead.
var indented = regexp.MustCompile(`\n\n {4,}(?:bin/)?(?:kube|helm|make|go|git|curl|[A-Z_]+=)[^\n]*`)

// A checker contains the tests, targets, commands and flags that exist.
type checker struct {
	tests    map[string][]string // directories by name of the test or benchmark
	sources  map[string]string   // text of the test files by directory
	makefile string
	targets  map[string]bool   // make targets
	help     map[string]string // help by kubenergy command
}

var (
	functions = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	rules     = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
)

func newChecker(t *testing.T) *checker {
	t.Helper()
	c := &checker{
		tests: map[string][]string{}, sources: map[string]string{}, targets: map[string]bool{}, help: map[string]string{},
	}
	files(t, "_test.go", func(name, text string) {
		c.sources[path.Dir(name)] += text
		for _, m := range functions.FindAllStringSubmatch(text, -1) {
			c.tests[m[1]] = append(c.tests[m[1]], path.Dir(name))
		}
	})
	makefile, err := os.ReadFile(filepath.Join(kit.Root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	c.makefile = string(makefile)
	for _, m := range rules.FindAllStringSubmatch(c.makefile, -1) {
		c.targets[m[1]] = true
	}
	reference.EachCommand(help(t), func(words []string, help string, below []string) {
		name := strings.Join(words, " ")
		c.help[name] = help
		for _, sub := range below {
			c.help[name+" "+sub] = help // replaced when the subcommand is visited
		}
	}, "kubenergy")
	return c
}

func (c *checker) block(p *page, b block) (wrong []string) {
	if !slices.Contains(languages, b.language) {
		return []string{fmt.Sprintf("unknown language %q, want one of %s", b.language, strings.Join(languages, ", "))}
	}
	if b.language != "sh" {
		return nil
	}
	for _, command := range commands(b.text) {
		for _, words := range simple(command) {
			if w := c.command(words); w != "" {
				wrong = append(wrong, strings.Join(words, " ")+": "+w)
			}
		}
	}
	switch m := named.FindStringSubmatch(b.info); {
	case b.info == "" || reason.MatchString(b.info):
	case m == nil:
		wrong = append(wrong, "invalid mark "+b.info+`, want none, test=NAME or notest="REASON"`)
	default:
		wrong = append(wrong, c.runBy(m[1], p, b)...)
	}
	return wrong
}

// runBy returns the reasons why a test does not cover a block. The test must read the section of the block, read
// all pages of the directory, or contain the commands of the block in its source.
func (c *checker) runBy(test string, p *page, b block) (wrong []string) {
	folders := c.tests[test]
	if len(folders) == 0 {
		return []string{"no test " + test}
	}
	source := ""
	for _, folder := range folders {
		source += c.sources[folder]
	}
	has := func(text string) bool { return strings.Contains(source, `"`+text+`"`) }
	if has(p.path) && has(b.section) || has(path.Dir(p.path)) && has(strings.TrimSuffix(path.Base(p.path), ".md")) {
		return nil
	}
	for _, command := range commands(b.text) {
		if !strings.Contains(source, command) {
			wrong = append(wrong, "the tests in "+strings.Join(folders, ", ")+" do not contain the command "+command)
		}
	}
	return wrong
}

var (
	comment  = regexp.MustCompile(`(^|\s)#.*`)
	document = regexp.MustCompile(`<<-?\s*'?(\w+)'?`)
)

// commands returns the commands of a script, each on one line, without comments and here-documents.
func commands(script string) (all []string) {
	end, begun := "", ""
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if end != "" {
			if line == end {
				end = ""
			}
			continue
		}
		if m := document.FindStringSubmatch(line); m != nil {
			end = m[1]
		}
		line = strings.TrimSpace(begun + comment.ReplaceAllString(line, ""))
		if more, ok := strings.CutSuffix(line, "\\"); ok {
			begun = more
			continue
		}
		if begun = ""; line != "" {
			all = append(all, line)
		}
	}
	return all
}

var tokens = regexp.MustCompile(`'[^']*'|"[^"]*"|&&|\|\||[|;&()]|[^\s'"|;&()]+`)

// simple splits a command at pipes and other control operators and returns the words of each part.
func simple(command string) [][]string {
	all := [][]string{nil}
	for _, word := range tokens.FindAllString(command, -1) {
		last := len(all) - 1
		switch {
		case strings.ContainsAny(word[:1], "|;&()"):
			all = append(all, nil)
		case len(all[last]) > 0 || !strings.Contains(word, "=") && word != "$": // not a variable
			all[last] = append(all[last], word)
		}
	}
	return slices.DeleteFunc(all, func(words []string) bool { return len(words) == 0 })
}

var inRepository = regexp.MustCompile(`^(?:\./)?(?:charts|cmd|deploy|docs|examples|scenarios)/[\w./-]+$`)

// command returns the reason why a command is invalid, such as an unknown flag or a missing file, or "".
func (c *checker) command(words []string) string {
	for _, word := range words {
		if inRepository.MatchString(word) {
			file := filepath.FromSlash(strings.TrimSuffix(word, "/..."))
			if _, err := os.Stat(filepath.Join(kit.Root, file)); err != nil {
				return word + " does not exist"
			}
		}
	}
	switch {
	case path.Base(words[0]) == "kubenergy":
		return c.kubenergy(words[1:])
	case words[0] == "make":
		for _, word := range words[1:] {
			if !strings.Contains(word, "=") && !c.targets[word] {
				return "no make target " + word
			}
		}
	case words[0] == "go" && len(words) > 1 && words[1] == "test":
		return c.goTest(words[2:])
	}
	return ""
}

var option = regexp.MustCompile(`^(--[a-z][a-z-]*|-[a-zA-Z])(=.*)?$`)

func (c *checker) kubenergy(words []string) string {
	name := "kubenergy"
	for len(words) > 0 && c.help[name+" "+words[0]] != "" {
		name, words = name+" "+words[0], words[1:]
	}
	if name == "kubenergy" && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		return "kubenergy has no command " + words[0]
	}
	for _, word := range words {
		if m := option.FindStringSubmatch(word); m != nil &&
			!regexp.MustCompile(`[\s,]`+m[1]+`[\s,=\[]`).MatchString(c.help[name]) {
			return name + " has no flag " + m[1]
		}
	}
	return ""
}

// goTest verifies that the packages and functions of a go test command exist.
func (c *checker) goTest(words []string) string {
	var patterns []string
	within := func(string) bool { return false }
	for i, word := range words {
		if i > 0 && slices.Contains([]string{"-run", "-bench"}, words[i-1]) {
			pattern := strings.Trim(word, `'"`)
			if strings.Contains(pattern, "(") {
				patterns = append(patterns, pattern)
			} else {
				patterns = append(patterns, strings.Split(pattern, "|")...) // each alternative must match
			}
		} else if folder, ok := strings.CutPrefix(word, "./"); ok {
			folder, below := strings.CutSuffix(folder, "/...")
			if _, err := os.Stat(filepath.Join(kit.Root, folder)); err != nil {
				return word + " does not exist"
			}
			before := within
			within = func(name string) bool {
				return before(name) || name == folder || below && strings.HasPrefix(name, folder+"/")
			}
		}
	}
	for _, pattern := range patterns {
		pattern, _, _ = strings.Cut(pattern, "/") // the rest selects subtests
		match, err := regexp.Compile(pattern)
		if err != nil {
			return err.Error()
		}
		found := pattern == "^$" // used to run only benchmarks
		for test, folders := range c.tests {
			found = found || match.MatchString(test) && slices.ContainsFunc(folders, within)
		}
		if !found {
			return "no test matches " + pattern
		}
	}
	return ""
}

// TestBlocksRun runs the blocks without a mark. The blocks of each page share a directory that looks like a clone
// of the repository in which only the command line has been built.
func TestBlocksRun(t *testing.T) {
	all := pages(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		mine := slices.DeleteFunc(slices.Clone(p.blocks),
			func(b block) bool { return b.language != "sh" || b.info != "" })
		if len(mine) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := clone(t)
			for _, b := range mine {
				began := time.Now()
				output, err := run(t, dir, b.text)
				t.Logf("block in line %d took %v", b.line, time.Since(began).Round(10*time.Millisecond))
				if err != nil { // later blocks may depend on this one
					t.Fatalf("%s:%d: %v\n%s\n%s", name, b.line, err, b.text, output)
				}
			}
		})
	}
}

func clone(t *testing.T) string {
	t.Helper()
	program, dir := kit.Build(t, "./cmd/kubenergy"), t.TempDir()
	links := map[string]string{"bin/kubenergy": program}
	entries, err := os.ReadDir(kit.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if name := entry.Name(); !slices.Contains([]string{".git", "bin", "out"}, name) {
			links[name] = filepath.Join(kit.Root, name)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run runs a script and kills its remaining background processes.
func run(t *testing.T, dir, script string) (output []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", script)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = []string{"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // kill the process group
	output, err = cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = cmd.Cancel() // kill background processes
	}
	if errors.Is(err, exec.ErrWaitDelay) { // the script succeeded, but a background process was running
		err = nil
	}
	return output, err
}

// TestChecker verifies that mistakes in blocks are detected.
func TestChecker(t *testing.T) {
	c := newChecker(t)
	p := &page{path: "docs/" + "none.md"}
	for text, want := range map[string]string{
		"sh||kubenergy simulate -f scenarios/demo/scenario.yaml --max-delay 6h | head": "",

		"sh||kubenergy simulate --maximal-delay 6h":                       "simulate has no flag --maximal-delay",
		"sh||cd x && bin/kubenergy simulat":                               "no command simulat",
		"sh||kubenergy forecast backtest -q":                              "forecast backtest has no flag -q",
		"sh||make build biuld":                                            "no make target biuld",
		"sh||kubectl apply -f \\\n  examples/none.yaml":                   "examples/none.yaml does not exist",
		"sh||X=1 go test ./internal/sched/... -run 'NorThis|NoSuchThing'": "no test matches NorThis",
		"sh||go test ./schedd":                                            "./schedd does not exist",
		"sh||cat <<'END' # make nothing\nmake nothing\nEND":               "",
		"sh|notest=\"\"|ls":                                               "want none, test=NAME",
		"sh|notest=\"needs a cluster\"|kubectl get nodes":                 "",
		"sh|test=TestNone|ls":                                             "no test TestNone",
		"sh|test=TestChecker|helm install nothing":                        "",
		"sh|test=TestChecker|helm install noth" + "ing else":              "do not contain the command",
		"console||$ ls":                                                   "want one of sh",
	} {
		language, rest, _ := strings.Cut(text, "|")
		info, script, _ := strings.Cut(rest, "|")
		wrong := c.block(p, block{language: language, info: info, text: script + "\n"})
		if got := strings.Join(wrong, "; "); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("block(%q) = %q, want %q", text, got, want)
		}
	}
	// A test that reads one section of a page does not cover the other sections.
	p.path = "docs/reference/reports.md"
	for section, runs := range map[string]bool{"## Who may see what": true, "## Another": false} {
		wrong := c.runBy("TestLifecycle", p, block{section: section, text: "helm install nothing\n"})
		if runs != (len(wrong) == 0) {
			t.Errorf("runBy() for the section %s = %q", section, wrong)
		}
	}
}
