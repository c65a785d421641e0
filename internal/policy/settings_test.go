package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched"
)

func policyIn(namespace string, change func(*v1alpha1.EnergyPolicySpec)) *v1alpha1.EnergyPolicy {
	p := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.PolicyName}}
	change(&p.Spec)
	return p
}

func delay(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func rulesOf(t *testing.T, c Sources) *Rules {
	t.Helper()
	if c.Defaults.Schedulers == nil {
		c.Defaults.Schedulers = aliasSchedulers()
	}
	r := c.Rules()
	return &r
}

func podIn(namespace string, annotations map[string]string, change ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "p", Annotations: annotations, CreationTimestamp: metav1.NewTime(noon),
	}}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func (v *Rules) ofPod(t *testing.T, pod *v1.Pod) (sched.Job, Settings) {
	t.Helper()
	work, err := ReadPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	return v.Settle(&work)
}

// TestPrecedence removes one level after the other and verifies that the next one takes effect.
func TestPrecedence(t *testing.T) {
	cluster := policyIn(v1alpha1.SystemNamespace, func(s *v1alpha1.EnergyPolicySpec) {
		s.Mode = v1alpha1.ModeEnforce
		s.AllowedDelay = delay(2 * time.Hour)
		s.WorkloadTypes = map[string]v1alpha1.WorkloadSettings{typeBatch: {AllowedDelay: delay(3 * time.Hour)}}
	})
	team := policyIn("team", func(s *v1alpha1.EnergyPolicySpec) {
		s.AllowedDelay = delay(4 * time.Hour)
		s.WorkloadTypes = map[string]v1alpha1.WorkloadSettings{typeBatch: {AllowedDelay: delay(5 * time.Hour)}}
	})
	batch := func(p *v1.Pod) { p.Labels = map[string]string{v1alpha1.LabelWorkloadType: typeBatch} }
	annotated := map[string]string{v1alpha1.AnnotationAllowedDelay: "6h"}
	for _, tc := range []struct {
		name     string
		policies []*v1alpha1.EnergyPolicy
		pod      *v1.Pod
		want     time.Duration
		from     string
	}{
		{
			"annotation",
			[]*v1alpha1.EnergyPolicy{cluster, team},
			podIn("team", annotated, batch), 6 * time.Hour,
			"annotation",
		},
		{
			"workload type",
			[]*v1alpha1.EnergyPolicy{cluster, team},
			podIn("team", nil, batch), 5 * time.Hour,
			"namespace, workload type batch",
		},
		{"namespace", []*v1alpha1.EnergyPolicy{cluster, team}, podIn("team", nil), 4 * time.Hour, "namespace"},
		{
			"workload type of the cluster",
			[]*v1alpha1.EnergyPolicy{cluster},
			podIn("team", nil, batch), 3 * time.Hour,
			"cluster, workload type batch",
		},
		{"cluster", []*v1alpha1.EnergyPolicy{cluster}, podIn("team", nil), 2 * time.Hour, "cluster"},
		{"built in", nil, podIn("team", nil), time.Hour, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := rulesOf(t, Sources{
				Policies: tc.policies, Defaults: Defaults{Terms: Terms{AllowedDelay: time.Hour}},
				Namespaces: []NamespaceMarks{{Name: "team", Labels: map[string]string{v1alpha1.LabelMode: "enforce"}}},
			})
			job, settings := v.ofPod(t, tc.pod)
			if settings.AllowedDelay != tc.want || job.AllowedDelay != tc.want {
				t.Errorf("the delays are %v and %v, want %v", settings.AllowedDelay, job.AllowedDelay, tc.want)
			}
			work, _ := ReadPod(tc.pod)
			from := ""
			for _, o := range v.Origins(&work) {
				if o.Setting == "allowedDelay" {
					from = o.From
				}
			}
			if from != tc.from {
				t.Errorf("the origin is %q, want %q", from, tc.from)
			}
		})
	}
}

