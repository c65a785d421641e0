package karmada

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/internal/karmada"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// TestWithoutKarmada only uses the definitions of Karmada and performs the tasks of its programs itself.
func TestWithoutKarmada(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three control planes")
	}
	s := newStage(t)
	t.Run("ControllerAlone", s.controllerAlone)
	t.Run("Rights", s.rights)

	official := startOfficial(t, s.pki.pair())
	estimator := listen(t)
	driver := s.drive(karmada.Options{
		Estimator: estimator, TLS: s.pki.pair(), Upstream: official, Moves: 30,
	})
	t.Run("Estimator", func(t *testing.T) { s.estimator(t, estimator.Addr().String()) })
	t.Run("Where", s.where)
	t.Run("Again", s.again)
	t.Run("Unsupported", s.unsupported)
	t.Run("Nodes", s.nodes)
	t.Run("Lies", s.lies)
	t.Run("Hold", func(t *testing.T) { s.hold(t, driver) })
	t.Run("Moves", s.moves)
	t.Run("Replay", s.replay)
}

// where verifies that work is placed on the eligible cluster with the lowest carbon intensity that has enough
// capacity.
func (s *stage) where(t *testing.T) {
	c := s.in(t, "where", "")
	c.sends("one", work{})
	one := c.placed("one")
	annotation := one.object.GetAnnotations()["policy.karmada.io/applied-placement"]
	if one.to != "north=1" || !strings.Contains(annotation, `"Divided"`) {
		t.Errorf("unexpected target %q for the placement %s", one.to, annotation)
	}
	c.gone("one")
	c.goes("to the cluster with capacity and the rest to the next one", work{replicas: 6, cpu: "4"}, "north=4 south=2")
	c.goes("named", work{placement: divided + ", clusterAffinity: {clusterNames: [south]}"}, "south=1")
	c.goes("excluded", work{placement: divided + ", clusterAffinity: {exclude: [north]}"}, "south=1")
	c.goes("by label", work{
		placement: divided + ", clusterAffinity: {labelSelector: {matchLabels: {side: south}}}",
	}, "south=1")
	c.goes("of an API", work{kind: "Deployment"}, "south=1")
	c.goes("together", work{
		replicas: 6, cpu: "4", placement: divided + ", spreadConstraints: [{spreadByField: cluster, maxGroups: 1}]",
	}, "south=6")
	c.goes("everywhere", work{
		replicas: 2, placement: "clusterAffinity: {clusterNames: [north, south]}",
	}, "north=2 south=2")

	s.patch(t, clusters, "", "north", `{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`)
	c.comes("a taint is respected", work{}, "south=1")
	c.goes("tolerating", work{placement: divided + ", clusterTolerations: [{key: k, operator: Exists}]"}, "north=1")
	s.patch(t, clusters, "", "north", `{"spec":{"taints":null}}`)
	c.comes("a removed taint is ignored", work{}, "north=1")

	s.reached("north", "False")
	c.comes("an unreachable cluster gets no work", work{}, "south=1")
	s.reached("north", "True")
	c.comes("a reachable cluster gets work again", work{}, "north=1")

	none := c.tries(work{placement: divided + ", clusterAffinity: {clusterNames: [nowhere]}"})
	if none.reason != "NoClusterFit" || none.to != "" ||
		!strings.Contains(none.message, "the cluster affinity does not match") {
		t.Errorf("unexpected result for work without an eligible cluster: target %q, %s: %s",
			none.to, none.reason, none.message)
	}
	c.turn(500, 40)
	c.goes("after a change of the carbon intensities", work{}, "south=1")
	c.turn(50, 400)
}

