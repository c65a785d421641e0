package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// The following tests cover the documented behavior of Compute Gardener. They use literal annotations, because
// manifests written for that system must continue to work.
const cg = "compute-gardener-scheduler.kubernetes.io/"

// gridOf returns a grid with two prices and two intensities. The intensity is low after the first hour, and the
// price after the third.
func gridOf(t *testing.T) []*sched.Site {
	t.Helper()
	hourly := func(values ...float64) grid.Signal {
		for len(values) < 48 {
			values = append(values, values[len(values)-1])
		}
		series, err := grid.NewSeries(noon, time.Hour, values)
		if err != nil {
			t.Fatal(err)
		}
		return grid.Signal{Series: series}
	}
	return []*sched.Site{{
		Name: "here", Zone: "DE", Carbon: hourly(400, 400, 120), Price: hourly(0.4, 0.4, 0.4, 0.4, 0.1),
	}}
}

func gardenerRules(t *testing.T, c Sources) *Rules {
	t.Helper()
	if c.Sites == nil {
		c.Sites = gridOf(t)
	}
	if c.Defaults.Mode == "" {
		c.Defaults.Mode = v1alpha1.ModeEnforce
	}
	return rulesOf(t, c)
}

func forGardener(p *v1.Pod) { p.Spec.SchedulerName = "compute-gardener-scheduler" }

// heldFor returns how long a pod is held, counted from noon.
func heldFor(t *testing.T, v *Rules, pod *v1.Pod) time.Duration {
	t.Helper()
	job, s := v.ofPod(t, pod)
	if !s.Enforced() {
		return 0
	}
	d := v.Decide(noon, job, s)
	return d.Window.Start.Sub(noon)
}

func (s *Settings) admits(job *sched.Job, n *sched.Node) bool {
	_, ok := job.Admits(n, s.MaxPower, s.MinEfficiency)
	return ok
}

func wantHeld(t *testing.T, v *Rules, pod *v1.Pod, want time.Duration) {
	t.Helper()
	if got := heldFor(t, v, pod); got != want {
		t.Errorf("held for %v, want %v", got, want)
	}
}

func TestGardenerThreshold(t *testing.T) {
	v := gardenerRules(t, Sources{})
	t.Run("defaults to 200 g/kWh and at most a day", func(t *testing.T) {
		wantHeld(t, v, podIn("team", nil, forGardener), 2*time.Hour)
	})
	t.Run("its own", func(t *testing.T) {
		wantHeld(t, v, podIn("team", map[string]string{cg + "carbon-intensity-threshold": "450.0"}, forGardener), 0)
		wantHeld(t, v, podIn("team", map[string]string{cg + "carbon-intensity-threshold": "150"}), 2*time.Hour)
	})
	t.Run("an equal intensity is not above the threshold", func(t *testing.T) {
		wantHeld(t, v, podIn("team", map[string]string{cg + "carbon-intensity-threshold": "400"}, forGardener), 0)
	})
	t.Run("waits for the cheapest window if never below", func(t *testing.T) {
		wantHeld(t, v, podIn("team", map[string]string{cg + "carbon-intensity-threshold": "100"}, forGardener),
			2*time.Hour)
	})
}

func TestGardenerSkip(t *testing.T) {
	v := gardenerRules(t, Sources{})
	pod := podIn("team", map[string]string{cg + "skip": "true", cg + "carbon-intensity-threshold": "150"}, forGardener)
	wantHeld(t, v, pod, 0)
	if _, s := v.ofPod(t, pod); s.Ours {
		t.Error("a skipped pod is handled")
	}
}

func TestGardenerCarbonEnabled(t *testing.T) {
	v := gardenerRules(t, Sources{})
	wantHeld(t, v, podIn("team", map[string]string{cg + "carbon-enabled": "false"}, forGardener), 0)
	wantHeld(t, v, podIn("team", map[string]string{cg + "carbon-enabled": "true"}, forGardener), 2*time.Hour)
}

