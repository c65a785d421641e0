package chart

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/power"
)

// sleeps contains values that enable kubenergy-power for one machine.
var sleeps = []string{
	"--set", "power.enabled=true", "--set", "power.keysSecret=bmcs", "--set-json", `power.machines=[{"node":"n1",` +
		`"uuid":"4c4c4544-0042-3510-8054-b4c04f564433","kind":"redfish","url":"https://bmc1","passwordKey":"p"}]`,
}

// TestPowerReadsItsConfiguration verifies that kubenergy-power accepts the configuration rendered by the chart. It
// must be disabled by default and use shadow mode when it is enabled.
func TestPowerReadsItsConfiguration(t *testing.T) {
	named := func(documents []Document, name string) int {
		return slices.IndexFunc(documents, func(d Document) bool { return d.Name() == name })
	}
	documents, err := Template(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if named(documents, "Deployment/kubenergy-power") >= 0 {
		t.Error("kubenergy-power is enabled by default")
	}
	if documents, err = Template(t.Context(), sleeps...); err != nil {
		t.Fatal(err)
	}
	config := documents[named(documents, "ConfigMap/kubenergy-power")]
	text, _ := config.Object.Object["data"].(map[string]any)["machines.yaml"].(string)
	c, err := power.ParseConfig([]byte(text))
	if err != nil || c.Mode != power.ModeShadow || c.KeysSecret != "bmcs" || len(c.Machines) != 1 ||
		c.Policy.Lead.Seconds() != 30 || c.Policy.MaxCycles != 12 || c.Policy.WakesPerMinute != 60 {
		t.Errorf("%+v, %v", c, err)
	}
	set := documents[named(documents, "Deployment/kubenergy-power")]
	if strings.Count(set.Text, "containerPort") != 1 || !strings.Contains(set.Text, "path: /healthz") ||
		!strings.Contains(set.Text, "replicas: 2") {
		t.Errorf("expected two replicas with a single port and a health probe, got:\n%s", set.Text)
	}
	for _, name := range []string{
		"NetworkPolicy/kubenergy-power", "PodDisruptionBudget/kubenergy-power", "Job/kubenergy-wake",
		"ValidatingAdmissionPolicyBinding/kubenergy-power-guard",
	} {
		if named(documents, name) < 0 {
			t.Errorf("%s was not rendered", name)
		}
	}
}

// TestMachinesThatCannotBe verifies that Helm rejects machines that kubenergy-power would reject at startup.
func TestMachinesThatCannotBe(t *testing.T) {
	one := func(node, uuid, url string) string {
		return fmt.Sprintf(`{"node":%q,"uuid":%q,"kind":"redfish","url":%q,"passwordKey":"k"}`, node, uuid, url)
	}
	const a, b, url = "4c4c4544-0042-3510-8054-b4c04f564433", "4c4c4544-0042-3510-8054-b4c04f564434", "https://bmc.lan"
	for want, machines := range map[string]string{
		"node n1 twice":            one("n1", a, url) + "," + one("n1", b, url),
		"uuid " + a + " twice":     one("n1", a, url) + "," + one("n2", strings.ToUpper(a), url),
		"with a password want":     one("n1", a, "http://bmc.lan"),
		"the url of n1 has a user": one("n1", a, "https://u:p@bmc.lan"),
	} {
		_, err := Template(t.Context(), "--set", "power.enabled=true,power.keysSecret=bmcs", "--set-json",
			"power.machines=["+machines+"]")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expected an error that contains %q, got %v", want, err)
		}
	}
}

