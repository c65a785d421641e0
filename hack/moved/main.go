// Program moved verifies that a change only moves or renames Go code. It compares each declaration in the working
// tree with the declarations in a base revision. Their syntax trees must be equal except for names, package
// qualifiers, import paths, and file paths in strings and directives. The program prints these differences.
//
//	moved -base REVISION [-names]
//
// Variables and parameters may be renamed, but every use must still refer to the same declaration within the
// function. A new name that shadows another one is therefore a difference. Comments are ignored. Build constraints
// are compared, including those in file names, and so is whether a declaration belongs to a test.
//
// The exit code is 1 if a declaration exists in only one of the trees. With -names, the program also prints the old
// and new names of all renamed top-level declarations by package.
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
	names := flag.Bool("names", false, "also print old and new names")
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
			continue // deleted in the working tree but not in the index
		}
		if err != nil {
			return nil, err
		}
		files[name] = text
	}
	return files, nil
}

// report prints the differences between matching declarations: moved declarations, changed paths and changed names.
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
	fmt.Fprintf(out, "== %d declarations of %d files were moved to other files\n", moved, files)
	fmt.Fprintf(out, "== %d strings and directives contain different paths\n", len(texts))
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		fmt.Fprintf(out, "   %d × %s\n", texts[text], text)
	}
	fmt.Fprintf(out, "== %d declarations were renamed\n", len(renamed))
	if names {
		for _, text := range slices.Sorted(maps.Keys(renamed)) {
			fmt.Fprintf(out, "   %s\n", text)
		}
	}
}
