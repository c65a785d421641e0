package policy

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// TestFindings verifies that settings without an effect on workloads are reported together with a suggestion.
func TestFindings(t *testing.T) {
	soon, past := time.Now().Add(30*time.Minute).Format(time.RFC3339), "2020-01-01T00:00:00Z"
	for _, tc := range []struct{ key, value, want string }{
		{"kubenergy.io/alowed-delay", "6h", "annotation kubenergy.io/alowed-delay has no effect: unknown key (did you mean kubenergy.io/allowed-delay?)"},
		{"kubenergy.io/allowed_delay", "6h", "(did you mean kubenergy.io/allowed-delay?)"},
		{"kubenergy.io/delay", "6h", "unknown key"},
		{"kubenergy.io/carbon-treshold", "200", "(did you mean kubenergy.io/carbon-threshold?)"},
		{"kubenergy.io/runnow", "true", "(did you mean kubenergy.io/run-now?)"},
		{"kubenergy.io/finish-before", "true", "unknown key"},
		{"kubenergy.io/mode", "enforce", "it is a label of namespaces"},
		{"kubenergy.io/site", "DE", "it is a label of nodes"},
		{"kubenergy.io/team", "a", "it is a label of pods and Jobs"},
		{"label kubenergy.io/allowed-delay", "6h", "label kubenergy.io/allowed-delay has no effect: it is an annotation"},
		{"label kubenergy.io/mode", "enforce", "it is a label of namespaces"},
		{"label kubenergy.io/workload-typ", "batch", "(did you mean kubenergy.io/workload-type?)"},
		{"kubenergy.io/allowed-delay", "900h", "kubenergy.io/allowed-delay is 900h0m0s, but at most 24h0m0s is allowed (maxDelay)"},
		{"kubenergy.io/finish-by", past, "kubenergy.io/finish-by 2020-01-01T00:00:00Z has passed, so the job starts immediately"},
		{"kubenergy.io/finish-by", soon, "leaves no time to wait, because the job runs for 1h0m0s"},
		{"compute-gardener-scheduler.kubernetes.io/max-scheduling-delay", "900h", "is 900h0m0s, but at most 24h0m0s is allowed (maxDelay)"},
		{"kubenergy.io/finish-by", time.Now().Add(48 * time.Hour).Format(time.RFC3339), "requires an allowed delay: also set kubenergy.io/allowed-delay"},
		{"kubenergy.io/strategy", "carbon+residual", "does not pause this work: only Jobs with the label kubenergy.io/interruptible"},
		{"kubenergy.io/strategy", "carbon+wait-awhile", "does not pause this work: only Jobs with the label kubenergy.io/interruptible"},
		{"kubenergy.io/strategy", "carbon+carbon-scaler", "does not pause this work: only Jobs with the label kubenergy.io/interruptible"},
		{"kubenergy.io/strategy", "carbon+ecovisor", "does not pause this work: only Jobs with the label kubenergy.io/interruptible"},
		{"kubenergy.io/restart-cost", "5m", "restart-cost, checkpoint-interval and max-pauses have no effect"},
		{"kubenergy.io/strategy", "carbon+plan", ""},
		{"kubenergy.io/strategy", "carbon+guarded", ""},
		{"kubenergy.io/strategy", "carbon+capacity", ""},
		{"kubenergy.io/strategy", "carbon+window/shortest", "the order /shortest in kubenergy.io/strategy has no effect outside of simulations"},
		{"kubenergy.io/strategy", "balanced+now/fifo", ""},
		{"kubenergy.io/strategy", "balanced+now/aging", ""},
		{"kubenergy.io/strategy", "balanced+now/smallest", "the order /smallest in kubenergy.io/strategy has no effect outside of simulations: use /aging"},
		{"kubenergy.io/strategy", "energy+threshold/least-work", "the order /least-work"},
		{"kubenergy.io/performance-weight", "0.7", "kubenergy.io/performance-weight has no effect with the strategy carbon+guarded: use the strategy hybrid"},
		{"kubenergy.io/performance-weight kubenergy.io/strategy", "0.7 energy+window", "no effect with the strategy energy+window"},
		{"kubenergy.io/performance-weight kubenergy.io/strategy", "0.7 hybrid", ""},
		{"kubenergy.io/performance-weight kubenergy.io/strategy", "0.7 hybrid-idle+now", ""},
		{"kubenergy.io/performance-weight kubenergy.io/strategy", "0.7 profile", ""},
		{"kubenergy.io/price-threshold", "0.2", "no grid zone has prices"},
		{"kubenergy.io/carbon-counts", "false", "no grid zone has prices"},
		{"kubenergy.io/carbon-threshold kubenergy.io/strategy", "200 carbon+window", "thresholds have no effect with the strategy carbon+window"},
		{"compute-gardener-scheduler.kubernetes.io/carbon-intensity-treshold", "200", "(did you mean compute-gardener-scheduler.kubernetes.io/carbon-intensity-threshold?)"},
		{"compute-gardener-scheduler.kubernetes.io/priority", "1", "unknown key"},
		{"label compute-gardener-scheduler.kubernetes.io/skip", "true", "it is an annotation"},
		{"label compute-gardener-scheduler.kubernetes.io/workload-type", "batch", ""},
		{"compute-gardener-scheduler.kubernetes.io/pue", "1.5", ""},
		{"kubenergy.io/allowed-delay", "6h", ""},
		{"kubenergy.io/carbon-threshold", "200", ""},
		{"label kubenergy.io/team", "a", ""},
		{"label kubenergy.io/interruptible", "true", "label kubenergy.io/interruptible has no effect on a pod: only Jobs"},
		{"label kubenergy.io/interruptible", "false", ""},
		{"label kubenergy.io/interruptible karmada.io/managed", "true true", ""},
		{"label kubenergy.io/interruptible propagationpolicy.karmada.io/permanent-id", "true 1", ""},
		{"label kubenergy.io/interruptible notkarmada.io/managed", "true true", "has no effect on a pod"},
		{"label kubenergy.io/interruptible", "yes", "label kubenergy.io/interruptible is \"yes\" and has no effect: want true or false"},
		{"kubenergy.io/strategy", "energy", ""},
		{"example.com/allowed-dely", "6h", ""},
		{"example.com/strategy", "energy", ""},
		{"kubenergy/allowed-delay", "6h", "the keys of KubEnergy have the prefix kubenergy.io/"},
		{"allowed-delay", "6h", "the keys of KubEnergy have the prefix kubenergy.io/"},
		{"label kubeenergy.io/team", "a", "label kubeenergy.io/team has no effect: the keys of KubEnergy have the prefix"},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "p", CreationTimestamp: metav1.Now(), Annotations: map[string]string{},
		}}
		keys, label := strings.CutPrefix(tc.key, "label ")
		for i, key := range strings.Fields(keys) {
			if value := strings.Fields(tc.value)[i]; label {
				metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value)
			} else {
				pod.Annotations[key] = value
			}
		}
		work, err := ReadPod(pod)
		if err != nil {
			t.Fatalf("%s: %v", tc.key, err)
		}
		c := Sources{Defaults: BuiltIn()}
		rules := c.Rules()
		all := append(FindKeys(pod.Labels, pod.Annotations), rules.Find(time.Now(), &work)...)
		if tc.want == "" && len(all) > 0 || tc.want != "" && (len(all) != 1 || !strings.Contains(all[0].String(), tc.want)) {
			t.Errorf("%s: %s: found %q, want %q", tc.key, tc.value, all, tc.want)
		}
		if ours := !strings.HasPrefix(tc.key, "example"); Mentions(pod) != ours {
			t.Errorf("%s: Mentions() = %v", tc.key, !ours)
		}
	}
}

