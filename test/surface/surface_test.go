// Package surface holds what users depend on: flags, variables, metrics, keys, kinds, values, routes and exit codes.
// Each is a list in testdata, of one fact a line, so that a diff reads as what left and what came. Files that users
// have (batches, state folders of agents, ledgers) lie there as version 722c972 wrote them.
//
// A new fact is added with -rewrite. A fact never leaves by -rewrite: left.txt names it, with the reason and the words
// of CHANGELOG.md that tell users of it.
package surface

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

var rewrite = flag.Bool("rewrite", false, "add new facts to the lists; what is missing stays missing")

// facts is a set of lines.
type facts map[string]bool

func (f facts) add(words ...string) {
	f[strings.Join(strings.Fields(strings.Join(words, " ")), " ")] = true
}

// check compares what there is with the list of a name.
func (f facts) check(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	frozen := facts{}
	for _, line := range lines(t, path) {
		frozen[line] = true
	}
	left := readLeft(t)
	if *rewrite {
		maps.Copy(frozen, f)
		text := strings.Join(slices.Sorted(maps.Keys(frozen)), "\n") + "\n"
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range compare(name, frozen, f, left) {
		t.Error(wrong)
	}
}

// compare says what is wrong with what there is now.
func compare(name string, frozen, now facts, left map[string]bool) (wrong []string) {
	for fact := range frozen {
		if !now[fact] && !left[name+": "+fact] {
			wrong = append(wrong, "left "+name+": "+fact+"\n\tif that is meant: list it in left.txt, with the reason")
		}
	}
	for fact := range now {
		if !frozen[fact] {
			wrong = append(wrong, "new "+name+": "+fact+"\n\tadd it with -rewrite, and a line to CHANGELOG.md")
		}
	}
	for entry := range left {
		of, fact, _ := strings.Cut(entry, ": ")
		if of == name && (now[fact] || !frozen[fact]) {
			wrong = append(wrong, "left.txt lists what is still there, or never was: "+entry)
		}
	}
	slices.Sort(wrong)
	return wrong
}

// readLeft reads left.txt: a line with the name of a list and the fact, then, indented, a line with the reason and a
// line with words of CHANGELOG.md.
func readLeft(t *testing.T) map[string]bool {
	t.Helper()
	changes, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	all := lines(t, filepath.Join("testdata", "left.txt"))
	for i := 0; i < len(all); i++ {
		if strings.HasPrefix(all[i], "#") {
			continue
		}
		if i+2 >= len(all) || !strings.HasPrefix(all[i+1], "\t") || !strings.HasPrefix(all[i+2], "\t") {
			t.Fatalf("left.txt: %q needs a reason and words of CHANGELOG.md, on lines that begin with a tab", all[i])
		}
		if note := strings.TrimSpace(all[i+2]); !strings.Contains(string(changes), note) {
			t.Errorf("left.txt: CHANGELOG.md does not say %q", note)
		}
		left[all[i]] = true
		i += 2
	}
	return left
}

// lines returns those of a file that are not empty; of a file that does not exist, none.
func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && (!os.IsNotExist(err) || !*rewrite) {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return line == "" })
}

// TestCompare shows that each kind of difference is told of.
func TestCompare(t *testing.T) {
	frozen := facts{"stays": true, "goes": true, "went": true, "is back": true}
	now := facts{"stays": true, "is back": true, "comes": true}
	left := map[string]bool{"list: went": true, "list: is back": true, "list: never was": true, "other: went": true}
	wrong := compare("list", frozen, now, left)
	for i, want := range []string{
		"left list: goes\n", "left.txt lists what is still there, or never was: list: is back",
		"left.txt lists what is still there, or never was: list: never was", "new list: comes\n",
	} {
		if i >= len(wrong) || !strings.HasPrefix(wrong[i], want) {
			t.Fatalf("have %q, want %q at %d", wrong, want, i)
		}
	}
	if len(wrong) != 4 {
		t.Errorf("have %q", wrong)
	}
}
