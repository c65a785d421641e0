// Program count prints the number of Go code lines for each directory of the root and of internal/. Blank lines and
// lines that contain only comments are not counted. Tests, test kits, generated files and hack/ are excluded. Line
// counts are only comparable if the code is formatted and at most 120 columns wide, with a tab width of four. The
// program therefore prints files that gofmt would change and wider lines, and exits with code 1.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

const widest = 120

func main() {
	lines, faults, err := count(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "counting lines of code:", err)
		os.Exit(1)
	}
	total := 0
	for _, folder := range slices.Sorted(maps.Keys(lines)) {
		fmt.Printf("%7d  %s\n", lines[folder], folder)
		total += lines[folder]
	}
	fmt.Printf("%7d  lines of code\n", total)
	for _, fault := range faults {
		fmt.Fprintln(os.Stderr, fault)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// count returns the number of code lines by top-level directory, and the faults that make line counts incomparable.
func count(root string) (lines map[string]int, faults []string, err error) {
	lines = map[string]int{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if rel != "." && skipped(filepath.ToSlash(rel)) {
				return filepath.SkipDir
			}
			return nil
		}
		extension := filepath.Ext(path)
		embedded := slices.Contains([]string{".sql", ".html", ".css", ".js"}, extension)
		if extension != ".go" && !embedded || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil || generated(source) {
			return err
		}
		folder, _, _ := strings.Cut(strings.TrimPrefix(filepath.ToSlash(rel), "internal/"), "/")
		if embedded {
			lines[folder] += textLines(source)
			return nil
		}
		lines[folder] += codeLines(source)
		for _, fault := range check(source) {
			faults = append(faults, rel+fault)
		}
		return nil
	})
	return lines, faults, err
}

// skipped reports whether a directory contains no product code. This applies to tests, test kits such as hosttest,
// release tools, hidden directories and build output.
func skipped(folder string) bool {
	base := folder[strings.LastIndex(folder, "/")+1:]
	return slices.Contains([]string{"test", "hack", "out", "bin"}, folder) || base == "testdata" ||
		strings.HasSuffix(base, "test") || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}

func generated(source []byte) bool {
	head, _, _ := bytes.Cut(source, []byte("\npackage "))
	return bytes.Contains(head, []byte("// Code generated "))
}

// codeLines counts the lines that contain at least one token other than a comment.
func codeLines(source []byte) int {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	total, last := 0, 0
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			return total
		}
		if kind == token.SEMICOLON && text == "\n" {
			continue
		}
		first := file.Line(pos)
		end := first + strings.Count(text, "\n")
		total += end - max(first, last+1) + 1
		last = end
	}
}

// textLines counts the lines of an SQL, HTML, CSS or JavaScript file that are neither blank nor start with a
// comment.
func textLines(source []byte) int {
	total := 0
	for line := range strings.Lines(string(source)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "--") && !strings.HasPrefix(line, "//") {
			total++
		}
	}
	return total
}

// check returns the formatting faults of a file. Each fault is to be appended to the file name.
func check(source []byte) (faults []string) {
	if formatted, err := format.Source(source); err != nil || !bytes.Equal(formatted, source) {
		faults = append(faults, ": not formatted with gofmt")
	}
	for i, line := range strings.Split(string(source), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "//go:") ||
			strings.HasPrefix(strings.TrimSpace(line), "// +kubebuilder:") {
			continue // directives cannot be wrapped
		}
		if width := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t"); width > widest {
			faults = append(faults, fmt.Sprintf(":%d: %d columns wide, more than %d", i+1, width, widest))
		}
	}
	return faults
}