// TestWrongValues verifies that invalid values result in errors that describe the valid ones.
func TestWrongValues(t *testing.T) {
	for _, tc := range []struct{ key, value, want string }{
		{v1alpha1.AnnotationAllowedDelay, "2d", "2d"},
		{v1alpha1.AnnotationAllowedDelay, "6", "6"},
		{v1alpha1.AnnotationAllowedDelay, "-4h", "negative"},
		{v1alpha1.AnnotationAllowedDelay, "6 h", "6 h"},
		{v1alpha1.AnnotationExpectedDuration, "0s", "0s"},
		{v1alpha1.AnnotationFinishBy, "tomorrow", "tomorrow"},
		{v1alpha1.AnnotationCarbonThreshold, "100 g", "100 g"},
		{v1alpha1.AnnotationCarbonThreshold, "-1", "-1"},
		{v1alpha1.AnnotationCarbonPercentile, "0.25", "1 to 99"},
		{v1alpha1.AnnotationCarbonPercentile, "100", "1 to 99"},
		{v1alpha1.AnnotationRunNow, "yes", `want "true" or "false"`},
		{v1alpha1.AnnotationSkip, "1", ""},
		{v1alpha1.AnnotationStrategy, "enrgy", "did you mean energy"},
		{v1alpha1.AnnotationStrategy, "now", "now is a start rule: use energy+now"},
		{v1alpha1.AnnotationStrategy, "carbon+windw", "did you mean carbon+window"},
		{v1alpha1.AnnotationGPUWorkloadType, "trainig", "want one of inference, training"},
		{v1alpha1.AnnotationPUE, "0.5", "1"},
		{v1alpha1.AnnotationPerformanceWeight, "2", "1"},
		{v1alpha1.AnnotationMaxPower, "200W", "200W"},
	} {
		_, err := ReadMarks(map[string]string{tc.key: tc.value})
		t.Logf("%v", err)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) ||
			!strings.Contains(err.Error(), tc.key)) {
			t.Errorf("%s: %s: %v, want %q", tc.key, tc.value, err, tc.want)
		}
	}
}

