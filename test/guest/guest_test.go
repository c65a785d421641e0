//go:build linux && amd64

package guest

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/power"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
	"github.com/kubenergy/kubenergy/test/kit/guest"
)

const (
	nodeName  = "guest"
	otherUUID = "5ca1ab1e-0000-4000-8000-0000000000ff" // belongs to another machine
	password  = "of-the-test"
)

// world is a control plane with the guest as its only node.
type world struct {
	*cluster.Cluster
	guest   *machine
	patient time.Duration // factor by which timeouts are multiplied
	view    *kube.View
	keys    signal.KeyFolder
}

// TestRealMachineSleeps verifies that the guest is shut down when it is empty and started when a Job waits for it.
func TestRealMachineSleeps(t *testing.T) {
	d := guest.MakeDisk(t, guest.Require(t, "power-real"))
	w := start(t, d)
	boot := w.boot(t)
	daemon := w.runDaemon(t)

	w.staysOn(t, "the UUID of another machine in the configuration", otherUUID, otherUUID)
	w.staysOn(t, "a management controller of another machine", systemUUID, otherUUID)

	begin := time.Now()
	stop := w.sendsToSleep(t, systemUUID, systemUUID, nil)
	w.awaitOff(t, begin)
	job, created := w.submit(t)
	w.awaitDone(t, job, created)
	stop() // otherwise the machine would be shut down again
	w.awaitPod(t, daemon)
	w.checkEnd(t)
	t.Logf("first boot until Ready: %v (%v)", boot, w.guest)
}

// start creates a world with a guest that is off.
func start(t *testing.T, d guest.Disk) *world {
	t.Helper()
	w := &world{Cluster: cluster.Start(t, lab.Options{})}
	ctx := t.Context()
	if err := w.AddKinds(ctx); err != nil {
		t.Fatal(err)
	}
	w.guest = &machine{Machine: guest.New(t, d, w.Dir, guest.Options{
		Name: nodeName, UUID: systemUUID, Kubeconfig: w.GuestKubeconfig(t, nodeName),
	})}
	w.patient = w.guest.Patience()
	// The power values are chosen so that a boot pays off after five seconds of sleep.
	err := w.Apply(ctx, fmt.Appendf(nil, `{apiVersion: v1, kind: Namespace, metadata: {name: %s}}
---
apiVersion: %s
kind: PowerProfile
metadata: {name: guest}
spec: {default: true, idleWatts: 60, maxWatts: 160, sleepWatts: 2, wakeUpJoules: 290, bootSeconds: %d}
`, v1alpha1.SystemNamespace, v1alpha1.GroupVersion, 40*w.patient), nil)
	if err != nil {
		t.Fatal(err)
	}
	var unseen []kube.Unseen
	if w.view, unseen, err = kube.ListView(ctx, w.Config(), "", policy.Defaults{}); err != nil || len(unseen) > 0 {
		t.Fatal(err, unseen)
	}
	stop, err := w.StartScheduler(ctx, lab.Scheduler{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	w.keys = signal.KeyFolder(t.TempDir())
	kit.Write(t, filepath.Join(string(w.keys), "bmc"), password)
	return w
}

func (w *world) node(ctx context.Context) (*corev1.Node, error) {
	return w.Client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
}

// await waits until the guest's node fulfills a condition and returns the time at which this was observed.
func (w *world) await(t *testing.T, within time.Duration, what string, is func(*corev1.Node) bool,
	needs ...*kit.Process,
) time.Time {
	t.Helper()
	kit.Await(t, w.patient*within, what, func(ctx context.Context) (bool, error) {
		n, err := w.node(ctx)
		if err != nil {
			return false, err
		}
		return is(n), fmt.Errorf("labels %v, taints %v, conditions %v", n.Labels, n.Spec.Taints, n.Status.Conditions)
	}, needs...)
	return time.Now()
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func isAsleep(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintAsleep })
}

// boot starts the guest for the first time, allows it to sleep and returns the time until its node was Ready.
func (w *world) boot(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	if err := w.guest.Start(); err != nil {
		t.Fatal(err)
	}
	ready := w.await(t, 2*time.Minute, "the guest's node is Ready", isReady, w.guest.On())
	n, err := w.node(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Status.NodeInfo.SystemUUID; got != systemUUID {
		t.Errorf("system UUID of the node = %s, want %s", got, systemUUID)
	}
	label := fmt.Appendf(nil, `{"metadata": {"labels": {%q: "true"}}}`, v1alpha1.LabelMaySleep)
	if _, err := w.Client.CoreV1().Nodes().Patch(t.Context(), nodeName, types.MergePatchType, label,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	return ready.Sub(begin).Round(time.Second / 10)
}

// podSpec returns the spec of a pod that uses the image of the guest.
func podSpec(args ...string) corev1.PodSpec {
	return corev1.PodSpec{
		NodeSelector:                 map[string]string{corev1.LabelHostname: nodeName},
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []corev1.Container{{
			Name: "burn", Image: guest.Image, ImagePullPolicy: corev1.PullNever, Args: args,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("500m"),
			}},
		}},
	}
}

// runDaemon creates a DaemonSet, which like kube-proxy runs a pod on every node, and returns the selector of its
// pods.
func (w *world) runDaemon(t *testing.T) (selector string) {
	t.Helper()
	labels := map[string]string{"app": "daemon"}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "daemon"}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()}
	d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if _, err := w.Client.AppsV1().DaemonSets("default").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitPod(t, "app=daemon")
	return "app=daemon"
}