func TestGardenerPriceThreshold(t *testing.T) {
	v := gardenerRules(t, Sources{})
	t.Run("with carbon", func(t *testing.T) {
		wantHeld(t, v, podIn("team", map[string]string{cg + "price-threshold": "0.15"}, forGardener), 4*time.Hour)
	})
	t.Run("with carbon if no zone has prices", func(t *testing.T) {
		noPrice := gridOf(t)
		noPrice[0].Price = grid.Signal{}
		v := gardenerRules(t, Sources{Sites: noPrice})
		wantHeld(t, v, podIn("team", map[string]string{
			cg + "price-threshold": "0.15", cg + "carbon-intensity-threshold": "150",
		}), 2*time.Hour)
		wantHeld(t, v, podIn("team", map[string]string{cg + "price-threshold": "0.15", cg + "carbon-enabled": "false"}),
			0)
	})
	t.Run("price only", func(t *testing.T) {
		noCarbon := gridOf(t)
		noCarbon[0].Carbon = grid.Signal{}
		v := gardenerRules(t, Sources{Sites: noCarbon})
		wantHeld(t, v, podIn("team", map[string]string{cg + "price-threshold": "0.15", cg + "carbon-enabled": "false"},
			forGardener), 4*time.Hour)
	})
}

func TestGardenerMaxSchedulingDelay(t *testing.T) {
	v := gardenerRules(t, Sources{})
	wantHeld(t, v, podIn("team", map[string]string{cg + "max-scheduling-delay": "90m"}, forGardener), 90*time.Minute)
	wantHeld(t, v, podIn("team", map[string]string{
		cg + "max-scheduling-delay": "90m", cg + "carbon-intensity-threshold": "10",
	}), 90*time.Minute)
}

func TestGardenerEstimatedRuntime(t *testing.T) {
	job, _ := gardenerRules(t, Sources{}).ofPod(t,
		podIn("team", map[string]string{cg + "estimated-runtime-hours": "2.5"}))
	if job.Duration != 150*time.Minute {
		t.Errorf("the expected duration is %v", job.Duration)
	}
}

func TestGardenerPUE(t *testing.T) {
	v := gardenerRules(t, Sources{})
	energyOf := func(annotations map[string]string) energy.Joules {
		job, _ := v.ofPod(t, podIn("team", annotations))
		node := &sched.Node{
			Site: gridOf(t)[0], Capacity: sched.Resources{MilliCPU: 4000}, Free: sched.Resources{MilliCPU: 4000},
			Profile: &energy.Profile{Idle: 50, Max: 100},
		}
		s := sched.Snapshot{Now: noon}
		return s.Estimate(&job, node, sched.Window{Start: noon, End: noon.Add(time.Hour)}).Energy
	}
	if ratio := energyOf(map[string]string{cg + "pue": "1.5"}) / energyOf(nil); ratio < 1.499 || ratio > 1.501 {
		t.Errorf("the energy is multiplied by %v", ratio)
	}
}

func TestGardenerMaxPowerAndMinEfficiency(t *testing.T) {
	v := gardenerRules(t, Sources{})
	frugal := &sched.Node{
		Name: "a", Capacity: sched.Resources{MilliCPU: 32000}, Profile: &energy.Profile{Idle: 40, Max: 150},
	}
	hungry := &sched.Node{
		Name: "b", Capacity: sched.Resources{MilliCPU: 8000}, Profile: &energy.Profile{Idle: 200, Max: 500},
	}
	unknown := &sched.Node{Name: "c", Capacity: sched.Resources{MilliCPU: 8000}}
	for key, values := range map[string]string{"max-power-watts": "300", "min-efficiency": "0.1"} {
		pod := podIn("team", map[string]string{cg + key: values})
		job, s := v.ofPod(t, pod)
		if !s.admits(&job, frugal) || s.admits(&job, hungry) || !s.admits(&job, unknown) {
			t.Errorf("%s: frugal %v, hungry %v, unknown %v", key, s.admits(&job, frugal), s.admits(&job, hungry),
				s.admits(&job, unknown))
		}
	}
}

func TestGardenerGPUWorkloadType(t *testing.T) {
	v := gardenerRules(t, Sources{})
	node := &sched.Node{
		Site: gridOf(t)[0], Capacity: sched.Resources{MilliCPU: 8000, GPU: 2},
		Free: sched.Resources{MilliCPU: 8000, GPU: 2},
		Profile: &energy.Profile{
			Idle: 100, Max: 100, GPUIdle: 50, GPUMax: 350,
			GPUClasses: map[string]float64{"inference": 0.5, "training": 1},
		},
		Jobs: 1,
	}
	joules := func(class string) energy.Joules {
		job, _ := v.ofPod(t, podIn("team", map[string]string{cg + "gpu-workload-type": class}))
		job.Request = sched.Resources{GPU: 1}
		s := sched.Snapshot{Now: noon}
		return s.Estimate(&job, node, sched.Window{Start: noon, End: noon.Add(time.Second)}).Energy
	}
	for class, want := range map[string]energy.Joules{"inference": 150, "training": 300, "generic": 300} {
		if got := joules(class); got < want-0.01 || got > want+0.01 {
			t.Errorf("%s: %v J per second, want %v", class, float64(got), float64(want))
		}
	}
}