// again verifies that bindings are placed again if Karmada requests rescheduling or more replicas.
func (s *stage) again(t *testing.T) {
	c := s.in(t, "again", "")
	c.sends("a", work{})
	if p := c.placed("a"); p.to != "north=1" {
		t.Fatalf("unexpected target %q", p.to)
	}
	again := func() {
		time.Sleep(1100 * time.Millisecond) // timestamps of objects have a resolution of one second
		c.patch(t, bindings, c.ns, "a-job", fmt.Sprintf(`{"spec":{"rescheduleTriggeredAt":%q}}`,
			time.Now().UTC().Format(time.RFC3339)))
	}
	again()
	c.await(10*time.Second, "the binding is placed again in the same cluster",
		func() bool { return c.said("a").observed })
	c.turn(500, 40)
	if p := c.said("a"); p.to != "north=1" {
		t.Errorf("placed work was moved to %q without a request", p.to)
	}
	again()
	c.await(10*time.Second, "the binding is placed in another cluster",
		func() bool { return c.said("a").to == "south=1" })
	c.patch(t, bindings, c.ns, "a-job", `{"spec":{"replicas":3}}`)
	c.await(10*time.Second, "three replicas are placed", func() bool { return c.said("a").to == "south=3" })
	c.turn(50, 400)
}

// unsupported verifies that placements that only karmada-scheduler supports are rejected with a reason in the
// condition.
func (s *stage) unsupported(t *testing.T) {
	c := s.in(t, "unsupported", "")
	for placement, want := range map[string]string{
		"clusterAffinities: [{affinityName: a, clusterNames: [north]}]":           "clusterAffinities",
		divided + ", spreadConstraints: [{spreadByField: region, maxGroups: 1}]":  "by region",
		divided + ", spreadConstraints: [{spreadByField: cluster, minGroups: 2}]": "minGroups",
		divided + ", workloadAffinity: {affinity: {groupByLabelKey: app}}":        "workload affinity",
		"replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted, weightPreference: " +
			"{staticWeightList: [{targetCluster: {clusterNames: [north]}, weight: 1}]}}": "weightPreference",
	} {
		p := c.tries(work{placement: placement})
		if p.to != "" || p.reason != "SchedulerError" || !strings.Contains(p.message, want) {
			t.Errorf("placement %s: unexpected target %q, %s: %s", placement, p.to, p.reason, p.message)
		}
	}
}

// nodes verifies that node selectors and taints are respected. One of the three nodes in the north has a disk
// label, and another one has a taint.
func (s *stage) nodes(t *testing.T) {
	c := s.in(t, "nodes", "")
	c.goes("tolerating the taint", work{
		replicas: 6, cpu: "4", node: "tolerations: [{key: dedicated, operator: Exists}]",
	}, "north=6")
	c.goes("selecting", work{replicas: 2, cpu: "4", node: "nodeSelector: {disk: ssd}"}, "north=2")
	if p := c.tries(work{replicas: 3, cpu: "4", node: "nodeSelector: {disk: ssd}"}); p.reason != "Unschedulable" {
		t.Errorf("unexpected result for work that exceeds the selected node: target %q, reason %s", p.to, p.reason)
	}
	c.goes("by affinity", work{
		replicas: 3, cpu: "4", node: "hardNodeAffinity: {nodeSelectorTerms: [{matchExpressions: " +
			"[{key: kubernetes.io/hostname, operator: In, values: [n2, s0]}]}]}",
	}, "north=2 south=1")

	// Sent replicas are counted for half a minute even if their pods do not appear, and they are not counted twice.
	c.sends("sent", work{replicas: 4, cpu: "4"})
	if p := c.placed("sent"); p.to != "north=4" {
		t.Fatalf("unexpected target %q", p.to)
	}
	c.goes("after the north is full", work{}, "south=1")
	s.later(31 * time.Second)
	c.comes("replicas without pods are not counted after half a minute", work{}, "north=1")
	c.gone("sent")

	c.sends("came", work{replicas: 2})
	if p := c.placed("came"); p.to != "north=2" {
		t.Fatalf("unexpected target %q", p.to)
	}
	for i := range 2 {
		c.pod(fmt.Sprint("came-", i), "n0", "", time.Time{}, map[string]string{batchv1.JobNameLabel: "came"})
	}
	c.comes("the remaining capacity is available after the pods were created", work{replicas: 6, cpu: "2"}, "north=6")
	c.goes("no more than the remaining capacity is used", work{replicas: 7, cpu: "2"}, "north=6 south=1")
}

