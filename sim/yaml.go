package sim

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"sigs.k8s.io/yaml"
)

// UnmarshalYAML reads a YAML document strictly, unknown fields are errors, and says what is wrong with it in the
// words of who wrote it: the decoder's own are those of Go and of JSON.
func UnmarshalYAML(text []byte, to any) error {
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

func wrongType(e *json.UnmarshalTypeError) string {
	field, is := e.Field, e.Value
	if field == "" {
		field = "the document"
	}
	if number, ok := strings.CutPrefix(is, "number "); ok {
		is = number
	}
	if words, ok := map[string]string{
		"number": "a number", "string": "text", "array": "a list", "object": "a set of fields", "bool": "a boolean",
	}[is]; ok {
		is = words
	}
	return field + " is " + is + ": want " + inWords(e.Type)
}

// inWords says what is written for a value of a type.
func inWords(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Slice:
		return "a list"
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		return "fields, as {name: value}"
	case reflect.Zero(t).CanUint():
		return "a whole number, 0 or more and below 2^64"
	case reflect.Zero(t).CanInt():
		return "a whole number"
	}
	return "a number"
}
