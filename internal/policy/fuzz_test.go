package policy

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// hugeExponent matches quantities that make the arithmetic of Kubernetes run practically forever.
var hugeExponent = regexp.MustCompile(`[eE][-+]?[0-9]{3}`)

// FuzzSettle reads a Job, a pod, policies of the cluster and a namespace, and the namespace, and decides when the
// Job and the pod start. It verifies that neither waits longer than the policies allow.
func FuzzSettle(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"j","annotations":{"kubenergy.io/allowed-delay":"6h",
		"kubenergy.io/finish-by":"2026-06-02T06:00:00Z","kubenergy.io/carbon-threshold":"200"}},"spec":{"parallelism":
		3,"completions":2,"template":{"spec":{"nodeSelector":{"disk":"ssd"},"containers":[{"name":"c","resources":
		{"requests":{"cpu":"1500m","memory":"2Gi","nvidia.com/gpu":"1"}}}]}}}}`),
		[]byte(`{"metadata":{"name":"p","labels":{"kubenergy.io/workload-type":"batch"},"annotations":{
		"kubenergy.io/strategy":"carbon+window"},"ownerReferences":[{"kind":"Job","name":"j","controller":true}]},
		"spec":{"schedulerName":"compute-gardener-scheduler"}}`),
		[]byte(`{"spec":{"mode":"enforce","maxDelay":"12h","allowedDelay":"20h"}}`),
		[]byte(`{"spec":{"maxDelay":"4h","workloadTypes":{"batch":{"allowedDelay":"9h",
		"hold":{"carbonThreshold":90}}}}}`),
		[]byte(`{"metadata":{"labels":{"kubenergy.io/mode":"enforce",
		"compute-gardener-scheduler.kubernetes.io/energy-policies":"enabled"},"annotations":{
		"compute-gardener-scheduler.kubernetes.io/policy-max-scheduling-delay":"9h",
		"compute-gardener-scheduler.kubernetes.io/policy-energy-budget-kwh":"2"}}}`))
	f.Add([]byte(`{"metadata":{"annotations":{"kubenergy.io/price-threshold":"0.2"}}}`), []byte(`{}`),
		[]byte(`{"spec":{"maxDelay":"0s"}}`), []byte(`{"spec":{"maxDelay":"1h"}}`), []byte(`{}`))
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	falling := make([]float64, 48)
	for i := range falling {
		falling[i] = float64(500 - 10*i)
	}
	series, err := grid.NewSeries(now, time.Hour, falling)
	if err != nil {
		f.Fatal(err)
	}
	site := &sched.Site{Name: "s", Carbon: grid.Signal{Series: series, AsOf: now}, Price: grid.Signal{Series: series}}
	f.Fuzz(func(t *testing.T, jobText, podText, clusterText, ownText, namespaceText []byte) {
		defer memtest.Limit(t, 100*(len(jobText)+len(podText)+len(clusterText)+len(ownText)+len(namespaceText)))()
		var job batchv1.Job
		var pod v1.Pod
		var cluster, own v1alpha1.EnergyPolicy
		var namespace v1.Namespace
		for text, into := range map[*[]byte]any{
			&jobText: &job, &podText: &pod, &clusterText: &cluster, &ownText: &own, &namespaceText: &namespace,
		} {
			if hugeExponent.Match(*text) || json.Unmarshal(*text, into) != nil {
				return
			}
		}
		created := metav1.NewTime(now.Add(-time.Hour)) // names and times are set by the API server
		job.Namespace, job.CreationTimestamp, pod.Namespace, pod.CreationTimestamp = "team", created, "team", created
		cluster.Namespace, cluster.Name = v1alpha1.SystemNamespace, v1alpha1.PolicyName
		own.Namespace, own.Name = "team", v1alpha1.PolicyName
		namespace.Name = "team"
		limit := BuiltIn().MaxDelay
		if d := cluster.Spec.MaxDelay; d != nil && ReadPolicy(&cluster) == nil {
			limit = d.Duration
		}
		if d := own.Spec.MaxDelay; d != nil && ReadPolicy(&own) == nil {
			limit = min(limit, d.Duration)
		}
		c := Sources{
			Defaults: BuiltIn(), Policies: []*v1alpha1.EnergyPolicy{&cluster, &own}, Sites: []*sched.Site{site},
			Namespaces: []NamespaceMarks{{Name: "team", Labels: namespace.Labels, Annotations: namespace.Annotations}},
		}
		rules := c.Rules()
		for _, o := range []metav1.Object{&job, &pod} {
			work, err := Read(o)
			if err != nil && work.Marks != (Marks{}) {
				t.Fatalf("error %v with marks %+v", err, work.Marks)
			}
			_, _ = NeverHeld(o)
			_ = FindKeys(nil, o.GetAnnotations())
			_ = rules.Origins(&work)
			a, ok, _ := ReadAllowance(&c.Namespaces[0], work.Type, o.GetAnnotations())
			if ok && !(a.KWh > 0 && a.KWh <= maxBudget) {
				t.Fatalf("the budget is %v kWh", a.KWh)
			}
			j, s := rules.Settle(&work)
			latest := created.Add(limit)
			if j.AllowedDelay < 0 || j.AllowedDelay > limit || j.LatestStart().After(latest) || j.Duration <= 0 {
				t.Fatalf("delay %v until %v with a duration of %v, want at most %v", j.AllowedDelay, j.LatestStart(), j.Duration,
					limit)
			}
			if p := j.Limits.Percentile; j.PUE < 0 || s.MinSaving < 0 || j.Limits.Carbon < 0 || !(p >= 0 && p < 1) {
				t.Fatalf("%+v, %+v", j, s)
			}
			if d := rules.Decide(now, j, s); d.Window.Start.After(latest) && d.Window.Start.After(now) {
				t.Fatalf("the start is %v, want at most %v", d.Window.Start, latest)
			}
		}
	})
}

// FuzzEnvironment reads variables of Compute Gardener and a file with schedules.
func FuzzEnvironment(f *testing.F) {
	f.Add("MAX_SCHEDULING_DELAY=12h\nPRICING_ENABLED=true\nPRICING_SCHEDULES_PATH=x\n"+
		"NODE_POWER_CONFIG_a=idle:50,max:300", []byte("schedules:\n- offPeakRate: 0.1\n"))
	f.Add("HARDWARE_PROFILES_PATH=x\nNODE_DEFAULT_MAX_POWER=1e5",
		[]byte("cpuProfiles: {a: {idlePower: 1, maxPower: 2}}"))
	// the hardware file is merged into the built-in catalog; the race detector allocates the most memory
	const catalogue = 128 << 20
	f.Fuzz(func(t *testing.T, environ string, file []byte) {
		defer memtest.Limit(t, catalogue+100*(len(environ)+len(file)))()
		read := func(string) ([]byte, error) { return file, nil }
		d, _ := AliasEnvironment(SchedulerProgram, strings.Split(environ, "\n"), read, BuiltIn())
		for name, terms := range d.Schedulers {
			if terms.AllowedDelay < 0 || terms.AllowedDelay > longest || !(terms.Limits.Carbon >= 0) {
				t.Fatalf("%s: %+v", name, terms)
			}
		}
		for node, p := range d.NodePower {
			if err := p.Validate(); err != nil {
				t.Fatalf("%s: %v", node, err)
			}
		}
	})
}

// FuzzRequests reads arbitrarily large quantities that the API server accepts. It verifies that a Job requests at
// least as much as one of its pods, and a pod at least as much as one of its containers.
func FuzzRequests(f *testing.F) {
	f.Add("1500m", "2Gi", "1", int32(3), int32(2))
	f.Add("9223372036854775807", "9E", "1e18", int32(1<<31-1), int32(1<<31-1))
	f.Add("1e-9", "1n", "0", int32(-1), int32(0))
	f.Fuzz(func(t *testing.T, cpu, memory, gpus string, parallelism, completions int32) {
		defer memtest.Limit(t, 100*(len(cpu)+len(memory)+len(gpus)))()
		list := v1.ResourceList{}
		for name, text := range map[v1.ResourceName]string{
			v1.ResourceCPU: cpu, v1.ResourceMemory: memory, NvidiaGPU: gpus, "amd.com/gpu": gpus,
			"nvidia.com/mig-3g.20gb": gpus,
		} {
			if hugeExponent.MatchString(text) {
				return
			}
			q, err := resource.ParseQuantity(text)
			if err != nil || q.Sign() < 0 {
				return
			}
			list[name] = q
		}
		c := v1.Container{Resources: v1.ResourceRequirements{Requests: list}}
		job := &batchv1.Job{Spec: batchv1.JobSpec{Parallelism: &parallelism, Completions: &completions}}
		one := job.DeepCopy()
		one.Spec.Parallelism = nil
		one.Spec.Template.Spec.Containers = []v1.Container{c}
		job.Spec.Template.Spec = v1.PodSpec{
			Containers: []v1.Container{c, c}, InitContainers: []v1.Container{c}, Overhead: list,
		}
		most, _ := ReadJob(job)
		least, _ := ReadJob(one)
		a, b := least.request, most.request
		if min(a.MilliCPU, a.Memory, a.GPU, a.MilliGPU) < 0 || b.MilliCPU < a.MilliCPU || b.Memory < a.Memory ||
			b.GPU < a.GPU || b.MilliGPU < a.MilliGPU {
			t.Fatalf("%+v of one container exceeds %+v of all", a, b)
		}
	})
}