// lies verifies that a member that reports capacity it does not have is excluded after one minute of the driver's
// clock.
func (s *stage) lies(t *testing.T) {
	c, other := s.in(t, "lies", ""), s.in(t, "others", "")
	pod := func(message string, since time.Duration) (gone func()) {
		c.pod("p", "", message, time.Now().Add(since), nil)
		time.Sleep(300 * time.Millisecond) // until the driver receives the event
		s.later(2 * time.Second)           // and evaluates it again
		c.goes("timestamps of the member are ignored", work{}, "north=1")
		s.later(61 * time.Second)
		return func() {
			if err := c.pods().Delete(t.Context(), "p", *metav1.NewDeleteOptions(0)); err != nil {
				t.Fatal(err)
			}
			c.comes("the member gets work again after the pod is deleted", work{}, "north=1")
		}
	}
	gone := pod("0/3 nodes are available: 3 Insufficient cpu.", -time.Hour)
	other.comes("a member without the reported capacity", work{}, "south=1")
	c.goes("a member without the reported capacity", work{}, "south=1")
	p := c.tries(work{placement: divided + ", clusterAffinity: {clusterNames: [north]}"})
	if p.reason != "Unschedulable" || !strings.Contains(p.message, "pod lies/p has been unschedulable there for a minute") {
		t.Errorf("%s: %s", p.reason, p.message)
	}
	gone()
	gone = pod("", 0)
	other.comes("a member without scheduling results", work{}, "south=1")
	gone()
	gone = pod("0/3 nodes are available: 3 node(s) had volume node affinity conflict.", time.Hour)
	c.comes("of its own namespace", work{}, "south=1")
	other.goes("of another", work{}, "north=1")
	gone()

	c.sends("silent", work{})
	if p := c.placed("silent"); p.to != "north=1" {
		t.Fatalf("unexpected target %q", p.to)
	}
	s.later(61 * time.Second)
	c.comes("a member without a status for a Job", work{}, "south=1")
	other.goes("of another namespace", work{}, "north=1")
	c.tells("silent", "north", `{"active":1}`)
	c.comes("the member has reported a status for the Job", work{}, "north=1")
}

// moves verifies that running interruptible Jobs are moved once if that saves enough.
func (s *stage) moves(t *testing.T) {
	c := s.in(t, "moves", "")
	movable := map[string]string{"kubenergy.io/interruptible": "true"}
	long := map[string]string{"kubenergy.io/expected-duration": "4h"}
	for name, w := range map[string]work{
		"moves": {labels: movable, annotations: long}, "too": {labels: movable, annotations: long},
		"stays": {annotations: long}, "waits": {labels: movable, annotations: long},
		"ends": {labels: movable, annotations: map[string]string{"kubenergy.io/expected-duration": "12m"}},
	} {
		c.sends(name, w)
		if p := c.placed(name); p.to != "north=1" {
			t.Fatalf("unexpected target of %s: %q", name, p.to)
		}
		active := `{"active":1}`
		if name == "waits" {
			active = `{"active":0}`
		}
		c.tells(name, "north", active)
	}
	c.turn(500, 50)
	s.later(11 * time.Minute)
	moved := func() (names []string) {
		list, err := s.dynamic.Resource(rebalancers).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			workloads, _, _ := unstructured.NestedSlice(o.Object, "spec", "workloads")
			for _, w := range workloads {
				w := w.(map[string]any)
				if w["apiVersion"] == "batch/v1" && w["kind"] == "Job" && w["namespace"] == c.ns {
					names = append(names, w["name"].(string))
				}
			}
		}
		return names
	}
	c.await(45*time.Second, "two Jobs are moved", func() bool { return len(moved()) >= 2 })
	time.Sleep(time.Second)
	if names := moved(); fmt.Sprint(slices.Sorted(slices.Values(names))) != "[moves too]" {
		t.Errorf("moved Jobs = %v, want [moves too]", names)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for _, r := range s.taken {
		if r.Action != "move" {
			continue
		}
		if count++; r.Saved <= 0 || !strings.HasPrefix(r.Node, "south/") ||
			!strings.Contains(r.Message, "from cluster north") {
			t.Errorf("unexpected record of a move: %+v", r.Record)
		}
	}
	if count != 2 {
		t.Errorf("got %d recorded moves, want 2", count)
	}
}

