package karmada

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
)

// What karmada-scheduler alone can place gets no opinion, and neither does what has no placement.
func TestNoOpinionOfWhatIsNotSupported(t *testing.T) {
	for spec, want := range map[string]int{
		`"replicas": 1`:     1,
		`"replicas": 20000`: 0,
		`"placement": null`: 0,
		`"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}, "clusterAffinities": [{}]}`:                          0,
		`"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}, "spreadConstraints": [{"minGroups": 2}]}`:            0,
		`"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}, "spreadConstraints": [{"spreadByField": "region"}]}`: 0,
		`"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}, "workloadAffinity": {"a": {}}}`:                      0,
	} {
		d := federated(t, 2, 1, func() time.Time { return noon })
		b := divided(t, "b", 1)
		b.Spec.SchedulerName, b.CreationTimestamp.Time = "default-scheduler", noon
		if err := json.Unmarshal([]byte(`{`+spec+`}`), &b.Spec); err != nil {
			t.Fatal(err)
		}
		if err := d.bound.GetStore().Add(b); err != nil {
			t.Fatal(err)
		}
		if o := newEstimator(d).opinion(t.Context(), b.needs()); len(o) != want {
			t.Errorf("%s: %v, want %d clusters", spec, o, want)
		}
		if d.stays(b) {
			t.Errorf("%s: it counts as running", spec)
		}
	}
}

// If our opinion panics, karmada-scheduler gets the official answer.
func TestAnswerSurvivesPanics(t *testing.T) {
	d := federated(t, 1, 1, func() time.Time { return noon })
	b := divided(t, "b", 1)
	b.Spec.SchedulerName = "default-scheduler"
	b.CreationTimestamp.Time = noon
	if err := d.bound.GetStore().Add(b); err != nil {
		t.Fatal(err)
	}
	d.View = func() *kube.View { panic("a mistake") }
	asked := request("c000", map[string]string{"cpu": "2", "memory": "1Gi"})
	answer, err := newEstimator(d).answer(t.Context(), maxReplicas, asked)
	if err != nil || !bytes.Equal(answer, number(noOpinion)) {
		t.Errorf("%x, %v", answer, err)
	}
}

// Where alike work of a namespace that does not enforce waits too, the question may be about that: no opinion.
func TestNoOpinionBesideOtherModes(t *testing.T) {
	d := federated(t, 2, 1, func() time.Time { return noon })
	view, err := (&kube.Contents{
		Sites: d.View().Sites(), Profiles: []*kube.NodeProfile{{Profile: energy.Profile{Name: "box", Idle: 100, Max: 300}}},
		DefaultProfile: "box",
		Namespaces:     []policy.NamespaceMarks{{Name: "shadow", Labels: map[string]string{v1alpha1.LabelMode: "shadow"}}},
	}).View()
	if err != nil {
		t.Fatal(err)
	}
	d.View = func() *kube.View { return view }
	waits := func(name, namespace string) *binding {
		b := divided(t, name, 1)
		b.Spec.SchedulerName, b.Spec.Resource.Namespace, b.CreationTimestamp.Time = "default-scheduler", namespace, noon
		if err := d.bound.GetStore().Add(b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := waits("b", "team")
	if o := newEstimator(d).opinion(t.Context(), b.needs()); !o["c000"] || len(o) != 1 {
		t.Errorf("alone: %v", o)
	}
	waits("other", "shadow")
	if o := newEstimator(d).opinion(t.Context(), b.needs()); o != nil {
		t.Errorf("beside shadow: %v", o)
	}
}
