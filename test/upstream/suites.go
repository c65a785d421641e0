package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// all is the import path of the scheduler integration tests. A suite is a package below it, identified by the
// remaining path. "scheduler" is the package itself.
const all = kubernetes + "/test/integration/scheduler"

func suitePackage(suite string) string {
	if suite == "scheduler" {
		return all
	}
	return all + "/" + suite
}

// suites returns the requested suites and those below them, or all suites with tests if asked is empty.
func (s *sources) suites(ctx context.Context, asked []string) ([]string, error) {
	listed, err := goOutput(ctx, s.root, "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}",
		all+"/...")
	if err != nil {
		return nil, err
	}
	var names []string
	for path := range strings.FieldsSeq(listed) {
		name := strings.TrimPrefix(path, all+"/")
		if path == all {
			name = "scheduler"
		}
		names = append(names, name)
	}
	if len(asked) == 0 {
		return names, nil
	}
	var chosen []string
	for _, a := range asked {
		found := false
		for _, name := range names {
			if name == a || strings.HasPrefix(name, a+"/") {
				found = true
				if !slices.Contains(chosen, name) {
					chosen = append(chosen, name)
				}
			}
		}
		if !found {
			return nil, fmt.Errorf("no suite %q, want some of %s", a, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}

// directory returns the directory in which go test would run the suite.
func (s *sources) directory(suite string) string {
	return filepath.Join(s.kubernetes, filepath.FromSlash(strings.TrimPrefix(suitePackage(suite), kubernetes+"/")))
}
