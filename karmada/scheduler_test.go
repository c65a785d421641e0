package karmada

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubenergy/kubenergy/kube"
)

// A pod that has found no node for a minute disproves the room that a member claims: for all, for its own namespace, or,
// where it is meant to wait, for none.
func TestDisproved(t *testing.T) {
	for name, c := range map[string]struct {
		pod         string
		others, own string
	}{
		"room is short":     {`"status": {"conditions": [{"type": "PodScheduled", "message": "0/1 nodes are available: 1 Insufficient cpu."}]}`, "c001", "c001"},
		"another reason":    {`"status": {"conditions": [{"type": "PodScheduled", "message": "0/1 nodes are available: 1 of no volume."}]}`, "c000", "c001"},
		"nothing is said":   {`"spec": {"schedulerName": "default-scheduler"}`, "c001", "c001"},
		"no such scheduler": {`"spec": {"schedulerName": "absent"}`, "c000", "c001"},
		"held":              {`"status": {"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated", "message": "held"}]}`, "c000", "c000"},
		"fits nowhere":      {`"spec": {"nodeSelector": {"no": "node"}}`, "c000", "c000"},
		"ends":              {`"metadata": {"namespace": "team", "name": "p", "deletionTimestamp": "2026-06-01T12:00:00Z"}`, "c000", "c000"},
	} {
		now := noon
		d := federated(t, 2, 1, func() time.Time { return now })
		p := parsed[v1.Pod](t, `{"metadata": {"namespace": "team", "name": "p", "uid": "u"}, "status": {"phase": "Pending"}}`)
		if err := json.Unmarshal([]byte("{"+c.pod+"}"), p); err != nil {
			t.Fatal(err)
		}
		if err := d.members.of["c000"].pods.GetStore().Add(p); err != nil {
			t.Fatal(err)
		}
		goes := func(namespace, want string) {
			t.Helper()
			b := divided(t, "b", 1)
			b.Spec.Resource.Namespace = namespace
			if to, _, err := d.answer(t.Context(), b); err != nil || to[0].Name != want {
				t.Errorf("%s: work of %s goes to %v (%v), want %s", name, namespace, to, err, want)
			}
		}
		goes("team", "c000")
		now = now.Add(believed)
		goes("team", "c000")
		now = now.Add(lookEvery)
		goes("team", c.own)
		goes("others", c.others)
	}
}

// Where writing fails, as when the binding has changed meanwhile, nothing is said of the binding: it is placed again.
func TestPlaceSaysNothingOfConflicts(t *testing.T) {
	d := federated(t, 1, 1, func() time.Time { return noon })
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	d.dynamic = client
	client.PrependReactor("patch", kube.Bindings.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() == "" {
			return true, nil, apierrors.NewConflict(kube.Bindings.GroupResource(), "b", errors.New("it has changed"))
		}
		t.Errorf("it said %s", a.(clienttesting.PatchAction).GetPatch())
		return true, nil, nil
	})
	if err := d.place(t.Context(), divided(t, "b", 1)); !apierrors.IsConflict(err) {
		t.Error(err)
	}
}