// TestGardenerNamespacePolicy covers behavior that is documented by that system, but not implemented.
func TestGardenerNamespacePolicy(t *testing.T) {
	v := gardenerRules(t, Sources{Namespaces: []NamespaceMarks{{
		Name:   "team",
		Labels: map[string]string{cg + "energy-policies": "enabled"},
		Annotations: map[string]string{
			cg + "policy-carbon-intensity-threshold":                  "300",
			cg + "workload-batch-policy-carbon-intensity-threshold":   "100",
			cg + "workload-service-policy-carbon-intensity-threshold": "500",
			cg + "policy-max-power-watts":                             "250",
			cg + "policy-min-efficiency":                              "nonsense", // only disables itself
		},
	}, {
		Name:        "not-enabled",
		Annotations: map[string]string{cg + "policy-carbon-intensity-threshold": "1"},
	}}})
	typed := func(t string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Labels = map[string]string{cg + "workload-type": t} }
	}
	owned := func(kind string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "o", Controller: new(true)}}
		}
	}
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		want grid.Intensity
	}{
		{"namespace", podIn("team", nil, forGardener), 300},
		{"batch by label", podIn("team", nil, forGardener, typed("batch")), 100},
		{"batch by owner", podIn("team", nil, forGardener, owned("Job")), 100},
		{"service by owner", podIn("team", nil, forGardener, owned("ReplicaSet")), 500},
		{"pod first", podIn("team", map[string]string{cg + "carbon-intensity-threshold": "42"}, forGardener,
			typed("batch")), 42},
		{"elsewhere", podIn("not-enabled", nil, forGardener), 200},
	} {
		_, s := v.ofPod(t, tc.pod)
		if s.Limits.Carbon != tc.want {
			t.Errorf("%s: threshold %v, want %v", tc.name, float64(s.Limits.Carbon), float64(tc.want))
		}
		if inside := tc.pod.Namespace == "team"; (s.MaxPower == 250) != inside {
			t.Errorf("%s: max power %v", tc.name, float64(s.MaxPower))
		}
	}
}

