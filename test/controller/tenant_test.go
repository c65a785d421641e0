package controller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestTenantAttacksTheController attacks a running controller with an account that can edit one namespace,
// including its EnergyBudgets.
func TestTenantAttacksTheController(t *testing.T) {
	w := shared
	c := w.controller(t, nil)
	for _, ns := range []string{"attacker", "victim"} {
		w.Namespace(t, ns, enforced)
	}
	token := w.account(t, "attacker", "editor", "attacker")
	victim := w.account(t, "victim", "reader", "victim")
	fine := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if status, body := kit.Get(ctx, c.client, c.url+"/api/v1/namespaces/victim/ledger?from=-1h", victim); status !=
			http.StatusOK {
			t.Errorf("%s: unexpected response to another tenant: %d %s", what, status, body)
		}
	}
	kit.Eventually(t, 30*time.Second, "the victim can access its namespace", func() bool {
		status, _ := c.get(t, "/api/v1/namespaces/victim/ledger?from=-1h", victim)
		return status == http.StatusOK
	})
	t.Run("connections", func(t *testing.T) { c.holdConnections(t, fine) })
	t.Run("queries", func(t *testing.T) { c.askTooMuch(t, token, fine) })
	t.Run("budgets", func(t *testing.T) { w.attackByBudget(t, c, token) })
}

// holdConnections opens more connections than a single address is allowed to hold.
func (c *controllerProcess) holdConnections(t *testing.T, fine func(what string)) {
	text, err := os.ReadFile(c.caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: 10 * time.Second}
	var open, refused atomic.Int64
	var all sync.WaitGroup
	const attackers = 16
	stop := make(chan struct{})
	defer all.Wait()
	defer close(stop)
	for range attackers {
		all.Go(func() {
			for range 3_200 / attackers {
				dialer := &tls.Dialer{NetDialer: from, Config: &tls.Config{RootCAs: roots}}
				conn, err := dialer.DialContext(t.Context(), "tcp4", strings.TrimPrefix(c.url, "https://"))
				if err != nil {
					refused.Add(1)
					continue
				}
				// After a request, even an unauthorized one, a connection may be idle for minutes.
				_, err = io.WriteString(conn, "GET /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\n\r\n")
				if _, errRead := io.ReadFull(conn, make([]byte, 1)); err != nil || errRead != nil {
					refused.Add(1)
					continue
				}
				open.Add(1)
				defer conn.Close()
			}
			<-stop
		})
	}
	kit.Eventually(t, time.Minute, "all connection attempts are done",
		func() bool { return open.Load()+refused.Load() == 3_200 })
	fine("while one address holds its maximum number of connections")
	t.Logf("%d connections were accepted, %d rejected", open.Load(), refused.Load())
	if refused.Load() == 0 {
		t.Error("number of connections from one address is not limited")
	}
}

// askTooMuch sends expensive requests at the maximum rate.
func (c *controllerProcess) askTooMuch(t *testing.T, token string, fine func(what string)) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var asked atomic.Int64
	for range 32 {
		all.Go(func() {
			for ctx.Err() == nil {
				kit.Get(ctx, c.client, c.url+
					"/api/v1/namespaces/attacker/ledger?from=-400d&groupBy=window,pod,uid,node,site,owner", token)
				asked.Add(1)
			}
		})
	}
	for range 5 {
		time.Sleep(time.Second)
		fine("while another tenant sends expensive requests")
	}
	if asked.Load() < 100 {
		t.Errorf("only %d requests were sent, want at least 100", asked.Load())
	}
}

