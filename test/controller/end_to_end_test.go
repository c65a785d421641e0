package controller

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

// strategies lists the strategies that are compared. Each one has a namespace of the same name.
var strategies = []string{"exec", "energy", "carbon"}

// TestEndToEnd covers the complete loop. A trace is submitted as Jobs, and some of them are held. The pods are
// placed based on live power, their energy is recorded in the ledger, and a report distinguishes the strategies.
// The recorded energy must match the metered energy to the microjoule. Finally, all meters are stopped, and every
// pod must still be bound.
func TestEndToEnd(t *testing.T) {
	w := shared
	// Otherwise the energy used before the agents started would be estimated, but the agents do not report it.
	c := w.controller(t, nil, "--agentless=false")
	// Clients trust the API through the ConfigMap in their namespace.
	c.caFile = filepath.Join(t.TempDir(), "ca.crt")
	for _, namespace := range []string{v1alpha1.SystemNamespace, cluster.AgentNamespace} {
		kit.Eventually(t, time.Minute, "the ConfigMap with the certificate authority exists in "+namespace,
			func() bool {
				m, err := w.Client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "kubenergy-ca", metav1.GetOptions{})
				own, _ := os.ReadFile(filepath.Join(c.state, "api.crt"))
				return err == nil && strings.Contains(m.Data["ca.crt"], string(own)) &&
					os.WriteFile(c.caFile, []byte(m.Data["ca.crt"]), 0o600) == nil
			})
	}
	w.scheduler(t, c)
	agents, stopMeters := w.agents(t, c)
	kit.Eventually(t, time.Minute, "all nodes have live power", func() bool {
		var power api.NodesPower
		return c.ask(t, "/api/v1/nodes/power", &power) == nil && len(power.Nodes) == 6
	})
	began := time.Now()
	held := w.replay(t, "testdata/trace.csv")
	if held == 0 {
		t.Error("expected at least one held Job")
	}
	stopMeters()
	metered := agents.measured()

	everything := url.Values{
		"from": {began.Add(-time.Hour).UTC().Format(time.RFC3339)},
		"to":   {time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
	}
	answer := func(groupBy string) (a ledger.Answer) {
		t.Helper()
		q := url.Values{"groupBy": {groupBy}, "from": everything["from"], "to": everything["to"]}
		if err := c.ask(t, "/api/v1/ledger?"+q.Encode(), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	balances(t, metered, answer("node"), answer("kind"))
	used := map[string]energy.Microjoules{}
	for _, row := range answer("strategy").Rows {
		used[row.Key[0]] = row.Energy()
	}
	for _, s := range strategies {
		if used[s] <= 0 {
			t.Errorf("ledger contains no energy for strategy %s: %v", s, used)
		}
	}
	var decisions struct{ Decisions []ledger.Record }
	if err := c.ask(t, "/api/v1/decisions?limit=1000&"+everything.Encode(), &decisions); err != nil {
		t.Fatal(err)
	}
	placed := map[string]int{}
	for i := range decisions.Decisions {
		if d := &decisions.Decisions[i]; d.Action == "place" {
			placed[d.Strategy]++
		}
	}
	t.Logf("held %d Jobs; placed by strategy: %v; energy by strategy: %v", held, placed, used)
	for _, s := range strategies {
		if placed[s] == 0 {
			t.Errorf("no recorded decision of strategy %s", s)
		}
	}
	w.report(t, c)
	w.bindsWithoutMeters(t, c)
}

// balances checks that the recorded energy, by node and by kind of account, equals the energy metered by the
// agents.
func balances(t *testing.T, metered map[string]energy.Microjoules, byNode, byKind ledger.Answer) {
	t.Helper()
	var all energy.Microjoules
	booked := map[string]energy.Microjoules{}
	for _, row := range byNode.Rows {
		booked[row.Key[0]] = row.Energy()
	}
	for node, want := range metered {
		all += want
		if booked[node] != want {
			t.Errorf("node %s used %d µJ, recorded %d µJ", node, want, booked[node])
		}
	}
	var sum energy.Microjoules
	kinds := map[string]energy.Microjoules{}
	for _, row := range byKind.Rows {
		kinds[row.Key[0]] = row.Energy()
		sum += row.Energy()
	}
	if sum != all || byKind.Total.Energy() != all {
		t.Errorf("sum of pods, idle, platform and unknown is %d µJ, total is %d µJ, want the %d µJ of the nodes: %v",
			sum,
			byKind.Total.Energy(), all, kinds)
	}
	if byKind.Total.Estimated != all {
		t.Errorf("%d of %d µJ are marked as estimated, want all, because simulated nodes have no meter",
			byKind.Total.Estimated, all)
	}
	t.Logf("metered and recorded %d µJ; by kind: %v", all, kinds)
}

// replay submits a trace once for each strategy, waits until all Jobs are finished and returns the number of held
// Jobs.
func (w *world) replay(t *testing.T, path string) (held int) {
	t.Helper()
	trace, err := workload.Load(path, "csv", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range strategies {
		w.Namespace(t, s, enforced)
	}
	for _, j := range trace.Jobs {
		time.Sleep(time.Until(j.Submitted))
		for _, s := range strategies {
			job := newJob(strings.ToLower(s+"-"+j.ID), s, j.Request.MilliCPU, j.Duration)
			if j.AllowedDelay > 0 {
				// No site reaches this threshold, so the Job is held until its latest start.
				job.Annotations[v1alpha1.AnnotationAllowedDelay],
					job.Annotations[v1alpha1.AnnotationCarbonThreshold] = j.AllowedDelay.String(), "10"
			}
			created, err := w.Client.BatchV1().Jobs(s).Create(t.Context(), job, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if created.Labels[v1alpha1.LabelHeld] == "true" {
				held++
			}
		}
	}
	kit.Eventually(t, 3*time.Minute, "all Jobs are finished", func() bool {
		for _, s := range strategies {
			all, err := w.Client.BatchV1().Jobs(s).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(all.Items) != len(trace.Jobs) {
				return false
			}
			for i := range all.Items {
				if all.Items[i].Status.Succeeded == 0 {
					return false
				}
			}
		}
		return true
	})
	return held
}

// enforced contains the labels of a namespace in which Jobs can be held.
var enforced = map[string]string{v1alpha1.LabelMode: "enforce"}

func newJob(name, strategy string, milliCPU int64, d time.Duration) *batchv1.Job {
	marks := func() map[string]string {
		return map[string]string{v1alpha1.AnnotationStrategy: strategy, v1alpha1.AnnotationExpectedDuration: d.String()}
	}
	pod := marks()
	pod[v1alpha1.AnnotationLabRunSeconds] = lab.RunSeconds(d)
	requests := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(milliCPU, resource.DecimalSI),
		corev1.ResourceMemory: resource.MustParse("256Mi"),
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: marks()},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: pod},
				Spec: corev1.PodSpec{
					SchedulerName: policy.SchedulerName, RestartPolicy: corev1.RestartPolicyNever,
					TerminationGracePeriodSeconds: new(int64),
					Containers: []corev1.Container{{
						Name: "job", Image: "simulated", Resources: corev1.ResourceRequirements{Requests: requests},
					}},
				},
			},
		},
	}
}