func TestGardenerEnvironment(t *testing.T) {
	schedules := filepath.Join(t.TempDir(), "schedules.yaml")
	text := "schedules:\n- {name: peak, dayOfWeek: \"1-5\", startTime: \"16:00\", endTime: \"21:00\", timezone: UTC, " +
		"peakRate: 0.3, offPeakRate: 0.15}\n"
	if err := os.WriteFile(schedules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	incomplete := filepath.Join(t.TempDir(), "incomplete.yaml")
	if err := os.WriteFile(incomplete, []byte(text+"- {name: more, peakRate: 0.3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		environ []string
		want    time.Duration // expected hold of a pod with its scheduler name
		warning string
	}{
		{name: "nothing", want: 2 * time.Hour},
		{name: "threshold", environ: []string{"CARBON_INTENSITY_THRESHOLD=500"}},
		{name: "delay", environ: []string{"MAX_SCHEDULING_DELAY=30m"}}, // there is no better time within the delay
		{name: "no carbon", environ: []string{"CARBON_ENABLED=false"}},
		{name: "prices only", environ: []string{
			"CARBON_ENABLED=false", "PRICING_ENABLED=true", "PRICING_SCHEDULES_PATH=" + schedules,
		}, want: 4 * time.Hour},
		{
			name: "prices without schedules", environ: []string{"PRICING_ENABLED=true"}, want: 2 * time.Hour,
			warning: "PRICING_SCHEDULES_PATH",
		},
		{
			name: "schedules without an off-peak rate", environ: []string{"PRICING_SCHEDULES_PATH=" + incomplete},
			want: 2 * time.Hour, warning: "schedules[1]: offPeakRate is missing",
		},
		{
			name: "an invalid value", environ: []string{"CARBON_INTENSITY_THRESHOLD=NaN"}, want: 2 * time.Hour,
			warning: `CARBON_INTENSITY_THRESHOLD is "NaN"`,
		},
		{
			name: "without effect", environ: []string{"ENABLE_POD_PRIORITIES=true"}, want: 2 * time.Hour,
			warning: "has no effect",
		},
		{name: "others' variables", environ: []string{"PATH=/bin", "NODE_NAME=n1"}, want: 2 * time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, found := AliasEnvironment(SchedulerProgram, tc.environ, os.ReadFile, Defaults{})
			wantHeld(t, gardenerRules(t, Sources{Defaults: d}), podIn("team", nil, forGardener), tc.want)
			if all := fmt.Sprint(found); tc.warning == "" && len(found) > 0 || !strings.Contains(all, tc.warning) {
				t.Errorf("warnings %q do not contain %q", all, tc.warning)
			}
		})
	}
}

func TestOneHalfOfTheDefaultPower(t *testing.T) {
	for _, tc := range []struct {
		environ   string
		idle, max energy.Watts
		warning   string
	}{
		{environ: "NODE_DEFAULT_IDLE_POWER=50", idle: 50, max: 400},
		{environ: "NODE_DEFAULT_IDLE_POWER=0", idle: 0, max: 400},
		{environ: "NODE_DEFAULT_MAX_POWER=250", idle: 100, max: 250},
		{environ: "NODE_DEFAULT_MAX_POWER=80", warning: "max 80 W is below idle 100 W"},
		{environ: "NODE_DEFAULT_IDLE_POWER=watts", warning: "want a number"},
	} {
		d, found := AliasEnvironment(SchedulerProgram, []string{tc.environ}, os.ReadFile, Defaults{})
		if all := fmt.Sprint(found); tc.warning == "" && len(found) > 0 || !strings.Contains(all, tc.warning) {
			t.Errorf("%s: warnings %q do not contain %q", tc.environ, all, tc.warning)
		}
		switch p := d.NodePower[""]; {
		case tc.warning != "" && p != nil:
			t.Errorf("%s: the profile of nodes is %+v", tc.environ, p)
		case tc.warning == "" && (p == nil || p.Idle != tc.idle || p.Max != tc.max):
			t.Errorf("%s: profile of nodes %+v, want %v to %v W", tc.environ, p, float64(tc.idle), float64(tc.max))
		}
	}
}

// TestEveryAliasHasAnEffect verifies that each annotation of the table affects decisions.
func TestEveryAliasHasAnEffect(t *testing.T) {
	values := map[string]string{
		v1alpha1.AnnotationSkip: "true", v1alpha1.AnnotationCarbonCounts: "false",
		v1alpha1.AnnotationCarbonThreshold: "100",
		v1alpha1.AnnotationPriceThreshold:  "0.1",
		v1alpha1.AnnotationAllowedDelay:    "1h", v1alpha1.AnnotationExpectedDuration: "3",
		v1alpha1.AnnotationMaxPower:        "100",
		v1alpha1.AnnotationMinEfficiency:   "0.5",
		v1alpha1.AnnotationGPUWorkloadType: "inference", v1alpha1.AnnotationPUE: "1.5",
		v1alpha1.AnnotationPerformanceWeight: "0.9",
		v1alpha1.AnnotationBudgetKWh:         "2.5", v1alpha1.AnnotationBudgetAction: "suspend",
	}
	v := gardenerRules(t, Sources{})
	for _, as := range annotations {
		if as.alias == "" {
			continue
		}
		value, known := values[as.key]
		if !known {
			t.Errorf("this test has no value for %s", as.key)
		}
		plainJob, plain := v.ofPod(t, podIn("team", nil, forGardener))
		job, s := v.ofPod(t, podIn("team", map[string]string{as.alias: value}, forGardener))
		if asks(job) == asks(plainJob) && s == plain && !budgets(as.alias, value) {
			t.Errorf("%s: %s has no effect", as.alias, value)
		}
	}
}

// budgets reports whether an annotation affects the own budget of a workload.
func budgets(key, value string) bool {
	usual := map[string]string{v1alpha1.AnnotationBudgetKWh: "1"}
	before, _, err1 := ReadAllowance(nil, "", usual)
	after, _, err2 := ReadAllowance(nil, "", map[string]string{key: value}, usual)
	return err1 == nil && err2 == nil && before != after
}

// asks returns the comparable properties of a job.
func asks(j sched.Job) [6]any {
	return [6]any{j.AllowedDelay, j.Duration, j.Released, j.Limits, j.PUE, j.PerformanceWeight}
}
