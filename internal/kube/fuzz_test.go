package kube

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// good contains a valid object of each kind in the order of kinds, as sent by an API server.
var good = [...]string{
	`{"metadata":{"name":"good","uid":"u"},"spec":{"zone":"DE","default":true,"regions":["eu-1"],"pue":1.2,"carbon":{
		"maxAge":"2h","sources":[{"static":{"value":300}}]},"price":{"currency":"EUR","sources":[]}},
		"status":{"nodes":2,
		"carbon":{"quality":"measured","start":"2026-06-01T12:00:00Z","step":"1h","values":[300,200],"asOf":
		"2026-06-01T12:00:00Z"},"price":{"quality":"measured","start":"2026-06-01T12:00:00Z","step":"1h",
		"values":[-0.1]}}}`,
	`{"metadata":{"name":"good"},"spec":{"idleWatts":50,"maxWatts":200,"pue":1.1,"default":true,
		"nodeSelector":{"a":"b"},
		"benchmarks":[{"class":"c","rate":2,"watts":90,"idleWatts":50}],"curve":[]}}`,
	`{"metadata":{"name":"default","namespace":"team"},"spec":{"mode":"enforce","maxDelay":"4h"}}`,
	`{"metadata":{"name":"team","labels":{"kubenergy.io/mode":"shadow"}}}`,
	`{"metadata":{"name":"good","namespace":"team"},"spec":{"period":{"type":"Month"},"actions":[{"do":"HoldNewWork"}]},
		"status":{"asOf":"2026-06-01T12:00:00Z","closedUntil":"2026-07-01T00:00:00Z"}}`,
	`{"metadata":{"name":"k","namespace":"kube-system"},"data":{"profiles.yaml":
		"c:\n- nodeName: a-cpu\n  performanceRate: 2\n  powerConsumptionWatts: 90\n  idlePowerWatts: 50\n"}}`,
}

// itemOf converts an object of the given kind to an item. It returns nil if the text is not an object.
func itemOf(kind int, text []byte) *item {
	var o map[string]any
	if json.Unmarshal(text, &o) != nil || o == nil {
		return nil
	}
	return kinds[kind].read(&unstructured.Unstructured{Object: o})
}

// FuzzObjects adds an arbitrary object of any kind to valid ones of all kinds. It verifies that a view can be
// built, that it still contains the valid objects, and that it contains no invalid data of the other object.
func FuzzObjects(f *testing.F) {
	for kind, text := range good {
		f.Add(uint8(kind), []byte(text))
		f.Add(uint8(kind), []byte(strings.NewReplacer("good", "other", "team", "others", "[300,", "[-1e300,",
			`"idleWatts":50`, `"idleWatts":1e99`, `4h`, `-4h`).Replace(text)))
	}
	f.Fuzz(func(t *testing.T, kind uint8, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		k := int(kind) % len(kinds)
		it := itemOf(k, text)
		if it == nil || it.Name == "" || it.Name == "good" || it.Name == "default" || it.Name == "team" {
			return // names are unique in the API server
		}
		items := []*item{it}
		for k, text := range good {
			items = append(items, itemOf(k, []byte(text)))
		}
		for _, p := range it.problems {
			if strings.Contains(p.why, "panicked") {
				t.Fatal(p.why)
			}
		}
		if !it.same(itemOf(k, text)) {
			t.Fatal("the same object results in different items")
		}
		v, err := assemble(items, policy.BuiltIn()).View()
		if err != nil {
			t.Fatal(err)
		}
		if mode, _ := v.Mode("team"); v.Site("good") == nil || v.Profile("good") == nil || v.DefaultSite() == nil ||
			mode != v1alpha1.ModeShadow || v.Policies()["team"] == nil {
			t.Fatalf("a valid object is missing: %+v", v)
		}
		for _, s := range v.Sites() {
			if err := policy.CheckSite(s); err != nil {
				t.Fatal(err)
			}
		}
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}}}
		if node, ok := v.Node(n, Allocatable(n), Allocatable(n), 0); ok && node.Profile.Validate() != nil {
			t.Fatalf("%+v", node)
		}
	})
}

