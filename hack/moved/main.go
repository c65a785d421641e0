// Program moved checks that a change of layout and names changes nothing else. It compares each declaration of Go in the
// working tree with those of a base revision: their syntax trees must be the same apart from names, package qualifiers,
// import paths, and file paths in strings and directives. It prints what changed of these.
//
//	moved -base REVISION [-names]
//
// Names of variables and parameters may change, but every use must still refer to the same declaration of the function:
// a new name that hides another one is a difference. Comments are not compared. Build constraints are, those in names of
// files included, and so is whether a declaration belongs to a test.
//
// The exit code is 1 if a declaration exists in one of the trees only. With -names, the program also prints each name
// that is declared at the top level of a package and its new one, by package.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	base := flag.String("base", "", "revision to compare with")
	names := flag.Bool("names", false, "print old and new names as well")
	flag.Parse()
	if *base == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: moved -base REVISION [-names]")
		os.Exit(2)
	}
	same, err := run(os.Stdout, *base, *names)
	if err != nil {
		fmt.Fprintln(os.Stderr, "moved:", err)
	}
	if err != nil || !same {
		os.Exit(1)
	}
}

func run(out io.Writer, base string, names bool) (same bool, err error) {
	before, err := ofRevision(base)
	if err != nil {
		return false, fmt.Errorf("reading revision %s: %w", base, err)
	}
	after, err := ofWorkingTree()
	if err != nil {
		return false, fmt.Errorf("reading the working tree: %w", err)
	}
	var decls [2][]*decl
	for i, files := range []map[string][]byte{before, after} {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			found, err := parse(name, files[name])
			if err != nil {
				return false, err
			}
			decls[i] = append(decls[i], found...)
		}
	}
	pairs, removed, added := match(decls[0], decls[1])
	fmt.Fprintf(out, "== %d declarations before, %d after: %d are the same\n", len(decls[0]), len(decls[1]), len(pairs))
	for _, d := range removed {
		fmt.Fprintf(out, "   only before: %s\n", d)
	}
	for _, d := range added {
		fmt.Fprintf(out, "   only after:  %s\n", d)
	}
	report(out, pairs, names)
	return len(removed)+len(added) == 0, nil
}

// ofRevision returns the Go files of a revision.
func ofRevision(revision string) (map[string][]byte, error) {
	archive, err := exec.Command("git", "archive", "--format=tar", revision).Output()
	if err != nil {
		return nil, fmt.Errorf("git archive: %w", err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeReg && strings.HasSuffix(h.Name, ".go") {
			if files[h.Name], err = io.ReadAll(r); err != nil {
				return nil, err
			}
		}
	}
}

// ofWorkingTree returns the tracked and untracked Go files of the working tree, without ignored ones.
func ofWorkingTree() (map[string][]byte, error) {
	names, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.go").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	files := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, but not staged
		}
		if err != nil {
			return nil, err
		}
		files[name] = text
	}
	return files, nil
}

// report prints what changed between declarations that are the same: how many files moved where, strings, and names.
func report(out io.Writer, pairs []pair, names bool) {
	texts, renamed := map[string]int{}, map[string]bool{}
	moved, files := 0, 0
	var seen string
	for _, p := range pairs {
		if p.old.file != p.new.file {
			moved++
			if p.old.file != seen {
				files++
			}
			seen = p.old.file
		}
		for i, old := range p.old.texts {
			if old != p.new.texts[i] {
				texts[old+" → "+p.new.texts[i]]++
			}
		}
		if p.old.name != p.new.name {
			renamed[fmt.Sprintf("%s %s → %s %s", filepath.Dir(p.old.file), p.old.name, filepath.Dir(p.new.file),
				p.new.name)] = true
		}
	}
	fmt.Fprintf(out, "== %d declarations of %d files are in other files\n", moved, files)
	fmt.Fprintf(out, "== %d strings and directives name other paths\n", len(texts))
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		fmt.Fprintf(out, "   %d × %s\n", texts[text], text)
	}
	fmt.Fprintf(out, "== %d declarations have other names\n", len(renamed))
	if names {
		for _, text := range slices.Sorted(maps.Keys(renamed)) {
			fmt.Fprintf(out, "   %s\n", text)
		}
	}
}