func TestFindNamespace(t *testing.T) {
	for _, tc := range []struct{ label, value, want string }{
		{"kubenergy.io/mode", "enforcing", "label kubenergy.io/mode is \"enforcing\", which is not a mode: want one of off, shadow, advise, enforce"},
		{"kubenergy.io/mode", "Enforce", "(did you mean enforce?)"},
		{"kubenergy.io/mod", "enforce", "(did you mean kubenergy.io/mode?)"},
		{"kubenergy.io/allowed-delay", "6h", "label kubenergy.io/allowed-delay of a namespace has no effect: it is an annotation of pods and Jobs"},
		{"kubenergy.io/held", "true", "label kubenergy.io/held of a namespace has no effect: it is a label of pods and Jobs"},
		{"kubenergy.io/site", "DE", "it is a label of nodes"},
		{"compute-gardener-scheduler.kubernetes.io/skip", "true", "it is an annotation of pods and Jobs"},
		{"compute-gardener-scheduler.kubernetes.io/workload-type", "batch", "it is a label of pods and Jobs"},
		{"annotation kubenergy.io/site", "DE", "it is a label of nodes"},
		{"annotation kubenergy.io/alowed-delay", "6h", "(did you mean kubenergy.io/allowed-delay?)"},
		{"annotation kubenergy.io/mode", "enforce", "it is a label"},
		{"annotation kubenergy.io/allowed-delay", "6h", "use an EnergyPolicy for a namespace"},
		{"annotation compute-gardener-scheduler.kubernetes.io/policy-price-threshold", "0.2", "also label the namespace compute-gardener-scheduler.kubernetes.io/energy-policies=enabled"},
		{"enabled compute-gardener-scheduler.kubernetes.io/policy-price-treshold", "0.2", "policy-price-treshold of a namespace has no effect: unknown key (did you mean compute-gardener-scheduler.kubernetes.io/price-threshold?)"},
		{"enabled compute-gardener-scheduler.kubernetes.io/workload-batch-policy-price", "0.2", "unknown key"},
		{"enabled compute-gardener-scheduler.kubernetes.io/workload-batch-policy-price-threshold", "0.2", ""},
		{"enabled compute-gardener-scheduler.kubernetes.io/policy-pue", "1.2", ""},
		{"compute-gardener-scheduler.kubernetes.io/energy-policys", "enabled", "(did you mean compute-gardener-scheduler.kubernetes.io/energy-policies?)"},
		{"compute-gardener-scheduler.kubernetes.io/energy-policies", "enabled", ""},
		{"kubenergy.io/mode", "enforce", ""},
		{"kubenergy.io/team", "a", ""},
	} {
		n := &v1.Namespace{}
		if key, ok := strings.CutPrefix(tc.label, "enabled "); ok {
			n.Labels = map[string]string{gardenerPolicies: "enabled"}
			n.Annotations = map[string]string{key: tc.value}
		} else if key, ok := strings.CutPrefix(tc.label, "annotation "); ok {
			n.Annotations = map[string]string{key: tc.value}
		} else {
			n.Labels = map[string]string{tc.label: tc.value}
		}
		all := FindNamespace(n)
		if tc.want == "" && len(all) > 0 || tc.want != "" && (len(all) != 1 || !strings.Contains(all[0].String(), tc.want)) {
			t.Errorf("%s: %s: found %q, want %q", tc.label, tc.value, all, tc.want)
		}
	}
}