// attackByBudget creates a budget that is exceeded immediately. Its webhooks are internal URLs that tenants must
// not reach, and its scope matches Jobs in other namespaces.
func (w *world) attackByBudget(t *testing.T, c *controllerProcess, token string) {
	ctx := t.Context()
	var hits atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer inside.Close()
	w.label(t, "victim", v1alpha1.LabelTeam, "victims")
	time.Sleep(3 * time.Second) // until the controller has received the label, even on a busy machine
	for _, ns := range []string{"attacker", "victim"} {
		if _, err := w.Client.BatchV1().Jobs(ns).Create(ctx, newJob("works", "energy", 100, time.Hour), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pod, err := w.Client.CoreV1().Pods("attacker").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "draws", Labels: map[string]string{v1alpha1.LabelTeam: "victims"}},
		Spec:       corev1.PodSpec{NodeName: "node-2", Containers: []corev1.Container{{Name: "c", Image: "simulated"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	webhooks := []string{
		inside.URL, "https://kubernetes.default.svc/api", "http://169.254.169.254/latest/meta-data/",
		"https://localhost:10257/", "secret:key",
	}
	for i, to := range webhooks {
		actions = append(actions, fmt.Sprintf("{at: %d, do: Notify, webhook: '%s'}", 50+i, to))
	}
	budget := fmt.Sprintf(`{apiVersion: kubenergy.io/v1alpha1, kind: EnergyBudget,
		metadata: {name: weapon, namespace: attacker},
		spec: {limits: {energyKWh: 0.000001}, period: {type: Lifetime}, scope: {owners: [Job/works, Pod/draws]},
		actions: [{do: Suspend}, {do: HoldNewWork}, %s]}}`, strings.Join(actions, ", "))
	if err := w.Apply(ctx, []byte(budget), nil); err != nil {
		t.Fatal(err)
	}
	agent := w.Token(t, "kubenergy-agent", w.agentPod(t, "node-2"))
	const used = energy.Microjoules(1000e6)
	b := &batch.Batch{
		Version: batch.Version, Stream: batch.Stream{Node: "node-2", Boot: "boot", Epoch: "epoch"}, First: 1, Last: 1,
		StartSinceBoot: 10 * time.Second, EndSinceBoot: 20 * time.Second, Source: "forged", Quality: energy.Measured,
		IdlePolicy: "apart", Measured: used,
		Shares: []energy.Share{{ID: "pod/" + string(pod.UID), Dynamic: used}},
	}
	b.SetWall(time.Now())
	data, err := batch.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, time.Minute, "the batch is accepted", func() bool {
		status, err := c.post(t, data, agent)
		return err == nil && status == http.StatusOK
	})
	kit.Eventually(t, time.Minute, "the tenant's own Job is suspended", func() bool {
		j, err := w.Client.BatchV1().Jobs("attacker").Get(ctx, "works", metav1.GetOptions{})
		return err == nil && j.Spec.Suspend != nil && *j.Spec.Suspend
	})
	time.Sleep(10 * time.Second) // wait for further evaluations
	other, err := w.Client.BatchV1().Jobs("victim").Get(ctx, "works", metav1.GetOptions{})
	if err != nil || other.Spec.Suspend != nil && *other.Spec.Suspend {
		t.Errorf("Job of another tenant was suspended by the budget: %v, error %v", other.Spec.Suspend, err)
	}
	if hits.Load() > 0 {
		t.Errorf("controller sent %d requests to an internal URL, want none", hits.Load())
	}
	var own v1alpha1.EnergyBudget
	objects, err := dynamic.NewForConfig(w.Config())
	if err != nil {
		t.Fatal(err)
	}
	object, err := objects.Resource(v1alpha1.GroupVersion.WithResource("energybudgets")).Namespace("attacker").
		Get(ctx, "weapon", metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &own)
	}
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for i := range own.Status.Actions {
		if a := &own.Status.Actions[i]; a.Do == v1alpha1.DeedNotify {
			if tried++; a.Done != nil || a.Attempts == 0 {
				t.Errorf("unexpected status of webhook %s: done %v, %d attempts", a.Webhook, a.Done, a.Attempts)
			}
		}
	}
	if tried != len(webhooks) {
		t.Errorf("%d webhooks were attempted, want %d", tried, len(webhooks))
	}
	late, err := w.Client.BatchV1().Jobs("victim").Create(ctx, newJob("later", "energy", 100, time.Minute),
		metav1.CreateOptions{})
	if err != nil || late.Spec.Suspend != nil && *late.Spec.Suspend {
		t.Errorf("new Job of another tenant was suspended by the budget: %v", err)
	}
	var charged ledger.Answer
	if err := c.ask(t, "/api/v1/namespaces/attacker/ledger?from=-1h&groupBy=team", &charged); err != nil {
		t.Fatal(err)
	}
	if charged.Total.Energy() < used {
		t.Errorf("attacker is charged %v, want at least %v", charged.Total.Energy(), used)
	}
	for _, row := range charged.Rows {
		if row.Key[0] != "" {
			t.Errorf("usage of %v by the attacker is charged to team %s", row.Energy(), row.Key[0])
		}
	}
}

// label sets a label of a namespace as an administrator.
func (w *world) label(t *testing.T, namespace, key, value string) {
	t.Helper()
	n, err := w.Client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	if err == nil {
		n.Labels[key] = value
		_, err = w.Client.CoreV1().Namespaces().Update(t.Context(), n, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