func TestMaximumDelays(t *testing.T) {
	limit := func(namespace string, most time.Duration) *v1alpha1.EnergyPolicy {
		return policyIn(namespace, func(s *v1alpha1.EnergyPolicySpec) { s.MaxDelay = delay(most) })
	}
	week := map[string]string{v1alpha1.AnnotationAllowedDelay: "168h"}
	for _, tc := range []struct {
		name     string
		policies []*v1alpha1.EnergyPolicy
		want     time.Duration
	}{
		{"built in", nil, 24 * time.Hour},
		{"cluster", []*v1alpha1.EnergyPolicy{limit(v1alpha1.SystemNamespace, 12*time.Hour)}, 12 * time.Hour},
		{
			"namespace",
			[]*v1alpha1.EnergyPolicy{limit(v1alpha1.SystemNamespace, 12*time.Hour), limit("team", time.Hour)},
			time.Hour,
		},
		{
			"more than the built-in maximum",
			[]*v1alpha1.EnergyPolicy{limit(v1alpha1.SystemNamespace, 72*time.Hour)},
			72 * time.Hour,
		},
		{
			"a namespace cannot allow more than the cluster",
			[]*v1alpha1.EnergyPolicy{limit(v1alpha1.SystemNamespace, 12*time.Hour), limit("team", 100*time.Hour)},
			12 * time.Hour,
		},
		{"zero", []*v1alpha1.EnergyPolicy{limit("team", 0)}, 0},
	} {
		v := rulesOf(t, Sources{Policies: tc.policies, Defaults: Defaults{MaxDelay: 24 * time.Hour}})
		if job, _ := v.ofPod(t, podIn("team", week)); job.AllowedDelay != tc.want {
			t.Errorf("%s: delay %v, want %v", tc.name, job.AllowedDelay, tc.want)
		}
	}
}

func TestModes(t *testing.T) {
	cluster := policyIn(v1alpha1.SystemNamespace, func(s *v1alpha1.EnergyPolicySpec) { s.Mode = v1alpha1.ModeAdvise })
	team := policyIn("team", func(s *v1alpha1.EnergyPolicySpec) { s.Mode = v1alpha1.ModeOff })
	labelled := func(mode string) []NamespaceMarks {
		return []NamespaceMarks{{Name: "team", Labels: map[string]string{v1alpha1.LabelMode: mode}}}
	}
	for _, tc := range []struct {
		name       string
		policies   []*v1alpha1.EnergyPolicy
		namespaces []NamespaceMarks
		mode       v1alpha1.Mode
		optedIn    bool
	}{
		{"no level sets it", nil, nil, v1alpha1.ModeShadow, false},
		{"cluster", []*v1alpha1.EnergyPolicy{cluster}, nil, v1alpha1.ModeAdvise, false},
		{"namespace", []*v1alpha1.EnergyPolicy{cluster, team}, nil, v1alpha1.ModeOff, true},
		{"label", []*v1alpha1.EnergyPolicy{cluster, team}, labelled("enforce"), v1alpha1.ModeEnforce, true},
		{"label alone", nil, labelled("enforce"), v1alpha1.ModeEnforce, true},
		{"an invalid mode is ignored", nil, labelled("full"), v1alpha1.ModeShadow, false},
	} {
		v := rulesOf(t, Sources{
			Policies: tc.policies, Namespaces: tc.namespaces, Defaults: Defaults{Mode: v1alpha1.ModeShadow},
		})
		if mode, optedIn := v.Mode("team"); mode != tc.mode || optedIn != tc.optedIn {
			t.Errorf("%s: %s, opted in: %v; want %s, %v", tc.name, mode, optedIn, tc.mode, tc.optedIn)
		}
	}
}

