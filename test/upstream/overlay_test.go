package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const registrySource = `// Package plugins: NewInTreeRegistry is here.
package plugins

type t struct{}

func (t) NewInTreeRegistry() int { return 0 }

// NewInTreeRegistry says NewInTreeRegistry.
func NewInTreeRegistry() runtime.Registry {
	return NewInTreeRegistry()
}
`

func TestGraftRenamesTheDeclarationOnly(t *testing.T) {
	got, err := grafts[0].apply([]byte(registrySource))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(registrySource, "\nfunc NewInTreeRegistry()", "\nfunc stockRegistry()", 1)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

// TestGraftRefusesWhatItDoesNotKnow verifies that apply fails if Kubernetes changes the way its plugins are
// registered.
func TestGraftRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"another name", "\nfunc NewInTreeRegistry", "\nfunc NewRegistry", "no function NewInTreeRegistry"},
		{
			"arguments", "NewInTreeRegistry() runtime", "NewInTreeRegistry(n int) runtime",
			"is a func(n int) runtime.Registry",
		},
		{"our name is taken", "type t struct{}", "func stockRegistry() {}", "already has a function stockRegistry"},
		{"no Go", "package plugins", "plugins", "expected 'package'"},
	} {
		_, err := grafts[0].apply([]byte(strings.Replace(registrySource, c.from, c.to, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", c.name, err, c.want)
		}
	}
}
