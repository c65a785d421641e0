package chart

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/warning"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubenergy/kubenergy/internal/policy"
)

// warner is the admission plugin of an API server with the policy kubenergy-warnings.
type warner struct {
	*validating.Plugin
	objects admission.ObjectInterfaces
}

func newWarner(t *testing.T) *warner {
	t.Helper()
	documents, err := Template(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var p admissionregistrationv1.ValidatingAdmissionPolicy
	var b admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for i := range documents {
		if d := &documents[i]; d.Object.GetName() == "kubenergy-warnings" {
			into := map[string]any{"ValidatingAdmissionPolicy": &p, "ValidatingAdmissionPolicyBinding": &b}[d.Object.
				GetKind()]
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, into); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := b.Spec.ValidationActions; !slices.Equal(got, []admissionregistrationv1.ValidationAction{"Warn"}) ||
		*p.Spec.FailurePolicy != admissionregistrationv1.Ignore {
		t.Fatalf("actions %v, failure policy %v: requests may be rejected", got, *p.Spec.FailurePolicy)
	}
	// the defaults of the API server
	p.Spec.MatchConstraints.NamespaceSelector, p.Spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{},
		&metav1.LabelSelector{}
	p.Spec.MatchConstraints.MatchPolicy = new(admissionregistrationv1.Equivalent)
	for i := range p.Spec.MatchConstraints.ResourceRules {
		p.Spec.MatchConstraints.ResourceRules[i].Scope = new(admissionregistrationv1.AllScopes)
	}
	// errors must not be ignored in the test
	p.Spec.FailurePolicy = new(admissionregistrationv1.Fail)
	w := &warner{}
	if w.Plugin, err = validating.NewPlugin(nil); err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(&p, &b, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	scheme, factory := runtime.NewScheme(), informers.NewSharedInformerFactory(client, 0)
	w.objects = admission.NewObjectInterfacesFromScheme(scheme)
	w.SetExternalKubeClientSet(client)
	w.SetExternalKubeInformerFactory(factory)
	w.SetRESTMapper(meta.NewDefaultRESTMapper(nil))
	w.SetDynamicClient(dynamicfake.NewSimpleDynamicClient(scheme))
	w.SetAuthorizer(authorizerfactory.NewAlwaysAllowAuthorizer())
	w.SetDrainedNotification(t.Context().Done())
	if err := w.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	if !w.WaitForReady() {
		t.Fatal("the policy was not loaded")
	}
	return w
}

// recorder records warnings.
type recorder struct{ all []string }

// AddWarning implements [warning.Recorder].
func (r *recorder) AddWarning(_, text string) {
	_, text, _ = strings.Cut(text, "with binding 'kubenergy-warnings': ")
	r.all = append(r.all, text)
}

// creates returns the sorted warnings about a new object, one per line.
func (w *warner) creates(t *testing.T, who, object string) string {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(object), o); err != nil {
		t.Fatal(err, object)
	}
	kind := o.GroupVersionKind()
	resource := schema.GroupVersionResource{
		Group: kind.Group, Version: kind.Version, Resource: strings.ToLower(kind.Kind) + "s",
	}
	var r recorder
	a := admission.NewAttributesRecord(o, nil, kind, "n", "o", resource, "", admission.Create, nil, false,
		&user.DefaultInfo{Name: who})
	if err := w.Validate(warning.WithWarningRecorder(t.Context(), &r), a, w.objects); err != nil {
		t.Errorf("%s: %v", object, err)
	}
	slices.Sort(r.all)
	return strings.Join(r.all, "\n")
}

func jobWith(annotations, labels, template string) string {
	return fmt.Sprintf(`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "o", "namespace": "n",
		"annotations": {%s}, "labels": {%s}}, "spec": {"template": {"metadata": {"annotations": {%s}}, "spec": {}}}}`,
		annotations, labels, template)
}

// TestWarnings evaluates the policy kubenergy-warnings as the API server does.
func TestWarnings(t *testing.T) {
	w := newWarner(t)
	cron := func(own, ownLabels, template, pod string) string {
		return fmt.Sprintf(`{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "o", "namespace": "n",
			"annotations": {%s}, "labels": {%s}}, "spec": {"jobTemplate": {"metadata": {"annotations": {%s}},
			"spec": {"template": {"metadata": {"annotations": {%s}}, "spec": {}}}}}}`, own, ownLabels, template, pod)
	}
	const typo, delay = `"kubenergy.io/allowed-dealy": "6h"`, `"kubenergy.io/allowed-delay": "6h"`
	const bad = `"kubenergy.io/allowed-delay": "6 hours"`
	const hint = " on workloads; see kubenergy explain"
	const unknown = "KubEnergy does not support annotation kubenergy.io/allowed-dealy" + hint
	const invalid = `invalid value, so KubEnergy ignores all annotations of the workload: ` +
		`kubenergy.io/allowed-delay is "6 hours", want a duration such as 90m or 6h`
	pod := strings.Replace(strings.Replace(jobWith(typo, "", ""), "batch/v1", "v1", 1), "Job", "Pod", 1)
	for name, c := range map[string]struct{ object, want string }{
		"correct": {jobWith(delay, `"kubenergy.io/team": "a", "app": "b"`, delay), ""},
		"nothing": {
			`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "o"}, "spec": {"template": {"spec": {}}}}`,
			"",
		},
		"unknown on a Job":           {jobWith(typo, "", ""), unknown},
		"unknown on its pods":        {jobWith("", "", typo), unknown},
		"unknown on a pod":           {pod, unknown},
		"unknown in a jobTemplate":   {cron("", "", typo, ""), unknown},
		"unknown on a CronJob's pod": {cron("", "", "", typo), unknown},
		"a label as an annotation": {
			jobWith(`"kubenergy.io/team": "a"`, "", ""),
			"KubEnergy does not support annotation kubenergy.io/team (it is a label)" + hint,
		},
		"an annotation as a label": {
			jobWith("", `"kubenergy.io/allowed-delay": "6h"`, ""),
			"KubEnergy does not support label kubenergy.io/allowed-delay (it is an annotation)" + hint,
		},
		"an invalid duration":             {jobWith(bad, "", ""), invalid},
		"an invalid duration, CronJob":    {cron("", "", bad, ""), invalid},
		"an invalid duration on the pods": {cron("", "", "", bad), invalid},
		"a CronJob's own annotation": {
			cron(delay, "", "", ""),
			"KubEnergy ignores annotation kubenergy.io/allowed-delay of a CronJob; set it in spec.jobTemplate.metadata",
		},
		"a CronJob's own label": {
			cron("", `"kubenergy.io/team": "a"`, "", ""),
			"KubEnergy ignores label kubenergy.io/team of a CronJob; set it in spec.jobTemplate.metadata",
		},
		"on the CronJob and its template": {cron(delay, "", delay, ""), ""},
		"a Deployment's own annotation": {
			`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "o", "annotations":
			{"kubenergy.io/strategy": "energy"}}, "spec": {"template": {"metadata": {}, "spec": {}}}}`,
			"KubEnergy ignores annotation kubenergy.io/strategy of a Deployment; set it in spec.template.metadata",
		},
		"an object with an owner": {
			strings.Replace(jobWith(typo, "", ""), `"name"`, `"ownerReferences": [{"kind": "CronJob"}], "name"`, 1), "",
		},
		"several": {
			jobWith(bad+`, "kubeenergy.io/x": ""`, "", typo),
			unknown + "\n" + invalid +
				"\nno effect on KubEnergy: kubeenergy.io/x; the keys of KubEnergy start with kubenergy.io/",
		},
	} {
		if got := w.creates(t, "alice", c.object); got != c.want {
			t.Errorf("%s: got warnings\n%s\nwant\n%s", name, got, c.want)
		}
	}
	for _, who := range []string{"system:kube-controller-manager", "system:serviceaccount:kube-system:job-controller"} {
		if got := w.creates(t, who, jobWith(typo, "", "")); got != "" {
			t.Errorf("%s got warnings %s", who, got)
		}
	}
	for key, want := range map[string]bool{
		"kubenergy/allowed-delay": true, "kubenergy.com/allowed-delay": true, "kubeenergy.io/allowed-delay": true,
		"kube-energy.io/run-now": true, "kubernergy.io/skip": true, "kubenegry.io/skip": true, "kubenery.io/skip": true,
		"www.kubenergy.io/skip": true, "allowed-delay": true, "energy.example.com/finish-by": true,
		"kube-green.dev/x": false, "kubernetes.io/ingress": false, "nginx.kubernetes.io/proxy": false, "skip": false,
		"kubelet.io/energy": false, "scheduler.policy/performance-weight": false, "app.kubernetes.io/name": false,
	} {
		if got := w.creates(t, "alice", jobWith(`"`+key+`": "1h"`, "", "")) != ""; got != want {
			t.Errorf("%s: has a warning is %v, want %v", key, got, want)
		}
		if got := len(policy.FindKeys(nil, map[string]string{key: "1h"})) > 0; got != want {
			t.Errorf("%s: package policy has a finding is %v, want %v", key, got, want)
		}
	}
	// The work is bounded: more and longer keys than the API server accepts are no error.
	many := strings.Builder{}
	for i := range 6000 {
		fmt.Fprintf(&many, `"kubenergy.io/unknown-with-a-long-name-%d": "x", `, i)
	}
	if got := w.creates(t, "alice", jobWith(many.String()+typo, "", "")); got == "" {
		t.Error("no warning about many annotations")
	}
}

// TestWarningsAboutValues verifies that the policy warns about exactly the values that package policy rejects.
func TestWarningsAboutValues(t *testing.T) {
	w := newWarner(t)
	values := map[string][]string{
		"kubenergy.io/allowed-delay": {
			"6h", "90m", "1h30m", "0", "+5s", "1.5h", ".5h", "100ms", "3us", "3µs", "-1h", "6", "6 h", "6 hours", "2d", "",
			"h", "1h30",
		},
		"kubenergy.io/expected-duration":                                {"45m", "45", "soon"},
		"compute-gardener-scheduler.kubernetes.io/max-scheduling-delay": {"12h", "12"},
		"kubenergy.io/finish-by": {
			"2026-06-01T18:00:00Z", "2026-06-01T18:00:00+02:00", "2026-06-01T18:00:00.5Z", "2026-06-01", "18:00",
			"2026-06-01 18:00:00Z", "2026-06-01T18:00Z",
		},
		"kubenergy.io/run-now": {"true", "1", "T", "yes", "", "tRUE"}, "kubenergy.io/skip": {"False", "no"},
		"kubenergy.io/carbon-counts":     {"false", "off"},
		"kubenergy.io/carbon-threshold":  {"200", "2e2", " 200 ", "200g", ""},
		"kubenergy.io/price-threshold":   {"-0.1", ".1", "0,1", "10 ct"},
		"kubenergy.io/carbon-percentile": {"25", "99", "1", "12.5", "0", "100", "25%"},
		"kubenergy.io/max-power-watts":   {"300", "300W"}, "kubenergy.io/min-efficiency": {"1.5", "high"},
		"kubenergy.io/pue": {"1.2", "1,2"}, "kubenergy.io/performance-weight": {"0.5", "half"},
		"kubenergy.io/energy-budget-kwh": {"5", "5kWh"},
		"kubenergy.io/strategy": {
			"energy", "carbon+window", "carbon+threshold", "luck", "carbon+luck", "carbon-window", "",
		},
	}
	for key, all := range values {
		for _, value := range all {
			text, _ := json.Marshal(value)
			warns := w.creates(t, "alice", jobWith(`"`+key+`": `+string(text), "", "")) != ""
			if _, err := policy.ReadMarks(map[string]string{key: value}); warns != (err != nil) {
				t.Errorf("%s=%q: has a warning is %v, but package policy returns %v", key, value, warns, err)
			}
		}
	}
}