// TestOurs verifies that pods are only handled on request, regardless of the policy of the cluster.
func TestOurs(t *testing.T) {
	everywhere := policyIn(v1alpha1.SystemNamespace, func(s *v1alpha1.EnergyPolicySpec) {
		s.AllowedDelay = delay(time.Hour)
	})
	v := rulesOf(t, Sources{
		Policies:   []*v1alpha1.EnergyPolicy{everywhere, policyIn("team", func(*v1alpha1.EnergyPolicySpec) {})},
		Namespaces: []NamespaceMarks{{Name: "labelled", Labels: map[string]string{v1alpha1.LabelMode: "shadow"}}},
	})
	named := func(scheduler string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.SchedulerName = scheduler } }
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		want bool
	}{
		{"no request", podIn("other", nil), false},
		{"annotation", podIn("other", map[string]string{v1alpha1.AnnotationAllowedDelay: "1h"}), true},
		{"another's annotation", podIn("other", map[string]string{gardener + "price-threshold": "0.1"}), true},
		{"policy in the namespace", podIn("team", nil), true},
		{"label on the namespace", podIn("labelled", nil), true},
		{"our scheduler alone", podIn("other", nil, named(SchedulerName)), false},
		{"Compute Gardener's", podIn("other", nil, named(GardenerSchedulerName)), true},
		{"the hybrid one without a class", podIn("other", nil, named(HybridSchedulerName)), false},
		{"the hybrid one", podIn("other", nil, named(HybridSchedulerName),
			func(p *v1.Pod) { p.Labels = map[string]string{"workload-profile": "training"} }), true},
		{"skipped", podIn("team", map[string]string{gardener + "skip": "true"}), false},
	} {
		if _, s := v.ofPod(t, tc.pod); s.Ours != tc.want {
			t.Errorf("%s: ours: %v, want %v", tc.name, s.Ours, tc.want)
		}
		if concerns := v.Concerns(tc.pod); tc.want && !concerns {
			t.Errorf("%s: Concerns() = false for a handled pod", tc.name)
		}
	}
}

func TestDelays(t *testing.T) {
	cluster := policyIn(v1alpha1.SystemNamespace, func(s *v1alpha1.EnergyPolicySpec) {
		s.WorkloadTypes = map[string]v1alpha1.WorkloadSettings{typeBatch: {AllowedDelay: delay(time.Hour)}}
	})
	v := rulesOf(t, Sources{
		Policies: []*v1alpha1.EnergyPolicy{cluster, policyIn("strict", func(s *v1alpha1.EnergyPolicySpec) {
			s.WorkloadTypes = map[string]v1alpha1.WorkloadSettings{typeBatch: {AllowedDelay: delay(0)}}
		})},
		Namespaces: []NamespaceMarks{{Name: "labelled", Labels: map[string]string{v1alpha1.LabelMode: "enforce"}}},
	})
	for namespace, want := range map[string]bool{"labelled": true, "strict": false, "other": false} {
		if got := v.Delays(namespace); got != want {
			t.Errorf("%s: %v, want %v", namespace, got, want)
		}
	}
}

func TestReadPolicyRefuses(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.EnergyPolicySpec){
		"maxDelay is":     func(s *v1alpha1.EnergyPolicySpec) { s.MaxDelay = delay(-1) },
		"allowedDelay is": func(s *v1alpha1.EnergyPolicySpec) { s.AllowedDelay = delay(10 * longest) },
		`workload type "jobs"`: func(s *v1alpha1.EnergyPolicySpec) {
			s.WorkloadTypes = map[string]v1alpha1.WorkloadSettings{"jobs": {}}
		},
		`mode is "full"`: func(s *v1alpha1.EnergyPolicySpec) { s.Mode = "full" },
		"workloadTypes.batch.exp": func(s *v1alpha1.EnergyPolicySpec) {
			s.WorkloadTypes = map[string]v1alpha1.WorkloadSettings{"batch": {ExpectedDuration: delay(-1)}}
		},
	} {
		p := policyIn("team", change)
		if err := ReadPolicy(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not contain %q", err, want)
		}
		v := rulesOf(t, Sources{Policies: []*v1alpha1.EnergyPolicy{p}})
		if len(v.Policies()) != 0 {
			t.Errorf("%s: the invalid policy is effective", want)
		}
	}
}

