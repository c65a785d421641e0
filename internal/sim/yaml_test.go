package sim_test

import (
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/document"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// TestUnmarshalYAML verifies that errors refer to fields and lines of the scenario, rather than to Go types and
// decoder states.
func TestUnmarshalYAML(t *testing.T) {
	for text, want := range map[string]string{
		"queue: {window: 1.5}":          "queue.window is 1.5: want a whole number",
		"queue: {window: many}":         "queue.window is a string: want a whole number",
		"queue: 3":                      "queue is a number: want an object such as {name: value}",
		"queue: {wndow: 1}":             `unknown field "queue.wndow" (did you mean window?)`,
		"Strategies: [energy]":          `unknown field "Strategies" (did you mean strategies?)`,
		"sites: [{name: a, Pue: 1}]":    `unknown field "sites.Pue" (did you mean pue?)`,
		"weather: DE":                   `unknown field "weather"`,
		"queue: {window: 1\nseed: 2":    "line 1: did not find expected ',' or '}'",
		"seed: 1\nseed: 2\nseed: 3":     `line 2: key "seed" already set in map; line 3: key "seed" already set in map`,
		"seed: -1":                      "seed is -1: want a whole number, 0 or more and below 2^64",
		"strategies: energy":            "strategies is a string: want a list",
		"strategies: [{a: 1}]":          "strategies is an object: want a string",
		"sites: [{grid: [a]}]":          "sites.grid is a list: want an object such as {name: value}",
		"minSaving: half":               "minSaving is a string: want a number",
		"interruptible: 3":              "interruptible is a number: want true or false",
		"minSaving: true":               "minSaving is a boolean: want a number",
		"benchmarks: {a: {rate: much}}": "reading benchmark: rate is a string: want a number",
		"benchmarks: 1":                 "benchmarks is a number: want an object such as {name: value}",
		"- energy":                      "the document is a list: want an object such as {name: value}",
	} {
		if err := document.UnmarshalYAML([]byte(text), &sim.File{}); err == nil || err.Error() != want {
			t.Errorf("UnmarshalYAML(%q) = %v, want %s", text, err, want)
		}
	}
	var f sim.File
	if err := document.UnmarshalYAML([]byte("seed: 3\nmaxDelay: 6h\n"), &f); err != nil || f.Seed != 3 ||
		f.MaxDelay != "6h" {
		t.Errorf("%+v, %v", f, err)
	}
}

// FuzzUnmarshalYAML decodes scenarios; errors must be a single line.
func FuzzUnmarshalYAML(f *testing.F) {
	f.Add([]byte("apiVersion: kubenergy.io/v1alpha1\nkind: Scenario\nseed: 3\nmaxDelay: 6h\nsites: [{zone: DE}]\n"))
	f.Add([]byte("seed: [1\nkind: {a: &a [*a]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		err := document.UnmarshalYAML(text, &sim.File{})
		if err != nil && (err.Error() == "" || strings.Contains(err.Error(), "\n")) {
			t.Fatalf("%q", err)
		}
	})
}
