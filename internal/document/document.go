// Package document provides strict decoding of the YAML files that commands accept.
package document

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/spelling"
)

// Read reads a file of the given kind into to. Unknown fields are errors. If the file is of another kind, the error
// includes the command that accepts this kind.
func Read(path, kind string, to any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var header struct{ APIVersion, Kind string }
	if yaml.Unmarshal(text,
		&header) == nil && header.Kind != "" && (header.Kind != kind || header.APIVersion != APIVersion) {
		return fmt.Errorf("%s: apiVersion %q, kind %q: want %q and %q%s", path, header.APIVersion, header.Kind,
			APIVersion, kind, otherUse[header.Kind])
	}
	if err := UnmarshalYAML(text, to); err != nil {
		var plain string
		if yaml.Unmarshal(text, &plain) == nil && kind == ScenarioKind {
			return fmt.Errorf("%s: not a scenario file: want YAML with apiVersion %q and kind %q; pass a trace of "+
				"jobs with --workload", path, APIVersion, kind)
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	if header.Kind == "" {
		return fmt.Errorf("%s: kind is missing: want apiVersion %q and kind %q", path, APIVersion, kind)
	}
	return nil
}

// otherUse maps kinds to a hint about the command that accepts their files.
var otherUse = map[string]string{
	ScenarioKind: "; use kubenergy simulate -f", "Comparison": "; use kubenergy compare -f",
	"Experiment": "; use kubenergy experiment -f",
	"GridZone":   "; use kubectl apply -f", "PowerProfile": "; use kubectl apply -f",
	"EnergyPolicy": "; use kubectl apply -f", "EnergyBudget": "; use kubectl apply -f",
}

// UnmarshalYAML decodes a YAML document strictly. Field names are case sensitive and unknown fields are errors.
// Errors use the terms of YAML documents instead of those of Go and JSON.
func UnmarshalYAML(text []byte, to any) error {
	var document any
	if yaml.Unmarshal(text, &document) == nil {
		if err := unknownField("", document, reflect.TypeOf(to)); err != nil {
			return err
		}
	}
	err := yaml.UnmarshalStrict(text, to)
	if err == nil {
		return nil
	}
	said := err.Error()
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		said = strings.Replace(said, kind.Error(), wrongType(kind), 1)
	}
	for _, how := range [...]string{
		"error converting YAML to JSON: ", "error unmarshaling JSON: ", "while decoding JSON: ", "json: ", "yaml: ",
		"unmarshal errors:\n",
	} {
		said = strings.TrimPrefix(said, how)
	}
	lines := strings.Split(said, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return errors.New(strings.Join(lines, "; "))
}

// unknownField returns an error for the first field of a document, in lexical order, that the type does not have.
func unknownField(path string, document any, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil // custom decoding
	}
	switch v := document.(type) {
	case []any:
		if t.Kind() != reflect.Slice {
			return nil
		}
		for _, item := range v {
			if err := unknownField(path, item, t.Elem()); err != nil {
				return err
			}
		}
	case map[string]any:
		known := fieldsOf(t)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			here := path + key
			switch field, ok := known[key]; {
			case t.Kind() == reflect.Map:
				field = t.Elem()
				fallthrough
			case ok:
				if err := unknownField(here+".", v[key], field); err != nil {
					return err
				}
			case t.Kind() == reflect.Struct:
				return fmt.Errorf("unknown field %q%s", here,
					spelling.DidYouMean(key, slices.Collect(maps.Keys(known))))
			}
		}
	}
	return nil
}

// fieldsOf returns the types of the fields of a struct by JSON name.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	known := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return known
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			maps.Copy(known, fieldsOf(f.Type))
		case f.IsExported() && name != "-":
			known[cmp.Or(name, f.Name)] = f.Type
		}
	}
	return known
}

func wrongType(e *json.UnmarshalTypeError) string {
	field, got := cmp.Or(e.Field, "the document"), strings.TrimPrefix(e.Value, "number ")
	if words, ok := map[string]string{
		"number": "a number", "string": "a string", "array": "a list", "object": "an object", "bool": "a boolean",
	}[got]; ok {
		got = words
	}
	if got == "a number" && e.Type.Kind() == reflect.String {
		return field + " is a number: want a string, e.g. a duration such as 30s"
	}
	return field + " is " + got + ": want " + inWords(e.Type)
}

// inWords describes the values of a type for error messages.
func inWords(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Slice:
		return "a list"
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		return "an object such as {name: value}"
	case reflect.Zero(t).CanUint():
		return "a whole number, 0 or more and below 2^64"
	case reflect.Zero(t).CanInt():
		return "a whole number"
	}
	return "a number"
}

// APIVersion is the API version of the files that commands accept.
const APIVersion = "kubenergy.io/v1alpha1"

// ScenarioKind is the kind of scenario files.
const ScenarioKind = "Scenario"