func TestLimitsReplaceEachOther(t *testing.T) {
	v := rulesOf(t, Sources{Policies: []*v1alpha1.EnergyPolicy{
		policyIn(v1alpha1.SystemNamespace, func(s *v1alpha1.EnergyPolicySpec) {
			s.Hold = &v1alpha1.HoldSettings{CarbonPercentile: new(25.0), PriceThreshold: new(0.2)}
		}),
		policyIn("team", func(s *v1alpha1.EnergyPolicySpec) {
			s.Hold = &v1alpha1.HoldSettings{CarbonThreshold: new(150.0)}
		}),
		policyIn("windows", func(s *v1alpha1.EnergyPolicySpec) { s.Hold = &v1alpha1.HoldSettings{Rule: "Window"} }),
	}})
	_, team := v.ofPod(t, podIn("team", nil))
	if diff := cmp.Diff(sched.Limits{Carbon: 150, Price: 0.2, HasPrice: true}, team.Limits); diff != "" ||
		team.When != "threshold" {
		t.Errorf("%s %s", team.When, diff)
	}
	_, windows := v.ofPod(t, podIn("windows", nil))
	if windows.When != "window" {
		t.Errorf("the rule is %s", windows.When)
	}
	_, own := v.ofPod(t, podIn("windows", map[string]string{v1alpha1.AnnotationCarbonThreshold: "99"}))
	if own.When != "threshold" || own.Limits.Carbon != 99 || own.Limits.Percentile != 0 {
		t.Errorf("a threshold on the pod results in %s %+v", own.When, own.Limits)
	}
}

// TestOriginOfTheRule verifies that an annotation that implies the rule is reported as its origin.
func TestOriginOfTheRule(t *testing.T) {
	v := rulesOf(t, Sources{Policies: []*v1alpha1.EnergyPolicy{
		policyIn("team", func(s *v1alpha1.EnergyPolicySpec) { s.Hold = &v1alpha1.HoldSettings{Rule: "Window"} }),
	}})
	for _, c := range []struct {
		annotations map[string]string
		want        Origin
	}{
		{nil, Origin{"hold.rule", "window", "namespace"}},
		{map[string]string{v1alpha1.AnnotationPriceThreshold: "0.2"}, Origin{"hold.rule", "threshold", "annotation"}},
		{map[string]string{v1alpha1.AnnotationStrategy: "carbon+now"}, Origin{"hold.rule", "now", "annotation"}},
	} {
		work, err := ReadPod(podIn("team", c.annotations))
		if err != nil {
			t.Fatal(err)
		}
		if all := v.Origins(&work); !slices.Contains(all, c.want) {
			t.Errorf("%v: origins %v, want %v among them", c.annotations, all, c.want)
		}
	}
}

// TestThresholdWithoutDelay verifies that a threshold holds a workload for the maximum delay if no level sets a
// delay. A delay of 0 counts as set.
func TestThresholdWithoutDelay(t *testing.T) {
	hold := &v1alpha1.HoldSettings{CarbonPercentile: new(25.0)}
	v := rulesOf(t, Sources{Defaults: Defaults{MaxDelay: 8 * time.Hour}, Policies: []*v1alpha1.EnergyPolicy{
		policyIn("limited", func(s *v1alpha1.EnergyPolicySpec) { s.Hold = hold }),
		policyIn("never", func(s *v1alpha1.EnergyPolicySpec) { s.Hold, s.AllowedDelay = hold, delay(0) }),
	}})
	limit := map[string]string{v1alpha1.AnnotationCarbonThreshold: "99"}
	for _, tc := range []struct {
		pod  *v1.Pod
		want time.Duration
	}{
		{podIn("team", limit), 8 * time.Hour},
		{podIn("team", map[string]string{
			v1alpha1.AnnotationCarbonThreshold: "99", v1alpha1.AnnotationAllowedDelay: "0",
		}), 0},
		{podIn("limited", nil), 8 * time.Hour},
		{podIn("never", nil), 0},
		{podIn("never", limit), 0},
	} {
		if job, _ := v.ofPod(t, tc.pod); job.AllowedDelay != tc.want {
			t.Errorf("%s %v: allowed delay %v, want %v", tc.pod.Namespace, tc.pod.Annotations, job.AllowedDelay, tc.want)
		}
	}
	for namespace, want := range map[string]bool{"limited": true, "never": false, "team": false} {
		if got := v.Delays(namespace); got != want {
			t.Errorf("%s delays: %v", namespace, got)
		}
	}
}

