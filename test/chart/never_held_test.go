package chart

import (
	"encoding/json"
	"testing"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubenergy/kubenergy/internal/policy"
)

// TestPoliciesFollowNeverHeld evaluates the conditions of the admission policies for Jobs that are or are not held, and
// compares them with package policy.
func TestPoliciesFollowNeverHeld(t *testing.T) {
	documents, err := Template(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var conditions []string
	var suspends string
	for _, d := range documents {
		var mutating admissionregistrationv1.MutatingAdmissionPolicy
		var validating admissionregistrationv1.ValidatingAdmissionPolicy
		switch d.Name() {
		case "MutatingAdmissionPolicy/kubenergy-hold":
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, &mutating)
			for _, c := range mutating.Spec.MatchConditions {
				conditions = append(conditions, c.Expression)
			}
		case "ValidatingAdmissionPolicy/kubenergy-hold-guard":
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, &validating)
			for _, v := range validating.Spec.Variables {
				if v.Name == "mayBeSuspended" {
					suspends = v.Expression
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(conditions) < 4 || suspends == "" {
		t.Fatalf("conditions %q and %q", conditions, suspends)
	}
	for name, change := range map[string]func(*batchv1.Job){
		"a Job":            func(*batchv1.Job) {},
		"other controller": func(j *batchv1.Job) { j.Spec.ManagedBy = new("example.com/other-controller") },
		"job controller":   func(j *batchv1.Job) { j.Spec.ManagedBy = new(batchv1.JobControllerName) },
		"queue":            func(j *batchv1.Job) { j.Labels = map[string]string{policy.LabelKueueQueue: "q"} },
		"priority of Kueue": func(j *batchv1.Job) {
			j.Labels = map[string]string{"kueue.x-k8s.io/priority-class": "low"}
		},
		"workflow":    func(j *batchv1.Job) { j.Annotations = map[string]string{"workflows.argoproj.io/node-name": "n"} },
		"Helm hook":   func(j *batchv1.Job) { j.Annotations = map[string]string{"helm.sh/hook": "test"} },
		"Argo hook":   func(j *batchv1.Job) { j.Annotations = map[string]string{"argocd.argoproj.io/hook": "Sync"} },
		"member":      func(j *batchv1.Job) { j.Labels = map[string]string{"karmada.io/managed": "true"} },
		"other label": func(j *batchv1.Job) { j.Labels = map[string]string{"app": "kueue.x-k8s.io/"} },
		"CronJob": func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob"}}
		},
		"JobSet": func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet"}}
		},
		"critical": func(j *batchv1.Job) { j.Spec.Template.Spec.PriorityClassName = "system-node-critical" },
	} {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "team"}}
		change(job)
		_, never := policy.NeverHeldJob(job)
		admitted := true
		for _, c := range conditions {
			admitted = admitted && evaluated(t, c, job)
		}
		if admitted == never || evaluated(t, suspends, job) == never {
			t.Errorf("%s: never held %v, but admission holds it: %v, and budgets may suspend it: %v", name, never, admitted,
				evaluated(t, suspends, job))
		}
	}
}

// evaluated returns the value of an expression without variables for a Job.
func evaluated(t *testing.T, expression string, job *batchv1.Job) bool {
	t.Helper()
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.Variable("object", cel.DynType),
		cel.Variable("oldObject", cel.DynType), cel.Variable("request", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	var o any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := program.Eval(map[string]any{
		"object": o, "oldObject": o, "request": map[string]any{"namespace": job.Namespace},
	})
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return out.Value() == true
}