// awaitPod waits until the only pod that matches the selector runs and returns the time at which this was observed.
func (w *world) awaitPod(t *testing.T, selector string) time.Time {
	t.Helper()
	kit.Await(t, w.patient*time.Minute, "the pod with "+selector+" runs", func(ctx context.Context) (bool, error) {
		pods, err := w.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return false, err
		}
		running := slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		return running, fmt.Errorf("pods: %v", pods.Items)
	})
	return time.Now()
}

// sendsToSleep runs the sleep controller until stop is called or the test ends. configured is the UUID in the
// configuration, and description is the UUID that the management controller reports.
func (w *world) sendsToSleep(t *testing.T, configured, description string, record func(*sleep.Snapshot, *sleep.Plan),
) (stop func()) {
	t.Helper()
	service := lab.Redfish(map[string]lab.System{nodeName: w.guest.system(description)})
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if user, given, _ := r.BasicAuth(); user != "admin" || given != password {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		service.ServeHTTP(rw, r)
	}))
	caFile := kit.Write(t, filepath.Join(t.TempDir(), "ca.pem"), pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		err := power.Run(ctx, power.Options{
			Client: w.Client, View: func() *kube.View { return w.view }, Mode: power.ModeEnforce,
			Machines: []power.Machine{{
				Node: nodeName, UUID: configured, Kind: power.KindRedfish, URL: server.URL, CAFile: caFile,
				Username: "admin", PasswordKey: "bmc",
			}},
			Policy:   sleep.Policy{After: 5 * time.Second, MaxCycles: 12, Lead: 30 * time.Second},
			Identity: t.Name(), Keys: w.keys, Loopback: true, Record: record,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		if err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		server.Close()
	})
	t.Cleanup(stop)
	return stop
}

// staysOn verifies that a machine is not shut down if its identity is uncertain.
func (w *world) staysOn(t *testing.T, why, configured, description string) {
	t.Helper()
	const watched = 30 * time.Second // with the right UUID, the shutdown happens after half of this time
	var mu sync.Mutex
	kept := map[string]bool{}
	stop := w.sendsToSleep(t, configured, description, func(s *sleep.Snapshot, _ *sleep.Plan) {
		mu.Lock()
		defer mu.Unlock()
		for i := range s.Machines {
			kept[s.Machines[i].Keep] = true
		}
	})
	time.Sleep(watched)
	stop()
	n, err := w.node(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if asked := w.guest.requests(); len(asked) > 0 || isAsleep(n) || w.guest.On() == nil {
		t.Errorf("with %s: unexpected requests %v or taints %v", why, asked, n.Spec.Taints)
	}
	delete(kept, "")
	if len(kept) == 0 {
		t.Errorf("with %s: no reason recorded for keeping the machine on", why)
	}
	t.Logf("with %s: machine was kept on: %v", why, kept)
}

// awaitOff waits until the guest is off. The guest has been empty since begin.
func (w *world) awaitOff(t *testing.T, begin time.Time) {
	t.Helper()
	on := w.guest.On()
	tainted := w.await(t, time.Minute, "the node has the sleep taint", isAsleep)
	kit.Eventually(t, w.patient*2*time.Minute, "the machine is off", on.Ended)
	off := time.Now()
	if code := on.Cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("QEMU exited: %v", on.Cmd.ProcessState)
	}
	w.await(t, 2*time.Minute, "the node is asleep and not Ready", func(n *corev1.Node) bool {
		return !isReady(n) && isAsleep(n) && n.Labels[v1alpha1.LabelPowerState] == string(sleep.Asleep)
	})
	ordered := w.guest.when("GracefulShutdown")
	t.Logf("figures, %v: time from empty to off %.1f s: taint after %.1f s, request after %.1f s, off after %.1f s", w.guest,
		off.Sub(begin).Seconds(), tainted.Sub(begin).Seconds(), ordered.Sub(tainted).Seconds(),
		off.Sub(ordered).Seconds())
}