// TestPlacementIsNoHold verifies that annotations for the placement do not hold a workload.
func TestPlacementIsNoHold(t *testing.T) {
	v := rulesOf(t, Sources{Policies: []*v1alpha1.EnergyPolicy{policyIn(v1alpha1.SystemNamespace,
		func(s *v1alpha1.EnergyPolicySpec) {
			s.AllowedDelay = delay(6 * time.Hour)
		})}})
	for _, annotations := range []map[string]string{
		{v1alpha1.AnnotationMaxPower: "200"},
		{v1alpha1.AnnotationMinEfficiency: "0.1"},
		{v1alpha1.AnnotationStrategy: "carbon"},
	} {
		if job, s := v.ofPod(t, podIn("team", annotations)); !s.Ours || job.AllowedDelay != 0 {
			t.Errorf("%v: ours: %v, may wait %v", annotations, s.Ours, job.AllowedDelay)
		}
	}
	if job,
		_ := v.ofPod(t,
		podIn("team",
			map[string]string{v1alpha1.AnnotationStrategy: "carbon+window"})); job.AllowedDelay != 6*time.Hour {
		t.Errorf("the allowed delay with the rule window is %v", job.AllowedDelay)
	}
}

func TestNamespacesThatSayTheSameShareTheirRules(t *testing.T) {
	var s Sources
	for i := range 100 {
		s.Namespaces = append(s.Namespaces, NamespaceMarks{
			Name: fmt.Sprint("team-", i), Labels: map[string]string{v1alpha1.LabelMode: "enforce"},
		})
	}
	v := s.Rules()
	distinct := map[*namespaceRules]bool{}
	for i := range 100 {
		r := v.of(fmt.Sprint("team-", i))
		if distinct[r] = true; !r.optedIn || r.mode != v1alpha1.ModeEnforce {
			t.Fatalf("rules are %+v", r)
		}
	}
	if len(distinct) != 1 {
		t.Errorf("%d rules", len(distinct))
	}
}

// TestHybridSchedulerByVersion verifies that a pod with the name of the hybrid scheduler is placed by the strategy
// of its second version, or on request by that of the first version.
func TestHybridSchedulerByVersion(t *testing.T) {
	v := rulesOf(t, Sources{})
	for annotation, want := range map[string]string{"": "hybrid-idle", "profile": "profile", "hybrid": "hybrid"} {
		annotations := map[string]string{v1alpha1.AnnotationStrategy: annotation}
		if annotation == "" {
			annotations = nil
		}
		pod := podIn("other", annotations, func(p *v1.Pod) {
			p.Spec.SchedulerName, p.Labels = HybridSchedulerName, map[string]string{"workload-profile": "training"}
		})
		if _, s := v.ofPod(t, pod); s.Where != want || !s.Ours {
			t.Errorf("%q: %q, ours: %v", annotation, s.Where, s.Ours)
		}
	}
}

func BenchmarkSettle(b *testing.B) {
	v := (&Sources{Policies: []*v1alpha1.EnergyPolicy{policyIn("team", func(s *v1alpha1.EnergyPolicySpec) {
		s.Mode = v1alpha1.ModeEnforce
		s.AllowedDelay = delay(time.Hour)
	})}}).Rules()
	for name, pod := range map[string]*v1.Pod{
		"not ours": podIn("other", map[string]string{"a": "b"}), "ours": podIn("team", nil),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !v.Concerns(pod) {
					continue
				}
				work, _ := ReadPod(pod)
				v.Settle(&work)
			}
		})
	}
}
