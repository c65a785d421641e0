package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

// world is a real control plane with the released manifests installed. It is shared by all tests of the package.
type world struct{ *cluster.Cluster }

var (
	plane  = cluster.Shared{SetUp: setUp}
	shared = &world{&plane.Cluster}
)

func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }

// knowledge defines two sites and two kinds of machines. One site has a low carbon intensity and machines with a
// high power consumption, and the other site is the opposite.
const knowledge = `
apiVersion: kubenergy.io/v1alpha1
kind: GridZone
metadata: {name: clean}
spec:
  zone: SE
  pue: 1.1
  carbon: {sources: [{static: {value: 50}}]}
  price: {currency: EUR, sources: [{static: {value: 0.10}}]}
---
apiVersion: kubenergy.io/v1alpha1
kind: GridZone
metadata: {name: dirty}
spec:
  zone: PL
  pue: 1.5
  carbon: {sources: [{static: {value: 700}}]}
  price: {currency: EUR, sources: [{static: {value: 0.20}}]}
---
apiVersion: kubenergy.io/v1alpha1
kind: PowerProfile
metadata: {name: frugal}
spec: {idleWatts: 40, maxWatts: 120, sleepWatts: 5}
---
apiVersion: kubenergy.io/v1alpha1
kind: PowerProfile
metadata: {name: hungry}
spec: {idleWatts: 100, maxWatts: 400, sleepWatts: 10}
`

func setUp(ctx context.Context, c *cluster.Cluster) error {
	var nodes []lab.NodeSpec
	for i := range 6 {
		site, profile := "clean", "hungry"
		if i%2 == 1 {
			site, profile = "dirty", "frugal"
		}
		nodes = append(nodes, lab.NodeSpec{
			Name: fmt.Sprintf("node-%d", i), Capacity: lab.Capacity(16, 64),
			Labels: map[string]string{v1alpha1.LabelSite: site, v1alpha1.LabelPowerProfile: profile},
		})
	}
	if err := c.AddNodes(ctx, nodes); err != nil {
		return err
	}
	if err := c.AdmitHolds(ctx); err != nil {
		return err
	}
	// Local processes replace the pods of these workloads.
	workloads := func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" || o.GetKind() == "PersistentVolumeClaim" || o.GetKind() == "GridZone"
	}
	if err := c.Apply(ctx, deploy.Everything, workloads); err != nil {
		return err
	}
	if err := c.Apply(ctx, deploy.Agent, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "DaemonSet"
	}); err != nil {
		return err
	}
	return c.Apply(ctx, []byte(knowledge), nil)
}

// agents meters the nodes until stop is called. Like the pods of the DaemonSet, each agent uses a token that is
// bound to an agent pod on its node.
func (w *world) agents(t *testing.T, c *controllerProcess) (metered *meters, stop func()) {
	t.Helper()
	nodes, err := w.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tokens := t.TempDir()
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		token := w.Token(t, "kubenergy-agent", w.agentPod(t, name))
		if err := os.WriteFile(filepath.Join(tokens, name), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := kube.NewObjects(w.Config(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 2)
	go func() { ended <- objects.Run(ctx) }()
	kit.Eventually(t, time.Minute, "the power profiles are loaded",
		func() bool { return objects.View().Profile("hungry") != nil })
	metered = &meters{
		client: w.Client, url: c.url + "/api/v1/batches", caFile: c.caFile, view: objects.View, push: 2 * time.Second,
		tokenFile: func(node string) string { return filepath.Join(tokens, node) },
	}
	go func() { ended <- metered.run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return metered, stop
}

// agentPod returns the pod to which the token of a node's agent is bound.
func (w *world) agentPod(t *testing.T, node string) *corev1.Pod {
	t.Helper()
	pods := w.Client.CoreV1().Pods(cluster.AgentNamespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubenergy-agent-" + node, Labels: map[string]string{"app.kubernetes.io/name": "kubenergy-agent"},
		},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "kubenergy-agent",
			Containers: []corev1.Container{{Name: "agent", Image: "simulated"}},
		},
	}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil &&
		!strings.Contains(err.Error(), "already exists") {
		t.Fatal(err)
	}
	got, err := pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}
