package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// An event is a line of the output of go test -json. See go doc test2json and go help buildjson.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64
}

// test runs go test and prints a summary of each package and the output of failed tests.
func test(arguments []string) error {
	results := &results{packages: map[string]*result{}}
	out := newPulse(os.Stdout, results.state)
	defer out.stop()
	results.to = out
	command := exec.Command("go", append([]string{"test", "-json"}, arguments...)...)
	command.Stderr = out
	lines, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	results.read(lines)
	err = command.Wait()
	if errSave := appendLines(skippedFile, results.skipped); err == nil {
		err = errSave
	}
	return err
}

// results contains the results of the packages of one run.
type results struct {
	to       io.Writer
	lock     sync.Mutex // protects packages and finished, which are also read by the pulse
	packages map[string]*result
	finished int
	skipped  []string // "package Test: reason"
}

// A result contains the output of the tests of a package that have not passed yet.
type result struct {
	output  map[string][]string // by test; the empty name is the package
	order   []string
	failed  bool
	shuffle string // flag that repeats the test order, or empty if it is not random
}

func (r *results) state() string {
	r.lock.Lock()
	defer r.lock.Unlock()
	var running []string
	for _, name := range slices.Sorted(maps.Keys(r.packages)) {
		running = append(running, short(name))
	}
	if len(running) == 0 {
		return fmt.Sprintf("%d packages completed, compiling", r.finished)
	}
	return fmt.Sprintf("%d packages completed, running %s", r.finished, strings.Join(running, ", "))
}

// short returns the path of a package within the module.
func short(name string) string {
	_, folder, found := strings.Cut(name, "kubenergy/kubenergy/")
	if !found {
		return name
	}
	return folder
}

func (r *results) read(lines io.Reader) {
	reader := bufio.NewReader(lines)
	for {
		line, err := reader.ReadBytes('\n')
		var e event
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
			if json.Unmarshal(trimmed, &e) != nil {
				fmt.Fprintf(r.to, "%s\n", trimmed)
			} else {
				r.take(&e)
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *results) take(e *event) {
	if strings.HasPrefix(e.Action, "build-") {
		fmt.Fprint(r.to, e.Output)
		return
	}
	p := r.of(e.Package)
	switch e.Action {
	case "output":
		if seed, shuffled := strings.CutPrefix(e.Output, "-test.shuffle "); shuffled {
			p.shuffle = "  -shuffle=" + strings.TrimSpace(seed)
		} else if !quiet(e.Output) {
			if _, known := p.output[e.Test]; !known {
				p.order = append(p.order, e.Test)
			}
			p.output[e.Test] = append(p.output[e.Test], e.Output)
		}
	case "pass":
		if e.Test != "" {
			delete(p.output, e.Test)
		}
	case "skip":
		if e.Test != "" {
			r.skipped = append(r.skipped, short(e.Package)+" "+e.Test+": "+reason(p.output[e.Test]))
			delete(p.output, e.Test)
		}
	case "fail":
		p.failed = true
	}
	if e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip") {
		r.finish(e, p)
	}
}

func (r *results) of(name string) *result {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.packages[name] == nil {
		r.packages[name] = &result{output: map[string][]string{}}
	}
	return r.packages[name]
}

// finish prints the result of a package and the output of its failed tests.
func (r *results) finish(e *event, p *result) {
	r.lock.Lock()
	delete(r.packages, e.Package)
	r.finished++
	r.lock.Unlock()
	if e.Action == "skip" {
		return // package without tests
	}
	if e.Action == "fail" {
		for _, test := range p.order {
			for _, line := range p.output[test] {
				fmt.Fprint(r.to, line)
			}
		}
		fmt.Fprintf(r.to, "FAIL  %s  %.1fs%s\n", short(e.Package), e.Elapsed, p.shuffle)
		return
	}
	verdict, cached := "ok  ", ""
	for _, line := range p.output[""] {
		if strings.HasPrefix(line, "ok ") && strings.Contains(line, "(cached)") {
			cached = " (cached)"
		}
		if strings.HasPrefix(line, "ok ") && strings.Contains(line, "[no tests to run]") {
			verdict = "no tests"
		}
	}
	fmt.Fprintf(r.to, "%s  %s  %.1fs%s\n", verdict, short(e.Package), e.Elapsed, cached)
}

// quiet reports whether a line only indicates that a test starts or continues.
func quiet(line string) bool {
	line = strings.TrimSpace(line)
	for _, prefix := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// reason returns the message of a skipped test without the file and line.
func reason(output []string) string {
	for _, line := range output {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "---") {
			continue
		}
		if _, text, found := strings.Cut(line, ".go:"); found {
			if _, said, found := strings.Cut(text, ": "); found {
				return said
			}
		}
		return line
	}
	return "no reason given"
}

func appendLines(name string, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(strings.Join(lines, "\n") + "\n")
	if errClose := file.Close(); err == nil {
		err = errClose
	}
	return err
}

// printSkipped prints the skipped tests by reason and removes the file.
func printSkipped(to io.Writer, name string) error {
	text, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		_, err = fmt.Fprintln(to, "== no test was skipped")
		return err
	}
	if err != nil {
		return err
	}
	byReason := map[string]map[string]bool{}
	for line := range strings.Lines(string(text)) {
		test, why, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if byReason[why] == nil {
			byReason[why] = map[string]bool{}
		}
		byReason[why][test] = true
	}
	fmt.Fprintln(to, "== skipped")
	for _, why := range slices.Sorted(maps.Keys(byReason)) {
		fmt.Fprintf(to, "   %s\n      %s\n", why, strings.Join(slices.Sorted(maps.Keys(byReason[why])), "\n      "))
	}
	return os.Remove(name)
}
