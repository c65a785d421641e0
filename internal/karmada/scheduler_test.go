package karmada

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// TestDisproved verifies that an unschedulable pod excludes its cluster for all workloads, for its own namespace,
// or, if the pod is expected to wait, for none.
func TestDisproved(t *testing.T) {
	for name, c := range map[string]struct {
		pod         string
		others, own string
	}{
		"room is short": {`"status": {"conditions": [{"type": "PodScheduled", "message": "0/1 nodes are available: 1 Insufficient cpu."}]}`, "c001", "c001"},
		"an unknown resource": {`"spec": {"containers": [{"resources": {"requests": {"example.com/foo": "1"}}}]},
			"status": {"conditions": [{"type": "PodScheduled", "message": "0/1 nodes are available: 1 Insufficient ` +
			`example.com/foo, 1 Insufficient cpu."}]}`, "c000", "c001"},
		"too many pods":     {`"status": {"conditions": [{"type": "PodScheduled", "message": "1 Too many pods."}]}`, "c001", "c001"},
		"another reason":    {`"status": {"conditions": [{"type": "PodScheduled", "message": "0/1 nodes are available: 1 of no volume."}]}`, "c000", "c001"},
		"no condition":      {`"spec": {"schedulerName": "default-scheduler"}`, "c001", "c001"},
		"unknown scheduler": {`"spec": {"schedulerName": "absent"}`, "c000", "c001"},
		"held":              {`"status": {"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated", "message": "held"}]}`, "c000", "c000"},
		"no matching node":  {`"spec": {"nodeSelector": {"no": "node"}}`, "c000", "c000"},
		"being deleted":     {`"metadata": {"namespace": "team", "name": "p", "deletionTimestamp": "2026-06-01T12:00:00Z"}`, "c000", "c000"},
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
			if a, err := d.answer(t.Context(), b, nil, ""); err != nil || a.targets[0].Name != want {
				t.Errorf("%s: a workload in %s was placed in %v (%v), want %s", name, namespace, a.targets, err, want)
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

// TestPlaceSaysNothingOfConflicts verifies that the status is not updated after a conflict, so that the binding is
// retried.
func TestPlaceSaysNothingOfConflicts(t *testing.T) {
	d := federated(t, 1, 1, func() time.Time { return noon })
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	d.dynamic = client
	client.PrependReactor("patch", kube.Bindings.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() == "" {
			return true, nil, apierrors.NewConflict(kube.Bindings.GroupResource(), "b", errors.New("object has changed"))
		}
		t.Errorf("unexpected status patch %s", a.(clienttesting.PatchAction).GetPatch())
		return true, nil, nil
	})
	if err := d.place(t.Context(), divided(t, "b", 1)); !apierrors.IsConflict(err) {
		t.Error(err)
	}
}

// TestNothingIsMovedFromClustersThatAreNotLookedAtYet verifies that replicas remain in a cluster that Karmada lists
// but that has no snapshot yet.
func TestNothingIsMovedFromClustersThatAreNotLookedAtYet(t *testing.T) {
	d := federated(t, 2, 1, func() time.Time { return noon })
	b := divided(t, "b", 1)
	b.applied = true
	d.settled(t, b, []target{{"c001", 1}})
	delete(d.members.of, "c001")
	if b.waits(d.gone) {
		t.Error("a cluster that Karmada lists is considered deleted")
	}
	leaving := *d.cluster("c001")
	leaving.DeletionTimestamp = new(metav1.NewTime(noon))
	if err := d.joined.GetStore().Update(&leaving); err != nil {
		t.Fatal(err)
	}
	if !b.waits(d.gone) {
		t.Error("the binding remains in a cluster that is being deleted")
	}
}

// TestWhatRunsStays verifies that a change of the replicas or the policy moves as few replicas as possible and that
// only a trigger reschedules all of them.
func TestWhatRunsStays(t *testing.T) {
	for name, c := range map[string]struct {
		replicas  int
		has       []target
		spec      string
		placement string
		want      string
	}{
		"more":                     {5, []target{{"c001", 3}}, ``, ``, "[{c000 2} {c001 3}]"},
		"same, another policy":     {3, []target{{"c001", 3}}, ``, ``, "[{c001 3}]"},
		"fewer":                    {3, []target{{"c000", 2}, {"c001", 3}}, ``, ``, "[{c001 1} {c000 2}]"},
		"a cluster is excluded":    {4, []target{{"c001", 2}, {"c002", 2}}, ``, `, "clusterAffinity": {"exclude": ["c002"]}`, "[{c000 2} {c001 2}]"},
		"a cluster is deleted":     {4, []target{{"c001", 2}, {"absent", 2}}, ``, ``, "[{c000 2} {c001 2}]"},
		"more in one cluster":      {4, []target{{"c001", 3}}, ``, `, "spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}]`, "[{c001 4}]"},
		"in two clusters":          {6, []target{{"c001", 3}}, ``, `, "spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 2}]`, "[{c000 3} {c001 3}]"},
		"too many clusters":        {4, []target{{"c001", 1}, {"c002", 3}}, ``, `, "spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}]`, "[{c002 4}]"},
		"it is triggered":          {3, []target{{"c001", 3}}, `"rescheduleTriggeredAt": "2026-06-01T12:00:01Z"`, ``, "[{c000 3}]"},
		"it was triggered earlier": {3, []target{{"c001", 3}}, `"rescheduleTriggeredAt": "2026-06-01T11:00:00Z"`, ``, "[{c001 3}]"},
	} {
		d := federated(t, 3, 1, func() time.Time { return noon })
		b := divided(t, "b", c.replicas)
		if err := json.Unmarshal([]byte(`{`+c.spec+`}`), &b.Spec); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(`{"replicaScheduling": {"replicaSchedulingType": "Divided"}`+c.placement+`}`),
			b.Spec.Placement); err != nil {
			t.Fatal(err)
		}
		d.settled(t, b, c.has)
		if a, err := d.choose(t.Context(), b); err != nil || fmt.Sprint(a.targets) != c.want {
			t.Errorf("%s: got %v, %v, want %s", name, a.targets, err, c.want)
		}
	}
}

// TestDuplicated verifies that duplicated bindings are propagated to new clusters up to the maximum number, and
// that an error is returned if no cluster fits.
func TestDuplicated(t *testing.T) {
	d := federated(t, 3, 1, func() time.Time { return noon })
	b := divided(t, "b", 2)
	b.Spec.Placement.ReplicaScheduling.Type, b.applied = "Duplicated", true
	d.settled(t, b, []target{{"c001", 2}, {"c002", 2}})
	if !d.due(b) {
		t.Error("the binding is not due after a cluster has joined")
	}
	b.Spec.Placement.SpreadConstraints = []spread{{ByField: "cluster", MaxGroups: 2}}
	if a, err := d.choose(t.Context(), b); err != nil || fmt.Sprint(a.targets) != "[{c001 2} {c002 2}]" || d.due(b) {
		t.Errorf("in two clusters: got %v, %v, due is %v", a.targets, err, d.due(b))
	}
	b.Spec.Placement.ClusterAffinity = &affinity{ClusterNames: []string{"absent"}}
	if a, err := d.choose(t.Context(), b); !errors.Is(err, errNoFit) {
		t.Errorf("without a matching cluster: got %v, %v", a.targets, err)
	}
}

// TestSettleWrites verifies that the clusters are removed if none fits, and that the observed generation is updated
// if the binding is not due, as in karmada-scheduler.
func TestSettleWrites(t *testing.T) {
	for name, c := range map[string]struct {
		clusters string
		want     []string
	}{
		"no cluster fits": {`["absent"]`, []string{`"clusters":null`, `"reason":"NoClusterFit"`}},
		"not due":         {`["c000"]`, []string{`{"status":{"schedulerObservedGeneration":7}}`}},
	} {
		d := federated(t, 1, 1, func() time.Time { return noon })
		client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
		d.dynamic = client
		d.term.Store(new(t.Context()))
		var wrote []string
		client.PrependReactor("patch", kube.Bindings.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
			wrote = append(wrote, string(a.(clienttesting.PatchAction).GetPatch()))
			return true, &unstructured.Unstructured{Object: map[string]any{}}, nil
		})
		b := divided(t, "b", 1)
		b.Generation, b.applied = 7, true
		if err := json.Unmarshal([]byte(`{"clusterAffinity": {"clusterNames": `+c.clusters+`}}`), b.Spec.Placement); err != nil {
			t.Fatal(err)
		}
		d.settled(t, b, []target{{"c000", 1}})
		b.applied = name == "not due"
		if err := d.reconcile(t.Context(), b); err != nil {
			t.Error(err)
		}
		if len(wrote) != len(c.want) {
			t.Errorf("%s: unexpected patches %q", name, wrote)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(wrote[i], want) {
				t.Errorf("%s: got patch %s, want %s", name, wrote[i], want)
			}
		}
	}
}