// replay verifies that each recorded decision can be reproduced from its recorded input.
func (s *stage) replay(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.taken {
		on, err := codec.Decode(r.question)
		if err != nil {
			t.Fatal(err)
		}
		strategy, err := strategy.ByName(r.Strategy)
		if err != nil {
			t.Fatal(err)
		}
		if d := strategy.Plan(on)[0]; d.Node != r.Node {
			t.Errorf("replay of decision %s for %s/%s with strategy %s: recorded node %s, got %s",
				r.Action, r.Namespace, r.Owner, r.Strategy,
				r.Node, d.Node)
		}
	}
	if len(s.taken) < 20 {
		t.Errorf("got %d recorded decisions, want at least 20", len(s.taken))
	}
}

// rights tries operations that kubenergy-karmada must not be able to perform, on the API server of Karmada and
// through its proxy in a member.
func (s *stage) rights(t *testing.T) {
	c := s.in(t, "rights", "")
	c.sends("b", work{stock: true})
	s.apply(t, fmt.Appendf(nil, `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: p, namespace: %s}
spec: {resourceSelectors: [{apiVersion: batch/v1, kind: Job}]}
`, c.ns))
	client, objects := kubernetes.NewForConfigOrDie(s.ours), dynamic.NewForConfigOrDie(s.ours)
	there := rest.CopyConfig(s.ours)
	there.Host += "/apis/cluster.karmada.io/v1alpha1/clusters/north/proxy"
	member := kubernetes.NewForConfigOrDie(there)
	merge := func(patch string) error {
		_, err := client.BatchV1().Jobs(c.ns).Patch(t.Context(), "b", types.MergePatchType, []byte(patch),
			metav1.PatchOptions{})
		return err
	}
	_, errSecrets := client.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	_, errPatch := objects.Resource(policies).Namespace(c.ns).Patch(t.Context(), "p", types.MergePatchType,
		[]byte(`{"spec":{"schedulerName":"kubenergy"}}`), metav1.PatchOptions{})
	_, errCluster := objects.Resource(clusters).Patch(t.Context(), "north", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	errBinding := objects.Resource(bindings).Namespace(c.ns).Delete(t.Context(), "b-job", metav1.DeleteOptions{})
	_, errService := client.CoreV1().Services("karmada-system").Create(t.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "karmada-scheduler-estimator-north"},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeExternalName, ExternalName: "elsewhere"},
	}, metav1.CreateOptions{})
	_, errMembers := member.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	for what, err := range map[string]error{
		"reading secrets": errSecrets, "patching a policy": errPatch, "patching a Cluster": errCluster,
		"reading a member's secrets": errMembers, "replacing the Service of an estimator": errService,
		"deleting a binding":       errBinding,
		"deleting a Job":           client.BatchV1().Jobs(c.ns).Delete(t.Context(), "b", metav1.DeleteOptions{}),
		"deleting a member's node": member.CoreV1().Nodes().Delete(t.Context(), "n0", metav1.DeleteOptions{}),
		"suspending a Job":         merge(`{"spec":{"suspend":true}}`),
		"changing a Job's size":    merge(`{"spec":{"parallelism":7}}`),
	} {
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	nodes, err := member.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 3 {
		t.Errorf("reading the nodes of a member = %v, error %v, want 3 nodes", nodes, err)
	}
}
