package surface

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit/reference"
)

type object = reference.Object

// about lists the schema keywords of a field that are added to the list.
var about = []string{
	"type", "format", "const", "default", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
	"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "uniqueItems", "nullable",
	"x-kubernetes-int-or-string", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
	"x-kubernetes-preserve-unknown-fields", "$ref", "additionalProperties",
}

// addSchema adds the keywords, required fields and validation rules of all fields of a schema.
func (f facts) addSchema(path string, schema object) {
	reference.Fields(path, schema, func(path string, schema object) {
		words := []string{path}
		for _, word := range about {
			if _, deeper := schema[word].(object); schema[word] != nil && !deeper {
				words = append(words, word+"="+text(schema[word]))
			}
		}
		f.add(words...)
		for _, word := range []string{"x-kubernetes-validations", "required", "enum"} {
			list, _ := schema[word].([]any)
			for _, item := range list {
				switch rule, ok := item.(object); {
				case ok:
					f.add(path, "rule", text(rule["rule"]))
				case word == "required":
					f.add(path+"."+text(item), "required")
				default:
					f.add(path, "takes", text(item))
				}
			}
		}
	})
}

// addValues adds all fields of a value.
func (f facts) addValues(path string, v any) {
	o, _ := v.(object)
	for key := range o {
		f.addValues(strings.TrimPrefix(path+"."+key, "."), o[key])
	}
	list, _ := v.([]any)
	for i := range list {
		f.addValues(fmt.Sprintf("%s[%02d]", path, i), list[i])
	}
	if len(o)+len(list) == 0 {
		data, _ := json.Marshal(v)
		f.add(path, "=", string(data))
	}
}

func text(v any) string { return reference.Text(v) }

// TestKinds lists the fields of the CRDs.
func TestKinds(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "charts/kubenergy/crds/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d CRD files, error %v", len(files), err)
	}
	f := facts{}
	for _, file := range files {
		spec := reference.ReadObject(t, file)["spec"].(object)
		names := spec["names"].(object)
		kind := text(names["kind"])
		f.add(kind, "group", text(spec["group"]), text(spec["scope"]), "names", text(names))
		for _, v := range spec["versions"].([]any) {
			version := v.(object)
			path := kind + " " + text(version["name"])
			for _, word := range []string{"served", "storage", "subresources"} {
				f.add(path, word, text(version[word]))
			}
			columns, _ := version["additionalPrinterColumns"].([]any)
			for _, column := range columns {
				f.add(path, "column", text(column))
			}
			f.addSchema(path, version["schema"].(object)["openAPIV3Schema"].(object))
		}
	}
	f.check(t, "kinds")
}

// TestValues lists the default values and the schema of the chart.
func TestValues(t *testing.T) {
	const chart = root + "/charts/kubenergy/"
	f := facts{}
	f.addValues("", reference.ReadObject(t, chart+"values.yaml"))
	f.addSchema("schema", reference.ReadObject(t, chart+"values.schema.json"))
	f.check(t, "values")
}
