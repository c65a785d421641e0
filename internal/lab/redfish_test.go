package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubenergy/kubenergy/internal/power"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// bench is a service with one machine. Its second boot fails.
type bench struct {
	*Machines
	t       *testing.T
	node    string
	machine *Machine
	client  kubernetes.Interface
}

func newBench(t *testing.T) *bench {
	node := NodeSpec{Name: "n1"}.node(time.Now())
	renewed := metav1.NewMicroTime(time.Now().Add(-5 * time.Second))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(kwokID), LeaseDurationSeconds: new(int32(leaseSeconds)), RenewTime: &renewed,
		},
	}
	return benchOf(t, &Cluster{client: fake.NewClientset(node, lease)}, "n1")
}

func benchOf(t *testing.T, c *Cluster, node string) *bench {
	b := &bench{t: t, client: c.client, node: node, machine: &Machine{
		BootTime: 50 * time.Millisecond, Fails: func(boot uint64) bool { return boot == 2 },
	}}
	var err error
	b.Machines, err = c.StartMachines(t.Context(), map[string]*Machine{node: b.machine})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

// ask sends a request and returns the status and the body of the response.
func (b *bench) ask(method, path, body string) (int, map[string]any) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	var answer map[string]any
	_ = json.Unmarshal(text, &answer) // errors are plain text
	return resp.StatusCode, answer
}

func (b *bench) reset(kind string, want int) {
	b.t.Helper()
	status, _ := b.ask(http.MethodPost, systems+"/"+b.node+"/Actions/ComputerSystem.Reset", `{"ResetType": "`+kind+`"}`)
	if status != want {
		b.t.Errorf("status of reset %s = %d, want %d", kind, status, want)
	}
}

func (b *bench) becomes(state string) {
	b.t.Helper()
	eventually(b.t, "the machine is "+state, func() bool {
		_, system := b.ask(http.MethodGet, systems+"/"+b.node, "")
		return system["PowerState"] == state
	})
}

// beats returns the holder of the node's Lease and the status of its Ready condition.
func (b *bench) beats(ctx context.Context) (holder string, ready corev1.ConditionStatus) {
	b.t.Helper()
	lease, err := b.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, b.node, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	node, err := b.client.CoreV1().Nodes().Get(ctx, b.node, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = c.Status
		}
	}
	return *lease.Spec.HolderIdentity, ready
}

func TestMachinesGoOffAndBoot(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	_, all := b.ask(http.MethodGet, systems, "")
	if diff := cmp.Diff(map[string]any{"Members": []any{map[string]any{"@odata.id": systems + "/n1"}}}, all); diff != "" {
		t.Error(diff)
	}
	node, err := b.client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, system := b.ask(http.MethodGet, systems+"/n1", ""); system["UUID"] != node.Status.NodeInfo.SystemUUID ||
		system["PowerState"] != "On" {
		t.Errorf("unexpected system %v, the node's UUID is %q", system, node.Status.NodeInfo.SystemUUID)
	}
	if status, _ := b.ask(http.MethodGet, systems+"/other", ""); status != http.StatusNotFound {
		t.Errorf("status of a request for an unknown machine = %d, want 404", status)
	}

	b.reset("On", http.StatusNoContent) // already on
	b.reset("Nothing", http.StatusConflict)
	b.reset("GracefulShutdown", http.StatusNoContent)
	b.becomes("Off")
	if holder, ready := b.beats(ctx); holder == kwokID || ready != corev1.ConditionFalse {
		t.Errorf("machine is off, but the Lease holder of its node is %s and Ready is %s", holder, ready)
	}

	b.reset("On", http.StatusNoContent)
	b.reset("GracefulShutdown", http.StatusConflict) // it is booting
	b.becomes("On")
	if holder, ready := b.beats(ctx); holder != kwokID || ready != corev1.ConditionTrue {
		t.Errorf("machine is on, but the Lease holder of its node is %s and Ready is %s", holder, ready)
	}

	b.reset("GracefulShutdown", http.StatusNoContent)
	b.becomes("Off")
	b.reset("On", http.StatusNoContent) // fails
	b.becomes("Off")
	b.reset("On", http.StatusNoContent)
	b.becomes("On")

	b.Stop()
	var states []sleep.State
	for _, c := range b.Changes {
		states = append(states, c.State)
	}
	want := []sleep.State{
		sleep.Asleep, sleep.Booting, sleep.Awake, sleep.Asleep, sleep.Booting, sleep.Asleep, sleep.Booting, sleep.Awake,
	}
	if diff := cmp.Diff(want, states); diff != "" || b.Forced != 0 || b.Killed != 0 {
		t.Errorf("%d machines forced off, %d pods killed, unexpected states (-want +got):\n%s", b.Forced, b.Killed, diff)
	}
}