// TestPowerWritesLittle evaluates the policy that restricts the changes kubenergy-power can make to nodes.
func TestPowerWritesLittle(t *testing.T) {
	documents, err := Template(t.Context(), sleeps...)
	if err != nil {
		t.Fatal(err)
	}
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	i := slices.IndexFunc(documents, func(d Document) bool {
		return d.Name() == "ValidatingAdmissionPolicy/kubenergy-power-guard"
	})
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(documents[i].Object.Object, &policy); err != nil {
		t.Fatal(err)
	}
	const (
		awake = `{"metadata": {"name": "n", "labels": {"kubenergy.io/may-sleep": "true", "zone": "a"}},
			"spec": {"providerID": "x", "taints": [{"key": "own", "effect": "NoSchedule"}]}}`
		asleep = `{"metadata": {"name": "n", "labels": {"kubenergy.io/may-sleep": "true", "zone": "a",
			"kubenergy.io/power-state": "stopping", "node.kubernetes.io/exclude-disruption": "true"},
			"annotations": {"kubenergy.io/power": "{}"}}, "spec": {"providerID": "x", "taints": [
			{"key": "own", "effect": "NoSchedule"}, {"key": "kubenergy.io/asleep", "effect": "NoSchedule"}]}}`
	)
	for name, c := range map[string]struct {
		before, after string
		change        [2]string // replacement applied to both
		only          [2]string // replacement applied to the updated object
		want          bool
	}{
		"to sleep":                  {before: awake, after: asleep, want: true},
		"and back":                  {before: asleep, after: awake, want: true},
		"node must not sleep":       {before: awake, after: asleep, change: [2]string{`"true", "zone"`, `"false", "zone"`}},
		"node must no longer sleep": {before: asleep, after: awake, change: [2]string{`"true", "zone"`, `"false", "zone"`}, want: true},
		"control plane":             {before: awake, after: asleep, change: [2]string{`"zone"`, `"node-role.kubernetes.io/control-plane": "", "zone"`}},
		"a taint that evicts":       {before: awake, after: asleep, only: [2]string{`asleep", "effect": "NoSchedule"`, `asleep", "effect": "NoExecute"`}},
		"a foreign taint":           {before: awake, after: asleep, only: [2]string{`{"key": "own", "effect": "NoSchedule"}, `, ``}},
		"a foreign label":           {before: awake, after: asleep, only: [2]string{`"zone": "a"`, `"zone": "b"`}},
		"an additional label":       {before: awake, after: asleep, only: [2]string{`"zone": "a"`, `"zone": "a", "x": ""`}},
		"an additional annotation":  {before: awake, after: asleep, only: [2]string{`"kubenergy.io/power": "{}"`, `"kubenergy.io/power": "{}", "x": ""`}},
		"a foreign exclude-disruption label": {
			before: strings.Replace(awake, `"zone": "a"`, `"node.kubernetes.io/exclude-disruption": ""`, 1),
			after:  strings.Replace(awake, `"zone": "a"`, `"other": ""`, 1),
			change: [2]string{`may-sleep": "true"`, `may-sleep": "false"`},
		},
		"an annotation on a node that must not sleep": {
			before: awake, after: strings.Replace(awake, `}},`, `}, "annotations": {"kubenergy.io/power": "{}"}},`, 1),
			change: [2]string{`may-sleep": "true"`, `may-sleep": "false"`},
		},
		"a cordon":         {before: awake, after: asleep, only: [2]string{`"providerID"`, `"unschedulable": true, "providerID"`}},
		"another provider": {before: awake, after: asleep, only: [2]string{`"providerID": "x"`, `"providerID": "y"`}},
	} {
		before := strings.Replace(c.before, c.change[0], c.change[1], 1)
		after := strings.Replace(strings.Replace(c.after, c.change[0], c.change[1], 1), c.only[0], c.only[1], 1)
		if got := admits(t, &policy, before, after); got != c.want {
			t.Errorf("%s: admits() = %v", name, got)
		}
	}
}

// admits evaluates a policy for an update from before to after.
func admits(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy, before, after string) bool {
	t.Helper()
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
		cel.Variable("request", cel.DynType), cel.Variable("variables", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string]any{}
	request := map[string]any{"operation": "UPDATE"}
	if before == "null" {
		request["operation"] = "CREATE"
	}
	input := map[string]any{"request": request, "variables": variables}
	for name, text := range map[string]string{"object": after, "oldObject": before} {
		var o any
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		input[name] = o
	}
	value := func(expression string) any {
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := program.Eval(input)
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		return out.Value()
	}
	for _, v := range policy.Spec.Variables {
		variables[v.Name] = value(v.Expression)
	}
	for _, v := range policy.Spec.Validations {
		if value(v.Expression) != true {
			return false
		}
	}
	return true
}

