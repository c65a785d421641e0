package chart

import (
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// TestPoliciesNameStrategies verifies that all strategies accepted by a policy exist and that they include all
// planning strategies.
func TestPoliciesNameStrategies(t *testing.T) {
	raw, err := os.ReadFile("../../charts/kubenergy/crds/kubenergy.io_energypolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd any
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		t.Fatal(err)
	}
	wheres, _ := strategy.Names()
	found := 0
	walk(crd, func(key string, value any) {
		schema, ok := value.(map[string]any)
		if !ok || key != "strategy" || schema["enum"] == nil {
			return
		}
		found++
		var names []string
		for _, name := range schema["enum"].([]any) {
			names = append(names, name.(string))
			if !slices.Contains(wheres, name.(string)) {
				t.Errorf("policies accept %v, which is not a placement strategy", name)
			}
		}
		for _, where := range wheres {
			if (strings.HasPrefix(where, "flow-") || strings.HasPrefix(where, "ecsched-") && where != "ecsched-k8s") &&
				!slices.Contains(names, where) {
				t.Errorf("policies do not accept strategy %s", where)
			}
		}
	})
	if found == 0 {
		t.Error("no enum of strategies found in the CRD")
	}
}

func walk(value any, visit func(key string, value any)) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			visit(key, inner)
			walk(inner, visit)
		}
	case []any:
		for _, inner := range v {
			walk(inner, visit)
		}
	}
}
