package karmada

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/kube"
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
