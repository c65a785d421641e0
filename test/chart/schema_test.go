package chart

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/charts"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/test/kit"
)

var rewrite = flag.Bool("rewrite", false,
	"regenerate the manifests and the parts of the values schema that are derived from CRDs")

// TestSchemaKnowsOurKinds verifies that values.schema.json rejects zones, profiles and policies that the API server
// would reject. These parts of the schema are generated from the CRDs.
func TestSchemaKnowsOurKinds(t *testing.T) {
	path := filepath.Join(Folder, "values.schema.json")
	previous, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(previous, &schema); err != nil {
		t.Fatal(err)
	}
	definitions := schema["definitions"].(map[string]any)
	names := map[string]string{
		"GridZone": "gridZoneSpec", "PowerProfile": "powerProfileSpec", "EnergyPolicy": "energyPolicySpec",
	}
	for _, text := range charts.CRDs() {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		name := names[crd.Spec.Names.Kind]
		if name == "" {
			continue // not part of the values
		}
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		definitions[name] = jsonSchema(&spec)
	}
	var now bytes.Buffer
	encoder := json.NewEncoder(&now)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	kit.Golden(t, path, now.Bytes(), *rewrite)
}

// TestPoliciesTakeEveryWhere verifies that policies accept all strategies that annotations and profiles accept.
func TestPoliciesTakeEveryWhere(t *testing.T) {
	wheres, _ := strategy.Names()
	for _, text := range charts.CRDs() {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		if crd.Spec.Names.Kind != "EnergyPolicy" {
			continue
		}
		var takes []string
		for _, value := range crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["strategy"].Enum {
			var name string
			if err := json.Unmarshal(value.Raw, &name); err != nil {
				t.Fatal(err)
			}
			takes = append(takes, name)
		}
		if diff := cmp.Diff(wheres, takes); diff != "" {
			t.Errorf("strategies accepted by the CRD differ from the existing ones (-want,+got):\n%s", diff)
		}
		return
	}
	t.Error("CRD of EnergyPolicy not found")
}

// jsonSchema converts a structural schema to a plain JSON schema. CEL rules are omitted and only enforced by the
// API server.
func jsonSchema(p *apiextensionsv1.JSONSchemaProps) map[string]any {
	s := map[string]any{"type": p.Type}
	set := func(key string, present bool, value any) {
		if present {
			s[key] = value
		}
	}
	set("description", p.Description != "", p.Description)
	pattern := p.Pattern
	if slices.ContainsFunc(p.XValidations, func(v apiextensionsv1.ValidationRule) bool {
		return strings.Contains(v.Rule, "duration(self)")
	}) {
		pattern = `^[+]?([0-9.]+(h|m|s|ms|[uµμn]s))+$|^0$` // all Go durations; CEL enforces their bounds
	}
	set("pattern", pattern != "", pattern)
	set("enum", len(p.Enum) > 0, p.Enum)
	set("required", len(p.Required) > 0, p.Required)
	set("minimum", p.Minimum != nil && !p.ExclusiveMinimum, p.Minimum)
	set("exclusiveMinimum", p.Minimum != nil && p.ExclusiveMinimum, p.Minimum)
	set("maximum", p.Maximum != nil, p.Maximum)
	set("minLength", p.MinLength != nil, p.MinLength)
	set("maxLength", p.MaxLength != nil, p.MaxLength)
	set("minItems", p.MinItems != nil, p.MinItems)
	set("maxItems", p.MaxItems != nil, p.MaxItems)
	set("maxProperties", p.MaxProperties != nil, p.MaxProperties)
	if p.Items != nil {
		s["items"] = jsonSchema(p.Items.Schema)
	}
	if p.Type != "object" {
		return s
	}
	s["additionalProperties"] = false
	if p.AdditionalProperties != nil {
		s["additionalProperties"] = jsonSchema(p.AdditionalProperties.Schema)
	}
	if len(p.Properties) > 0 {
		properties := map[string]any{}
		for name, property := range p.Properties {
			properties[name] = jsonSchema(&property)
		}
		s["properties"] = properties
	}
	return s
}
