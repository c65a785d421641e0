package karmada

import (
	"encoding/json"
	"testing"
)

func parsed[T any](t testing.TB, text string) *T {
	t.Helper()
	v := new(T)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatal(err)
	}
	return v
}

const paris = `{"metadata": {"name": "paris", "labels": {"tier": "gold"}},
  "spec": {"provider": "aws", "region": "eu-west-3", "zones": ["a", "b"]},
  "status": {"conditions": [{"type": "Ready", "status": "True"}],
    "apiEnablements": [{"groupVersion": "batch/v1", "resources": [{"kind": "Job"}]}]}}`

// TestRefuses verifies that the filters match those of karmada-scheduler's plugins.
func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct{ placement, cluster, spec, want string }{
		"all":               {placement: `{}`},
		"by name":           {placement: `{"clusterAffinity": {"clusterNames": ["paris"]}}`},
		"another name":      {placement: `{"clusterAffinity": {"clusterNames": ["rome"]}}`, want: "the cluster affinity does not match"},
		"excluded":          {placement: `{"clusterAffinity": {"exclude": ["paris"]}}`, want: "the cluster affinity does not match"},
		"by label":          {placement: `{"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "gold"}}}}`},
		"another label":     {placement: `{"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "tin"}}}}`, want: "the cluster affinity does not match"},
		"by region":         {placement: field("region", "In", "eu-west-3")},
		"another region":    {placement: field("region", "In", "eu-west-1"), want: "the cluster affinity does not match"},
		"not in a region":   {placement: field("region", "NotIn", "eu-west-3"), want: "the cluster affinity does not match"},
		"one of its zones":  {placement: field("zone", "In", "b")},
		"not in its zones":  {placement: field("zone", "NotIn", "b"), want: "the cluster affinity does not match"},
		"unknown field":     {placement: field("zone", "Gt", "b"), want: "the cluster affinity does not match"},
		"tainted":           {placement: `{}`, cluster: `"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}`, want: "the cluster has an untolerated taint"},
		"tolerated":         {placement: `{"clusterTolerations": [{"key": "k", "operator": "Exists"}]}`, cluster: `"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}`},
		"not preferred":     {placement: `{}`, cluster: `"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}`},
		"tainted, placed":   {placement: `{}`, cluster: `"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}`, spec: `, "clusters": [{"name": "paris"}]`},
		"evicted":           {placement: `{}`, spec: `, "gracefulEvictionTasks": [{"fromCluster": "paris"}]`, want: "the binding is being evicted from the cluster"},
		"deleted":           {placement: `{}`, cluster: `"metadata": {"name": "paris", "deletionTimestamp": "2026-01-01T00:00:00Z"}`, want: "the cluster is being deleted"},
		"API is not served": {placement: `{}`, cluster: `"status": {}`, want: "the cluster does not serve batch/v1 Job"},
	} {
		var whole map[string]any
		if err := json.Unmarshal([]byte(paris), &whole); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte("{"+c.cluster+"}"), &whole); err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(whole)
		b := parsed[binding](t, `{"spec": {"resource": {"apiVersion": "batch/v1", "kind": "Job"}, "placement": `+c.placement+c.spec+`}}`)
		if got := b.refuses(parsed[cluster](t, string(text))); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func field(key, operator, value string) string {
	return `{"clusterAffinity": {"fieldSelector": {"matchExpressions": [{"key": "` + key + `", "operator": "` + operator +
		`", "values": ["` + value + `"]}]}}}`
}

// TestUnsupported verifies that bindings with features that only karmada-scheduler supports are rejected.
func TestUnsupported(t *testing.T) {
	for spec, want := range map[string]bool{
		`"placement": {}`: false,
		`"placement": {"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}]}`:               false,
		`"placement": {"spreadConstraints": [{"spreadByField": "region"}]}`:                                true,
		`"placement": {"spreadConstraints": [{"spreadByLabel": "tier"}]}`:                                  true,
		`"placement": {"clusterAffinities": [{"affinityName": "a"}]}`:                                      true,
		`"placement": {"replicaScheduling": {"weightPreference": {"dynamicWeight": "AvailableReplicas"}}}`: false,
		`"placement": {"replicaScheduling": {"weightPreference": {"staticWeightList": [{"weight": 1}]}}}`:  true,
		`"placement": {}, "replicas": 10000`:                                                               false,
		`"placement": {}, "replicas": 10001`:                                                               true,
		`"placement": {}, "replicas": -1`:                                                                  true,
		`"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}, "replicas": 2`:          false,
		`"placement": {}, "components": [{"name": "a"}]`:                                                   true,
		`"replicas": 1`: true,
	} {
		if err := parsed[binding](t, `{"spec": {`+spec+`}}`).unsupported(); (err != nil) != want {
			t.Errorf("%s: %v", spec, err)
		}
	}
}