// report runs kubenergy report and checks its output.
func (w *world) report(t *testing.T, c *controllerProcess) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(c.token), 0o600); err != nil {
		t.Fatal(err)
	}
	out := w.kubenergy(t, "report", "--server="+c.url, "--token-file="+token, "--ca-file="+c.caFile, "--from=-1h",
		"--group-by=strategy", "-o", "table")
	for _, s := range strategies {
		if !strings.Contains(out, s) {
			t.Errorf("report does not contain strategy %s", s)
		}
	}
	if !strings.Contains(out, "estimated") {
		t.Error("report does not state that its values are estimated")
	}
	t.Logf("kubenergy report:\n%s", out)
	t.Logf("kubenergy top nodes:\n%s", w.kubenergy(t, "top", "nodes", "--server="+c.url, "--token-file="+token,
		"--ca-file="+c.caFile))
}

func (w *world) kubenergy(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), kit.Build(t, "./cmd/kubenergy"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubenergy %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// bindsWithoutMeters verifies that pods with a strategy based on live power are bound if no live power is
// available.
func (w *world) bindsWithoutMeters(t *testing.T, c *controllerProcess) {
	t.Helper()
	const stale = 45 * time.Second
	var power api.NodesPower
	kit.Eventually(t, 2*stale, "the last live power values are stale", func() bool {
		if err := c.ask(t, "/api/v1/nodes/power", &power); err != nil {
			return false
		}
		for _, n := range power.Nodes {
			if time.Since(n.AsOf) < stale {
				return false
			}
		}
		return true
	})
	w.Namespace(t, "dark", enforced)
	const count = 20
	for i := range count {
		job := newJob(fmt.Sprintf("dark-%d", i), "exec", 500, time.Minute)
		if _, err := w.Client.BatchV1().Jobs("dark").Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	kit.Eventually(t, 30*time.Second, "every pod is bound without live power",
		func() bool { return w.bound(t.Context(), "dark") == count })
}

func (w *world) bound(ctx context.Context, namespace string) (n int) {
	pods, err := w.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != "" {
			n++
		}
	}
	return n
}
