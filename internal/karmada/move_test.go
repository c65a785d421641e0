package karmada

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// TestMovesPerHour verifies that the number of moves is limited by --moves-per-hour with a burst of a tenth of
// that.
func TestMovesPerHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := federated(t, 10, 1, time.Now)
		moved := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
		d.Moves, d.dynamic = 20, moved
		d.term.Store(new(t.Context()))
		var jobs []*batchv1.Job
		for i := range 60 {
			b := divided(t, fmt.Sprintf("j%d-job", i), 1)
			b.applied = true
			if err := json.Unmarshal([]byte(`{"aggregatedStatus": [{"clusterName": "c009", "status": {"active": 1}}]}`),
				&b.Status); err != nil {
				t.Fatal(err)
			}
			d.settled(t, b, []target{{"c009", 1}})
			name := fmt.Sprint("j", i)
			jobs = append(jobs, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: name, UID: types.UID(name),
			}})
		}
		d.movable = fill(t, jobs...)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { d.move(ctx); close(ended) }()
		for _, c := range []struct {
			after       time.Duration
			least, most int
		}{{minStay - time.Second, 0, 0}, {minStay + 2*moveLook, 2, 2}, {minStay + 30*time.Minute + moveLook, 11, 13}} {
			time.Sleep(time.Until(began.Add(c.after)))
			if n := len(moved.Actions()); n < c.least || n > c.most {
				t.Errorf("got %d moves in %v, want %d to %d", n, c.after, c.least, c.most)
			}
		}
		stop()
		<-ended
	})
}

// TestNoMoveWithoutALook verifies that no Job is moved without a snapshot of its cluster or without carbon data.
func TestNoMoveWithoutALook(t *testing.T) {
	now := noon
	for name, blind := range map[string]func(*Driver){
		"complete data": func(*Driver) {},
		"no snapshot":   func(d *Driver) { delete(d.members.of, "c001") },
		"no intensity":  func(d *Driver) { d.View = kube.Unsettled },
	} {
		d := federated(t, 2, 1, func() time.Time { return now })
		moved := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
		d.dynamic = moved
		b := divided(t, "j-job", 1)
		b.applied = true
		if err := json.Unmarshal([]byte(`{"aggregatedStatus": [{"clusterName": "c001", "status": {"active": 1}}]}`),
			&b.Status); err != nil {
			t.Fatal(err)
		}
		d.settled(t, b, []target{{"c001", 1}})
		b.Status.LastScheduledTime.Time = now.Add(-2 * minStay)
		blind(d)
		moves, err := d.consider(t.Context(), b, flowcontrol.NewFakeAlwaysRateLimiter())
		if err != nil || moves != (name == "complete data") {
			t.Errorf("%s: moved is %v, %v", name, moves, err)
		}
	}
}
