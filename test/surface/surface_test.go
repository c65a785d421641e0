// Package surface verifies the compatibility of the user-facing API: flags, variables, metrics, keys, kinds,
// values, routes and exit codes. Each of them is a list in testdata with one fact per line, so that differences are
// easy to review. testdata also contains files of users (batches, state directories of agents, ledgers) written by
// version 722c972.
//
// New facts are added with -rewrite. Facts are never removed with -rewrite. They have to be added to left.txt with
// the reason and a quotation from CHANGELOG.md that informs users.
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

var rewrite = flag.Bool("rewrite", false, "add new facts to the lists; missing facts are not removed")

// facts is a set of lines.
type facts map[string]bool

func (f facts) add(words ...string) {
	f[strings.Join(strings.Fields(strings.Join(words, " ")), " ")] = true
}

// check compares the facts with the list of the given name.
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

// compare returns a message for each difference between the frozen and the current facts.
func compare(name string, frozen, now facts, left map[string]bool) (wrong []string) {
	for fact := range frozen {
		if !now[fact] && !left[name+": "+fact] {
			wrong = append(wrong, "removed "+name+": "+fact+"\n\tif intended, add it to left.txt with the reason")
		}
	}
	for fact := range now {
		if !frozen[fact] {
			wrong = append(wrong, "new "+name+": "+fact+"\n\tadd it with -rewrite and mention it in CHANGELOG.md")
		}
	}
	for entry := range left {
		of, fact, _ := strings.Cut(entry, ": ")
		if of == name && (now[fact] || !frozen[fact]) {
			wrong = append(wrong, "left.txt contains an existing or unknown fact: "+entry)
		}
	}
	slices.Sort(wrong)
	return wrong
}

// readLeft reads left.txt. An entry consists of a line with the name of the list and the fact, an indented line
// with the reason and an indented line with a quotation from CHANGELOG.md.
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
			t.Fatalf("left.txt: %q requires a reason and a quotation from CHANGELOG.md, indented by a tab",
				all[i])
		}
		if note := strings.TrimSpace(all[i+2]); !strings.Contains(string(changes), note) {
			t.Errorf("left.txt: CHANGELOG.md does not contain %q", note)
		}
		left[all[i]] = true
		i += 2
	}
	return left
}

// lines returns the non-empty lines of a file. With -rewrite, a missing file is treated as empty.
func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && (!os.IsNotExist(err) || !*rewrite) {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return line == "" })
}

// TestCompare verifies that all kinds of differences are reported.
func TestCompare(t *testing.T) {
	frozen := facts{"stays": true, "goes": true, "went": true, "is back": true}
	now := facts{"stays": true, "is back": true, "comes": true}
	left := map[string]bool{"list: went": true, "list: is back": true, "list: never was": true, "other: went": true}
	wrong := compare("list", frozen, now, left)
	for i, want := range []string{
		"left.txt contains an existing or unknown fact: list: is back",
		"left.txt contains an existing or unknown fact: list: never was", "new list: comes\n", "removed list: goes\n",
	} {
		if i >= len(wrong) || !strings.HasPrefix(wrong[i], want) {
			t.Fatalf("compare() = %q, want %q at index %d", wrong, want, i)
		}
	}
	if len(wrong) != 4 {
		t.Errorf("have %q", wrong)
	}
}