// The client that puts machines to sleep works with the service.
func TestMachinesAreSwitched(t *testing.T) {
	b := newBench(t)
	switches, err := power.NewSwitches([]power.Machine{{
		Node: "n1", UUID: SystemUUID("n1"), Kind: power.KindRedfish, URL: b.URL, System: systems + "/n1",
	}}, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	machine := switches["n1"]
	is := func(want bool) {
		t.Helper()
		if on, uuid, err := machine.State(t.Context()); on != want || uuid != SystemUUID("n1") || err != nil {
			t.Errorf("unexpected State() = %v, UUID %s, error %v", on, uuid, err)
		}
	}
	is(true)
	if err := machine.Off(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.becomes("Off")
	is(false)
	if err := machine.On(t.Context()); err != nil {
		t.Fatal(err)
	}
	is(true)
}

func TestTrials(t *testing.T) {
	for sleep, want := range map[bool]string{
		false: "[stock energy]", true: "[stock stock with sleep energy with sleep]",
	} {
		trials, err := Trials([]string{Stock, "energy"}, sleep)
		var names []string
		for i := range trials {
			names = append(names, trials[i].String())
		}
		if got := fmt.Sprint(names); got != want || err != nil {
			t.Errorf("Trials() = %s, want %s, error %v", got, want, err)
		}
	}
}

func TestWhatRunsOnAMachineEndsWithIt(t *testing.T) {
	b := newBench(t)
	for name, of := range map[string]string{"works": "Job", "comes-with-the-node": "DaemonSet"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
			{Kind: of, Controller: new(true)},
		}}}
		p.Spec.NodeName = "n1"
		if _, err := b.client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.reset("ForceOff", http.StatusNoContent)
	b.becomes("Off")
	b.Stop()
	if b.Forced != 1 || b.Killed != 1 {
		t.Errorf("%d machines forced off, %d pods killed, want 1 and 1", b.Forced, b.Killed)
	}
	left, err := b.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != "comes-with-the-node" {
		t.Errorf("unexpected remaining pods: %v, error %v", left.Items, err)
	}
}

// On a real control plane, a node remains off although KWOK and the controllers are running, and becomes ready
// again when it is turned on.
func checkMachines(t *testing.T, c *Cluster) {
	const node = "node-0002"
	b := benchOf(t, c, node)
	b.reset("GracefulShutdown", http.StatusNoContent)
	b.becomes("Off")
	taints := func() int {
		n, err := c.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(n.Spec.Taints)
	}
	eventually(t, "a node that is off is tainted", func() bool { return taints() > 0 })
	renewal := 12 * time.Second // longer than the interval of Lease renewals
	time.Sleep(renewal)
	if holder, ready := b.beats(t.Context()); holder == kwokID || ready == corev1.ConditionTrue {
		t.Errorf("after %v the Lease holder is %s and Ready is %s", renewal, holder, ready)
	}
	b.reset("On", http.StatusNoContent)
	b.becomes("On")
	eventually(t, "the taints of a node that is on are removed", func() bool { return taints() == 0 })
	on := time.Now()
	eventually(t, "KWOK renews its Lease", func() bool {
		lease, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), node,
			metav1.GetOptions{})
		return err == nil && lease.Spec.RenewTime.After(on)
	})
}