// TestFindOwner verifies that a workload with annotations for waiting is reported if its owner controls when it
// runs, except for the pods of a Job.
func TestFindOwner(t *testing.T) {
	for _, tc := range []struct {
		kind, annotation string
		found            bool
	}{
		{"ReplicaSet", v1alpha1.AnnotationAllowedDelay, true},
		{"StatefulSet", "compute-gardener-scheduler.kubernetes.io/carbon-intensity-threshold", true},
		{"ReplicaSet", v1alpha1.AnnotationMaxPower, false},
		{"Job", v1alpha1.AnnotationAllowedDelay, false},
		{"", v1alpha1.AnnotationAllowedDelay, false},
	} {
		value := map[bool]string{true: "6h", false: "100"}[tc.annotation == v1alpha1.AnnotationAllowedDelay]
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "p", Annotations: map[string]string{tc.annotation: value},
		}}
		if tc.kind != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: tc.kind, Name: "web", Controller: new(true)}}
		}
		work, err := ReadPod(pod)
		if err != nil {
			t.Fatal(err)
		}
		all := FindOwner(pod, &work)
		if tc.found && (len(all) != 1 || !strings.Contains(all[0].String(), "controlled by "+tc.kind+" web")) ||
			!tc.found && len(all) > 0 {
			t.Errorf("%s with %s: found %q", tc.kind, tc.annotation, all)
		}
	}
}

// TestFindOwnerOfManagedJobs verifies that a Job that another system starts is reported if it has annotations for
// waiting.
func TestFindOwnerOfManagedJobs(t *testing.T) {
	for want, change := range map[string]func(*batchv1.Job){
		"":                              func(*batchv1.Job) {},
		"example.com/other decides":     func(j *batchv1.Job) { j.Spec.ManagedBy = new("example.com/other") },
		"Kueue decides":                 func(j *batchv1.Job) { j.Labels = map[string]string{LabelKueueQueue: "q"} },
		"the object is an Argo CD hook": func(j *batchv1.Job) { j.Annotations["argocd.argoproj.io/hook"] = "Sync" },
	} {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "j", Annotations: map[string]string{v1alpha1.AnnotationAllowedDelay: "6h"},
		}}
		change(job)
		work, err := ReadJob(job)
		if err != nil {
			t.Fatal(err)
		}
		all := FindOwner(job, &work)
		if (len(all) == 1) != (want != "") || want != "" && !strings.Contains(all[0].Mend, want) {
			t.Errorf("found %q, want %q", all, want)
		}
	}
}

// TestFindPolicy verifies that allowed delays in policies are reported if they exceed the maximum.
func TestFindPolicy(t *testing.T) {
	hours := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Hour} }
	for _, tc := range []struct {
		namespace string
		spec      v1alpha1.EnergyPolicySpec
		want      string
	}{
		{v1alpha1.SystemNamespace, v1alpha1.EnergyPolicySpec{
			WorkloadSettings: v1alpha1.WorkloadSettings{AllowedDelay: hours(48)},
		}, "allowedDelay is 48h0m0s, which is reduced to 24h0m0s: increase maxDelay"},
		{"team", v1alpha1.EnergyPolicySpec{
			MaxDelay: hours(6), WorkloadTypes: map[string]v1alpha1.WorkloadSettings{"batch": {AllowedDelay: hours(8)}},
		}, "workloadTypes.batch.allowedDelay is 8h0m0s, which is reduced to 6h0m0s"},
		{"team", v1alpha1.EnergyPolicySpec{WorkloadSettings: v1alpha1.WorkloadSettings{AllowedDelay: hours(24)}}, ""},
	} {
		c := Sources{Defaults: BuiltIn(), Policies: []*v1alpha1.EnergyPolicy{{
			ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace, Name: v1alpha1.PolicyName}, Spec: tc.spec,
		}}}
		rules := c.Rules()
		all := rules.FindPolicy(tc.namespace)
		if tc.want == "" && len(all) > 0 || tc.want != "" && (len(all) != 1 || !strings.Contains(all[0].String(), tc.want)) {
			t.Errorf("%s: found %q, want %q", tc.namespace, all, tc.want)
		}
	}
}

// TestFindsDelayWhereNothingIsHeld verifies that an allowed delay is reported if the maximum is 0.
func TestFindsDelayWhereNothingIsHeld(t *testing.T) {
	c := Sources{Defaults: BuiltIn(), Policies: []*v1alpha1.EnergyPolicy{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: v1alpha1.PolicyName},
		Spec:       v1alpha1.EnergyPolicySpec{MaxDelay: &metav1.Duration{}},
	}}}
	rules := c.Rules()
	work, err := ReadPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "p", Annotations: map[string]string{v1alpha1.AnnotationAllowedDelay: "6h"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if all := rules.Find(time.Now(), &work); len(all) != 1 || !strings.Contains(all[0].Said, "maxDelay is 0") {
		t.Errorf("found %q", all)
	}
}