// TestKubeletsWriteLittle evaluates the policy that restricts kubelets, for creations and updates.
func TestKubeletsWriteLittle(t *testing.T) {
	documents, err := Template(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	i := slices.IndexFunc(documents, func(d Document) bool {
		return d.Name() == "ValidatingAdmissionPolicy/kubenergy-nodes"
	})
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(documents[i].Object.Object, &policy); err != nil {
		t.Fatal(err)
	}
	rules := policy.Spec.MatchConstraints.ResourceRules
	if len(rules) != 1 || !slices.Equal(rules[0].Operations, []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}) ||
		!slices.Equal(rules[0].Resources, []string{"nodes", "nodes/status"}) {
		t.Errorf("unexpected match constraints: %+v", rules)
	}
	node := func(labels, annotations string) string {
		return `{"metadata": {"labels": {` + labels + `}, "annotations": {` + annotations + `}}, "spec": {}}`
	}
	for name, c := range map[string]struct {
		before, after string
		want          bool
	}{
		"joins":                   {"null", `{"metadata": {}, "spec": {}}`, true},
		"joins with a site":       {"null", node(`"kubenergy.io/site": "a"`, `"note": "x"`), true},
		"joins asleep":            {"null", node(`"kubenergy.io/power-state": "asleep"`, ``), false},
		"joins with failed boots": {"null", node(``, `"kubenergy.io/power": "{}"`), false},
		"joins with watts":        {"null", node(``, `"energy.thesis.io/current-watts": "1"`), false},
		"a note":                  {node(``, ``), node(`"rack": "7"`, `"note": "x"`), true},
		"another site":            {node(`"kubenergy.io/site": "a"`, ``), node(`"kubenergy.io/site": "b"`, ``), false},
		"failed boots":            {node(``, ``), node(``, `"kubenergy.io/power": "{}"`), false},
		"no failed boots":         {node(``, `"kubenergy.io/power": "{}"`), node(``, ``), false},
		"an unchanged annotation": {node(``, `"kubenergy.io/power": "{}"`), node(``, `"kubenergy.io/power": "{}"`), true},
	} {
		if got := admits(t, &policy, c.before, c.after); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestControllerWritesLittleOnNodes evaluates the policy that restricts the changes the controller can make to
// nodes.
func TestControllerWritesLittleOnNodes(t *testing.T) {
	documents, err := Template(t.Context(), "--set", "agent.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	i := slices.IndexFunc(documents, func(d Document) bool {
		return d.Name() == "ValidatingAdmissionPolicy/kubenergy-nodes-guard"
	})
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(documents[i].Object.Object, &policy); err != nil {
		t.Fatal(err)
	}
	reported := map[string]string{"zone": "a"}
	for _, key := range hardware.ReportedLabels {
		reported[key] = "x"
	}
	all, err := json.Marshal(reported)
	if err != nil {
		t.Fatal(err)
	}
	bare := `{"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {"providerID": "x"}}`
	full := `{"metadata": {"name": "n", "labels": ` + string(all) + `, "annotations": {"` + v1alpha1.AnnotationPowerGuess +
		`": "100 W"}}, "spec": {"providerID": "x"}}`
	for name, c := range map[string]struct {
		before, after string
		only          [2]string // replacement applied to the updated object
		want          bool
	}{
		"detected hardware":         {before: bare, after: full, want: true},
		"removed detected hardware": {before: full, after: bare, want: true},
		"changed detected hardware": {before: full, after: full, only: [2]string{`"cpu-model":"x"`, `"cpu-model":"y"`}, want: true},
		"a foreign label":           {before: bare, after: full, only: [2]string{`"zone":"a"`, `"zone":"b"`}},
		"a profile":                 {before: bare, after: full, only: [2]string{`"zone"`, `"kubenergy.io/power-profile":"p","zone"`}},
		"the label may-sleep":       {before: bare, after: full, only: [2]string{`"zone"`, `"kubenergy.io/may-sleep":"true","zone"`}},
		"a foreign annotation":      {before: bare, after: full, only: [2]string{`"100 W"`, `"100 W", "x": "y"`}},
		"a long value":              {before: bare, after: full, only: [2]string{`100 W`, strings.Repeat("w", 300)}},
		"a taint":                   {before: bare, after: full, only: [2]string{`"spec": {`, `"spec": {"taints": [{"key": "x"}], `}},
		"a cordon":                  {before: bare, after: full, only: [2]string{`"spec": {`, `"spec": {"unschedulable": true, `}},
		"an owner":                  {before: bare, after: full, only: [2]string{`"name": "n"`, `"name": "n", "ownerReferences": [{}]`}},
		"a finalizer":               {before: bare, after: full, only: [2]string{`"name": "n"`, `"name": "n", "finalizers": ["x/y"]`}},
	} {
		if got := admits(t, &policy, c.before, strings.Replace(c.after, c.only[0], c.only[1], 1)); got != c.want {
			t.Errorf("%s: admits() = %v", name, got)
		}
	}
}
