package karmada

import (
	"bytes"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/kube"
)

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