const jobSelector = batchv1.JobNameLabel + "=work"

// submit creates a Job that only fits on the guest and waits until kube-scheduler reports its pod as unschedulable.
func (w *world) submit(t *testing.T) (job *batchv1.Job, created time.Time) {
	t.Helper()
	job = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "work"}}
	job.Spec.BackoffLimit, job.Spec.Template.Spec = new(int32(0)), podSpec("1", "5s")
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	created = time.Now()
	job, err := w.Client.BatchV1().Jobs("default").Create(t.Context(), job, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kit.Await(t, time.Minute, "the pod of the Job is unschedulable", func(ctx context.Context) (bool, error) {
		pods, err := w.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: jobSelector})
		if err != nil || len(pods.Items) != 1 {
			return false, errors.Join(err, fmt.Errorf("%d pods", len(pods.Items)))
		}
		p := &pods.Items[0]
		return p.Status.Phase == corev1.PodPending && p.Spec.NodeName == "" &&
			policy.Scheduled(p).Reason == corev1.PodReasonUnschedulable, fmt.Errorf("%v", p.Status)
	})
	return job, created
}

// awaitDone waits until the guest is on and the Job has completed on it.
func (w *world) awaitDone(t *testing.T, job *batchv1.Job, created time.Time) {
	t.Helper()
	kit.Eventually(t, time.Minute, "the machine is on", func() bool { return w.guest.On() != nil })
	ready := w.await(t, 2*time.Minute, "the node is Ready", isReady, w.guest.On())
	free := w.await(t, time.Minute, "the sleep taint is removed", func(n *corev1.Node) bool {
		return !isAsleep(n) && n.Labels[v1alpha1.LabelPowerState] == ""
	})
	running := w.awaitPod(t, jobSelector)
	kit.Await(t, w.patient*time.Minute, "the Job is complete", func(ctx context.Context) (bool, error) {
		j, err := w.Client.BatchV1().Jobs("default").Get(ctx, job.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if j.Status.Failed > 0 {
			t.Fatalf("Job failed: %v", j.Status)
		}
		return j.Status.Succeeded == 1, fmt.Errorf("%v", j.Status)
	})
	on := w.guest.when("On")
	t.Logf("figures, %v: Job to power on %.1f s, power on to Ready %.1f s, Ready to removed taint %.1f s, "+
		"Job to running pod %.1f s", w.guest, on.Sub(created).Seconds(), ready.Sub(on).Seconds(),
		free.Sub(ready).Seconds(), running.Sub(created).Seconds())
}

// checkEnd verifies that the machine has not received any other request and that no pod was evicted.
func (w *world) checkEnd(t *testing.T) {
	t.Helper()
	var kinds []string
	for _, r := range w.guest.requests() {
		kinds = append(kinds, r.kind)
	}
	// A request to wake up the machine may be repeated.
	if kinds = slices.Compact(kinds); !slices.Equal(kinds, []string{"GracefulShutdown", "On"}) {
		t.Errorf("received reset requests %v, want GracefulShutdown and On", kinds)
	}
	events, err := w.Client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range events.Items {
		e := &events.Items[i] // the reason alone does not suffice, because it is also used for canceled evictions
		if strings.HasPrefix(e.Message, "Marking for deletion") || e.Reason == "Preempted" {
			t.Errorf("%s %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}
