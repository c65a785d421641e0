package reference

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// An Object is a YAML or JSON document or a part of one.
type Object = map[string]any

// ReadObject reads a YAML or JSON file.
func ReadObject(t testing.TB, path string) Object {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var o Object
	if err := yaml.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// Text formats a value on one line.
func Text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Fields calls found with a schema and all schemas nested in it, each with its path.
func Fields(path string, schema Object, found func(path string, schema Object)) {
	found(path, schema)
	for _, word := range []string{"properties", "definitions"} {
		deeper, _ := schema[word].(Object)
		for name, property := range deeper {
			Fields(strings.TrimPrefix(path+"."+name, "."), property.(Object), found)
		}
	}
	for word, suffix := range map[string]string{"items": "[]", "additionalProperties": ".*", "not": " not"} {
		if deeper, ok := schema[word].(Object); ok {
			Fields(path+suffix, deeper, found)
		}
	}
	for _, word := range []string{"anyOf", "oneOf", "allOf"} {
		list, _ := schema[word].([]any)
		for i, item := range list {
			Fields(fmt.Sprintf("%s %s %d", path, word, i), item.(Object), found)
		}
	}
}
