// Program count prints how many lines of Go hold code, by folder of the root and of internal/: lines that are neither
// blank nor comments alone. Tests, test kits, generated files and hack/ do not count. Code counts formatted and at
// most 120 columns wide (a tab is four), so that line counts can be compared: a file that gofmt would change, or a
// wider line, is printed, and the program exits with 1.
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
	fmt.Printf("%7d  lines that hold code\n", total)
	for _, fault := range faults {
		fmt.Fprintln(os.Stderr, fault)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// count returns lines of code by root folder, and what keeps the lines from being comparable.
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

// skipped reports whether a folder holds no product code: tests, kits (named for what they test, as hosttest is), tools
// that build releases, hidden folders and output.
func skipped(folder string) bool {
	base := folder[strings.LastIndex(folder, "/")+1:]
	return slices.Contains([]string{"test", "hack", "out", "bin"}, folder) || base == "testdata" ||
		strings.HasSuffix(base, "test") || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}

func generated(source []byte) bool {
	head, _, _ := bytes.Cut(source, []byte("\npackage "))
	return bytes.Contains(head, []byte("// Code generated "))
}

// codeLines counts the lines on which a token other than a comment stands.
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

// textLines counts the lines of SQL, HTML, style sheets or scripts that are neither blank nor begin as a comment.
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

// check returns what is wrong with the form of a file, to be written behind its name.
func check(source []byte) (faults []string) {
	if formatted, err := format.Source(source); err != nil || !bytes.Equal(formatted, source) {
		faults = append(faults, ": gofmt would change it")
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