// FuzzPlacement ranks an arbitrary and a valid node for a pod.
func FuzzPlacement(f *testing.F) {
	hardware.Default() // loaded once, not as part of each input
	f.Add([]byte(`{"metadata":{"name":"n","labels":{"kubenergy.io/site":"north","node.kubernetes.io/instance-type":
		"m5.large","topology.kubernetes.io/region":"eu-central-1"},
		"annotations":{"energy.thesis.io/current-watts":"120",
		"energy.thesis.io/last-updated":"1780315200"}},"spec":{"providerID":"aws:///a/i","taints":[{"key":"k","effect":
		"NoSchedule"}]},"status":{"capacity":{"cpu":"8","memory":"32Gi"},"allocatable":{"cpu":"7900m",
		"memory":"30Gi"}}}`),
		[]byte(`{"metadata":{"name":"p","annotations":{"kubenergy.io/max-power-watts":"250"}},
		"spec":{"tolerations":[{"key":"k",
		"operator":"Exists"}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{
		"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"NotIn","values":["b"]}]}]}}},"containers":[{
		"resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]}}`))
	f.Fuzz(func(t *testing.T, nodeText, podText []byte) {
		v := viewOf(t, hardwareContents(t, 300))
		defer memtest.Limit(t, 100*(len(nodeText)+len(podText)))()
		var n v1.Node
		var pod v1.Pod
		if hugeExponent.Match(append(nodeText, podText...)) || json.Unmarshal(nodeText, &n) != nil ||
			json.Unmarshal(podText, &pod) != nil {
			return
		}
		work, _ := policy.ReadPod(&pod)
		job, settings := v.Settle(&work)
		p := &Placement{Now: noon, View: v, Pod: &pod, Job: &job, Settings: &settings}
		nodes := nodesOf(1)
		var load Load
		load.Add(&pod)
		for _, n := range append(nodes, &n) {
			watts, fresh := LiveWatts(n, noon, WattsWritten)
			node, _ := load.Node(v, n)
			if fresh && !(watts >= 0 && watts <= 1e6) || node.PUE != 0 && !(node.PUE >= 1 && node.PUE < 100) ||
				node.Site == nil || node.Profile != nil && node.Profile.Validate() != nil {
				t.Fatalf("%v W, %+v", watts, node)
			}
			found, _ := p.Consider(n, new(Load))
			if found == nil {
				continue
			}
			for _, r := range first(p.Rank([]*sched.Node{found})) {
				if math.IsNaN(r.Cost) || r.KWh != nil && *r.KWh < 0 || r.Grams != nil && *r.Grams < 0 {
					t.Fatalf("%+v of %+v", r, *r.Node)
				}
			}
		}
	})
}

func first[A, B any](a A, _ B) A { return a }

// FuzzPatches applies the patches of a Job to that Job like the API server.
func FuzzPatches(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"j","uid":"u","resourceVersion":"7",
		"labels":{"kubenergy.io/held":"true"}},"spec":{
		"suspend":true}}`), "month", "until ~1/ \xff")
	f.Add([]byte(`{"metadata":{"annotations":{"a/b~c":"d","kubenergy.io/budget-suspended-until":"x"},"labels":{
		"kueue.x-k8s.io/queue-name":"q"}}}`), "", "")
	f.Fuzz(func(t *testing.T, text []byte, budget, description string) {
		defer memtest.Limit(t, 100*(len(text)+len(budget)+len(description)))()
		var job batchv1.Job
		if hugeExponent.Match(text) || json.Unmarshal(text, &job) != nil {
			return
		}
		job.UID, job.ResourceVersion = "u", "7" // set by the API server
		_, queued := job.Labels[policy.LabelKueueQueue]
		stopped := patched(t, &job, BudgetSuspendPatch(&job, budget, noon))
		resumed := patched(t, stopped, BudgetResumePatch(stopped, true))
		_, still := resumed.Labels[v1alpha1.LabelBudgetSuspended]
		if !*stopped.Spec.Suspend || *resumed.Spec.Suspend != queued || still {
			t.Fatalf("%+v and %+v", stopped, resumed)
		}
		held := job.DeepCopy()
		if held.Labels == nil {
			held.Labels = map[string]string{}
		}
		held.Labels[v1alpha1.LabelHeld], held.Spec.Suspend = "true", new(true)
		reported := patched(t, held, SeenJob(held).SayPatch(map[string]string{v1alpha1.AnnotationHeldUntil: description}))
		free := patched(t, reported, SeenJob(reported).ReleasePatch(noon))
		if _, still := free.Labels[v1alpha1.LabelHeld]; still || *free.Spec.Suspend != queued {
			t.Fatalf("%+v", free)
		}
		if len(reported.Annotations) < len(job.Annotations) || len(free.Labels) != len(held.Labels)-1 {
			t.Fatalf("unrelated keys were removed: %+v", free.ObjectMeta)
		}
	})
}

// FuzzFiles reads arbitrary files that replace GridZones and PowerProfiles.
func FuzzFiles(f *testing.F) {
	f.Add([]byte("apiVersion: kubenergy.io/v1alpha1\nkind: Signals\nsites:\n- name: a\n  pue: 1.2\n  carbon: {start: " +
		"'2026-06-01T12:00:00Z', step: 1h, values: [300, 200]}\n"))
	f.Add([]byte("apiVersion: kubenergy.io/v1alpha1\nkind: PowerProfiles\ndefault: p\nprofiles:\n- {name: p, " +
		"idleWatts: 50, maxWatts: 200, exponent: 0.5}\n- null\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		sites, err := readSignals(text)
		for _, s := range sites {
			if err == nil && policy.CheckSite(s) != nil {
				t.Fatalf("%+v", s)
			}
		}
		file, err := readProfiles(text)
		for _, p := range file.Profiles {
			if err == nil && p.Validate() != nil {
				t.Fatalf("%+v", p)
			}
		}
	})
}
