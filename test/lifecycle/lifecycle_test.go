package lifecycle

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestLifecycle consists of consecutive parts. Each part continues with the state of the previous one.
func TestLifecycle(t *testing.T) {
	if testing.Short() {
		t.Skip("builds every binary and starts a control plane")
	}
	w := &world{dir: build(t)}
	w.shell = newShell(t, w.dir)
	cleanest := writeGrid(t, w.dir, time.Now())
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a cluster without KubEnergy", w.start},
		{"helm install", w.install},
		{"shadow mode by default", w.shadow},
		{"a viewer", w.viewer},
		{"helm upgrade to a grid with windows", w.upgrade},
		{"enforce in one namespace", func(t *testing.T) { w.enforce(t, cleanest) }},
		{"run now", w.runNow},
		{"shadow and back", w.switchModes},
		{"break glass", w.breakGlass},
		{"upgrade after that", w.recover},
		{"helm uninstall", w.uninstall},
		{"workloads of a removed scheduler", w.stranded},
		{"removing the kinds", w.removeKinds},
		{"without Helm", w.withoutHelm},
		{"stop", w.stop},
	} {
		if !t.Run(part.name, part.run) {
			t.FailNow() // the following parts depend on this one
		}
	}
}

func (w *world) start(t *testing.T) {
	w.shell.run(t, "bin/kubenergy-lab up --stock &")
	w.shell.run(t, "lab=$!")
	w.shell.run(t, `eval "$(bin/kubenergy-lab env --wait 5m)"`)
	w.connect(t)
	w.shell.say(t, "kubectl get nodes -L topology.kubernetes.io/region", "eu-central-1", "Ready")
}

func (w *world) install(t *testing.T) {
	w.shell.say(t, "helm install kubenergy charts/kubenergy --namespace kubenergy-system --create-namespace --set "+
		"zone=DE,ledger.persistence.enabled=false --wait", "STATUS: deployed")
	for name, replicas := range map[string]int32{"kubenergy-scheduler": 2, "kubenergy-controller": 1} {
		d, err := w.client.AppsV1().Deployments(v1alpha1.SystemNamespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d.Status.ReadyReplicas != replicas {
			t.Errorf("%s has %d ready replicas, want %d", name, d.Status.ReadyReplicas, replicas)
		}
	}
	pods, err := w.client.CoreV1().Pods(v1alpha1.SystemNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		for _, s := range pods.Items[i].Status.ContainerStatuses {
			if s.RestartCount > 0 {
				t.Errorf("pod %s was restarted %d times", pods.Items[i].Name, s.RestartCount)
			}
		}
	}
	w.zoneIsReady(t, "typical")
	zone := w.zone(t)
	if c := zone.Status.Carbon; c.Quality != "estimated" || c.ForecastSource == "" ||
		time.Duration(len(c.Values))*c.Step.Duration < 23*time.Hour {
		t.Errorf("unexpected carbon status of the zone: quality %s, forecast source %q, %d values of %v",
			c.Quality, c.ForecastSource,
			len(c.Values), c.Step.Duration)
	}
	w.shell.say(t, "kubenergy doctor", "Works")
	w.shell.say(t, "kubectl get gridzones,energypolicies -A", "gridzone.kubenergy.io/default",
		"energypolicy.kubenergy.io/default")
}

func (w *world) zoneIsReady(t *testing.T, source string) {
	t.Helper()
	w.eventually(t, 30*time.Second, "the GridZone is Ready from "+source, func() bool {
		zone := w.zone(t)
		for _, c := range zone.Status.Conditions {
			if c.Type == "Ready" {
				return c.Status == metav1.ConditionTrue && zone.Status.Carbon.Source == source
			}
		}
		return false
	})
}

// shadow verifies that a Job in a namespace that has not opted in is counted but not modified.
func (w *world) shadow(t *testing.T) {
	if mode := w.policy(t).Spec.Mode; mode != "shadow" {
		t.Fatalf("mode of the cluster-wide policy is %q, want shadow", mode)
	}
	w.startsAtOnce(t, "default", "in-shadow")
	w.eventually(t, 30*time.Second, "the cluster-wide policy counts the Job", func() bool {
		shadow := w.policy(t).Status.Shadow
		return shadow != nil && shadow.Decided == 1
	})
}

// viewer runs commands as a user who can view one namespace, using the default access through the API server.
func (w *world) viewer(t *testing.T) {
	w.shell.say(t, "kubenergy doctor", "the controller is available")
	w.shell.run(t, "kubenergy report --from=-1h --group-by=node")
	w.shell.run(t, "kubectl create namespace viewed")
	w.shell.run(t, "kubectl create rolebinding jane -n viewed --clusterrole=view --user=jane")
	config, err := clientcmd.LoadFromFile(filepath.Join(w.dir, "out/lab/cluster/kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate, user.ImpersonateGroups = "jane", []string{"system:authenticated"}
	}
	if err := clientcmd.WriteToFile(*config, filepath.Join(w.dir, "jane")); err != nil {
		t.Fatal(err)
	}
	const report = "kubenergy report --from=-1h --kubeconfig jane "
	refused := func(command, want string) {
		t.Helper()
		if output, code := w.shell.try(command); code == 0 || !strings.Contains(output, want) {
			t.Errorf("%s: exit code %d: %s; want %q", command, code, output, want)
		}
	}
	refused(report+"-n viewed", "create an account kubenergy-viewer in your own namespace")
	commands := commandsOf(t, filepath.Join(kit.Root, "docs/reference/reports.md"), "## Who may see what")
	for _, beginning := range []string{
		"kubectl create serviceaccount", "kubectl create rolebinding", "kubectl create rolebinding kubenergy-view-token",
	} {
		w.shell.run(t, strings.ReplaceAll(commands.next(t, beginning), "team-a", "viewed"))
	}
	commands.end(t)
	w.eventually(t, 20*time.Second, "jane can access the usage of her namespace", func() bool {
		_, code := w.shell.try(report + "-n viewed")
		return code == 0
	})
	refused(report+"-n default", "you are not allowed to create a token")
	w.shell.run(t, "kubectl config set-context --current --namespace=viewed --kubeconfig jane")
	refused("kubenergy top nodes --kubeconfig jane", "the controller denied the request")
	refused(report+"--group-by=node", "the controller denied the request")
	w.shell.run(t, "kubectl delete namespace viewed --timeout=60s") // contains an account of the user
}

// startsAtOnce submits a Job with an allowed delay and verifies that it is never suspended.
func (w *world) startsAtOnce(t *testing.T, namespace, name string) {
	t.Helper()
	if created := w.submit(t, namespace, name, "2h", ""); suspended(created) ||
		len(created.Labels[v1alpha1.LabelHeld]) > 0 {
		t.Errorf("Job %s was created suspended: %v", name, created.Labels)
	}
	w.eventually(t, 30*time.Second, name+" is done", func() bool { return complete(w.job(t, namespace, name)) })
	for key := range w.job(t, namespace, name).Annotations {
		if key != v1alpha1.AnnotationAllowedDelay && key != v1alpha1.AnnotationExpectedDuration &&
			key != v1alpha1.AnnotationStrategy && strings.HasPrefix(key, "kubenergy.io/") {
			t.Errorf("Job %s has the unexpected annotation %s", name, key)
		}
	}
}

// upgrade provides the controller with a data file and configures the zone to use it.
func (w *world) upgrade(t *testing.T) {
	w.shell.run(t, "kubectl -n kubenergy-system create configmap grid --from-file=grid.csv")
	w.shell.say(t, "helm upgrade kubenergy charts/kubenergy --namespace kubenergy-system --values values.yaml --wait",
		"STATUS: deployed")
	w.zoneIsReady(t, "file")
	w.startsAtOnce(t, "default", "in-shadow-again")
	w.eventually(t, 30*time.Second, "the cluster-wide policy counts a Job that would have been held", func() bool {
		shadow := w.policy(t).Status.Shadow
		return shadow != nil && shadow.Held == 1 && shadow.SavedGrams > 0
	})
}

// enforce verifies that Jobs and Jobs of CronJobs in one namespace are held and released at the start of their
// windows.
func (w *world) enforce(t *testing.T, cleanest time.Time) {
	machine := kit.WatchMachine(t)
	w.shell.run(t, "kubectl create namespace team-a")
	w.shell.run(t, "kubectl label namespace team-a kubenergy.io/mode=enforce")
	w.admits(t)
	w.shell.run(t, "kubectl apply -n team-a -f examples/job.yaml -f examples/cronjob.yaml -f examples/threshold-job.yaml")
	// Runs must not overlap. In the hour before 22:00, no run could be delayed, so the schedule is changed.
	w.shell.run(t, fmt.Sprintf(`kubectl patch cronjob backup -n team-a -p '{"spec":{"schedule":"0 %d * * *"}}'`,
		(time.Now().UTC().Hour()+12)%24))
	w.submitCron(t, "hourly", "2h")
	if got := w.heldUntil(t, "nightly-report"); got.Before(cleanest) {
		t.Errorf("nightly-report is held until %v, want a time in the cleanest hours starting at %v", got, cleanest)
	}
	w.eventually(t, time.Minute, "the Job has the condition Suspended", func() bool {
		return slices.ContainsFunc(w.job(t, team, "nightly-report").Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionTrue
		})
	})
	w.shell.say(t, "kubectl get jobs -n team-a -L kubenergy.io/held", "Suspended", "true")
	for _, name := range []string{"reindex", "nightly-report"} {
		w.heldUntil(t, name)
		annotations := w.job(t, team, name).Annotations
		w.shell.say(t, "kubenergy explain job "+name+" -n team-a",
			humanize.Plain("held until "+annotations[v1alpha1.AnnotationHeldUntil], time.Now()),
			"Reason: held until ", "namespace label", "Latest start")
	}
	w.shell.say(t, "kubenergy forecast --zone default", "gCO2e/kWh")

	w.shell.run(t, "kubectl create job backup-today -n team-a --from=cronjob/backup")
	w.heldUntil(t, "backup-today")

	window := beforeWindow()
	w.submit(t, team, "soon", "5m", "kubenergy")
	w.submit(t, team, "unmarked", "", "kubenergy")
	if got := w.heldUntil(t, "soon"); !got.Equal(window) {
		t.Errorf("soon is held until %v, want %v", got, window)
	}
	if unmarked := w.job(t, team, "unmarked"); suspended(unmarked) {
		t.Error("Job without an allowed delay is suspended")
	}
	w.eventually(t, 75*time.Second, "a Job of the CronJob is held", func() bool {
		for _, job := range w.ownedBy(t, "hourly") {
			if held(&job) {
				return true
			}
		}
		return false
	})
	w.eventually(t, cycle, "soon is released at the start of its window",
		func() bool { return !suspended(w.job(t, team, "soon")) })
	// The Job is released slightly early to compensate for the start latency of released Jobs.
	switch late := time.Since(window); {
	case late < -10*time.Second:
		t.Errorf("Job was released %v before its window", -late)
	case late > 10*time.Second:
		machine.TooSlow("Job was released %v after the start of its window", late)
	}
	w.eventually(t, 30*time.Second, "soon is done", func() bool { return complete(w.job(t, team, "soon")) })
	w.wasScheduledBy(t, "soon", "kubenergy")
	if !suspended(w.job(t, team, "nightly-report")) {
		t.Error("nightly-report was released together with another Job")
	}
}

func (w *world) wasScheduledBy(t *testing.T, job, scheduler string) {
	t.Helper()
	pods, err := w.client.CoreV1().Pods(team).List(t.Context(), metav1.ListOptions{LabelSelector: "job-name=" + job})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("got %d pods, error %v, want one pod", len(pods.Items), err)
	}
	events, err := w.client.CoreV1().Events(team).List(t.Context(),
		metav1.ListOptions{FieldSelector: "reason=Scheduled,involvedObject.name=" + pods.Items[0].Name})
	if err != nil || len(events.Items) == 0 {
		t.Fatalf("no Scheduled event found for pod %s: %v", pods.Items[0].Name, err)
	}
	if e := events.Items[0]; e.ReportingController != scheduler && e.Source.Component != scheduler {
		t.Errorf("pod %s was scheduled by %q", pods.Items[0].Name, e.ReportingController+e.Source.Component)
	}
}

func (w *world) runNow(t *testing.T) {
	w.shell.run(t, "kubenergy run-now job reindex -n team-a")
	w.eventually(t, 10*time.Second, "reindex runs", func() bool {
		job := w.job(t, team, "reindex")
		return !suspended(job) && job.Labels[v1alpha1.LabelHeld] == "" &&
			job.Annotations[v1alpha1.AnnotationReleasedAt] != "" && job.Status.Active == 1
	})
	w.barePods(t)
}

// barePods holds two pods without an owner and verifies that they are bound after a request to run now and after
// the allowed delay, respectively.
func (w *world) barePods(t *testing.T) {
	pods := w.client.CoreV1().Pods(team)
	for name, delay := range map[string]string{"told": "1h", "due": "15s"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
				v1alpha1.AnnotationAllowedDelay: delay, v1alpha1.AnnotationCarbonThreshold: "10",
			}},
			Spec: corev1.PodSpec{
				SchedulerName: "kubenergy", Containers: []corev1.Container{{Name: "c", Image: "busybox"}},
			},
		}
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	bound := func(name string) bool {
		pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName != ""
	}
	w.eventually(t, 10*time.Second, "the pod has a condition for being held", func() bool {
		pod, err := pods.Get(t.Context(), "told", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Reason == corev1.PodReasonSchedulingGated
		})
	})
	if bound("told") {
		t.Error("the pod was not held")
	}
	w.shell.run(t, "kubenergy run-now pod told -n team-a")
	w.eventually(t, 10*time.Second, "the pod is bound after the request to run now",
		func() bool { return bound("told") })
	w.eventually(t, 20*time.Second, "the pod is bound after its allowed delay", func() bool { return bound("due") })
}

// switchModes verifies that switching to shadow mode releases all Jobs and holds no new ones, and that Jobs are
// held again after switching back.
func (w *world) switchModes(t *testing.T) {
	w.submit(t, team, "before-shadow", "2h", "")
	w.heldUntil(t, "before-shadow")
	w.shell.run(t, "kubectl label namespace team-a kubenergy.io/mode=shadow --overwrite")
	w.eventually(t, 10*time.Second, "no Job is held", func() bool { return len(w.heldJobs(t)) == 0 })
	w.eventually(t, 30*time.Second, "before-shadow is done",
		func() bool { return complete(w.job(t, team, "before-shadow")) })
	w.startsAtOnce(t, team, "under-shadow")
	w.shell.run(t, "kubectl label namespace team-a kubenergy.io/mode=enforce --overwrite")
	w.admits(t)
	w.submit(t, team, "after-shadow", "2h", "")
	w.heldUntil(t, "after-shadow")
}

// admits waits until new Jobs in the namespace are held. The API server and the scheduler receive the new label
// after a short delay, and the scheduler would immediately release Jobs that it considers to be in shadow mode.
func (w *world) admits(t *testing.T) {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: batchv1.JobSpec{Template: pods("")}}
	job.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "2h"}
	w.eventually(t, 5*time.Second, "new Jobs are held", func() bool {
		got, err := w.client.BatchV1().Jobs(team).Create(t.Context(), job,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && suspended(got)
	})
	time.Sleep(time.Second)
}

// heldJobs returns the names of Jobs that are suspended or have the label for held Jobs.
func (w *world) heldJobs(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, job := range w.jobs(t) {
		if suspended(&job) || job.Labels[v1alpha1.LabelHeld] != "" {
			names = append(names, job.Namespace+"/"+job.Name)
		}
	}
	return names
}

// breakGlass kills all KubEnergy processes and follows the documented recovery steps.
func (w *world) breakGlass(t *testing.T) {
	w.submit(t, team, "stuck", "2h", "")
	w.heldUntil(t, "stuck")
	for pid := range w.ours(t) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have exited
	}
	w.shell.run(t, "kubectl -n kubenergy-system scale deployment --all --replicas=0")
	w.shell.run(t, "kubectl -n kubenergy-system delete pods --all --force --grace-period=0")
	w.eventually(t, 30*time.Second, "all KubEnergy processes have exited", func() bool {
		pods, err := w.client.CoreV1().Pods(v1alpha1.SystemNamespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0 && len(w.ours(t)) == 0
	})
	created := w.submit(t, team, "stuck-as-well", "2h", "")
	if !suspended(created) {
		t.Error("admission policy does not suspend Jobs while no KubEnergy process is running")
	}
	waiting := w.heldJobs(t)
	if len(waiting) < 3 {
		t.Fatalf("only the Jobs %q are held, want at least 3", waiting)
	}
	document := commandsOf(t, filepath.Join(kit.Root, "deploy/hold/README.md"),
		"## Break glass: release Jobs without KubEnergy")
	for _, command := range document.commands {
		if strings.HasPrefix(command, "kubenergy ") {
			continue // shortcut for the other commands; kubectl must suffice
		}
		w.shell.run(t, command)
	}
	w.eventually(t, 60*time.Second, fmt.Sprintf("%d held Jobs are running", len(waiting)), func() bool {
		for _, name := range waiting {
			namespace, name, _ := strings.Cut(name, "/")
			if job := w.job(t, namespace, name); suspended(job) || job.Labels[v1alpha1.LabelHeld] != "" ||
				job.Status.StartTime == nil {
				return false
			}
		}
		return complete(w.job(t, team, "stuck")) && complete(w.job(t, team, "stuck-as-well"))
	})
	w.startsAtOnce(t, team, "after-the-glass-was-broken")
}

// recover reinstalls the components that the break-glass steps removed.
func (w *world) recover(t *testing.T) {
	w.shell.say(t, "helm upgrade kubenergy charts/kubenergy --namespace kubenergy-system --values values.yaml --wait",
		"STATUS: deployed")
	w.admits(t)
	w.submit(t, team, "again", "2h", "kubenergy")
	w.heldUntil(t, "again")
	w.shell.say(t, "kubenergy doctor", "Works")
}

func (w *world) uninstall(t *testing.T) {
	waiting := w.heldJobs(t)
	if len(waiting) == 0 {
		t.Fatal("no Job is held before the uninstallation")
	}
	w.submit(t, team, "last", "2h", "")
	w.heldUntil(t, "last")
	w.shell.say(t, "helm uninstall kubenergy --namespace kubenergy-system", "uninstalled")
	if left := w.heldJobs(t); len(left) > 0 {
		t.Errorf("Jobs are still held after the uninstallation: %q", left)
	}
	w.eventually(t, 30*time.Second, "last is done", func() bool { return complete(w.job(t, team, "last")) })
	w.startsAtOnce(t, team, "after-uninstall")
	w.eventually(t, 60*time.Second, "all KubEnergy pods and processes are removed", func() bool {
		pods, err := w.client.CoreV1().Pods(v1alpha1.SystemNamespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0 && len(w.ours(t)) == 0
	})
	w.nothingOfOursIsLeft(t)
	// The label of the namespace was set by its owner.
	w.shell.run(t, "kubectl label namespace team-a kubenergy.io/mode-")
}

// stranded creates workloads with the schedulerName of the uninstalled scheduler. kubenergy doctor must report
// them, and the commands that it suggests must fix them.
func (w *world) stranded(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "stranded", Namespace: team}
	w.submit(t, team, meta.Name, "", "kubenergy")
	pod := pods("kubenergy")
	bare := &corev1.Pod{ObjectMeta: meta, Spec: pod.Spec}
	bare.Annotations = pod.Annotations
	web := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: pod,
	}}
	web.Spec.Template.Labels, web.Spec.Template.Spec.RestartPolicy = map[string]string{"app": "web"}, "Always"
	cron := &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
		Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pod}},
	}}
	_, errPod := w.client.CoreV1().Pods(team).Create(t.Context(), bare, metav1.CreateOptions{})
	_, errWeb := w.client.AppsV1().Deployments(team).Create(t.Context(), web, metav1.CreateOptions{})
	_, errCron := w.client.BatchV1().CronJobs(team).Create(t.Context(), cron, metav1.CreateOptions{})
	if err := errors.Join(errPod, errWeb, errCron); err != nil {
		t.Fatal(err)
	}
	output, mends := "", 0
	w.eventually(t, 60*time.Second, "kubenergy doctor reports the expired Leases", func() bool {
		code := 0
		output, code = w.shell.try("kubenergy doctor")
		return code == 1
	})
	for line := range strings.Lines(output) {
		if _, command, ok := strings.Cut(line, "→ "+"kubectl -n "+team); ok {
			w.shell.run(t, "kubectl -n "+team+command)
			mends++
		}
	}
	if mends != 4 {
		t.Fatalf("kubenergy doctor suggested %d commands, want 4:\n%s", mends, output)
	}
	w.eventually(t, 60*time.Second, "the Job and the pod are done", func() bool {
		pod, err := w.client.CoreV1().Pods(team).Get(t.Context(), meta.Name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodSucceeded && complete(w.job(t, team, meta.Name))
	})
	if output, _ := w.shell.try("kubenergy doctor"); !strings.Contains(output, "but there are none") {
		t.Errorf("kubenergy doctor still reports a problem:\n%s", output)
	}
}

// removeKinds deletes the remaining objects and verifies that no finalizer blocks the deletion of the CRDs and the
// namespace.
func (w *world) removeKinds(t *testing.T) {
	w.shell.run(t, "kubectl delete -f charts/kubenergy/crds --timeout=60s")
	w.shell.run(t, "kubectl delete namespace kubenergy-system --timeout=60s")
}

// withoutHelm installs and removes KubEnergy with manifests, as documented in deploy/hold/README.md.
func (w *world) withoutHelm(t *testing.T) {
	document := filepath.Join(kit.Root, "deploy/hold/README.md")
	for _, command := range commandsOf(t, document, "## Install without Helm").commands {
		w.shell.run(t, command)
	}
	w.shell.run(t, "kubectl label namespace team-a kubenergy.io/mode=enforce")
	w.admits(t)
	for _, command := range commandsOf(t, document, "## Remove").commands {
		w.shell.run(t, command)
	}
	w.startsAtOnce(t, team, "after-removal")
	w.shell.run(t, "kubectl delete -f deploy/kubenergy.yaml --timeout=60s")
}

// stop terminates the lab and verifies that no processes remain.
func (w *world) stop(t *testing.T) {
	before := maps.Clone(w.ours(t))
	w.shell.run(t, `kill "$lab" && wait "$lab"`)
	if left := w.ours(t); len(left) > 0 {
		t.Errorf("processes are still running: %v (before: %v)", left, before)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "out/lab/cluster/pods/logs")); err != nil {
		t.Error("logs of pods were removed:", err)
	}
}

// nothingOfOursIsLeft verifies that no object in the cluster has KubEnergy labels, finalizers or names.
func (w *world) nothingOfOursIsLeft(t *testing.T) {
	t.Helper()
	for _, found := range w.traces(t) {
		t.Errorf("object remains after the uninstallation: %s", found)
	}
	nodes, err := w.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		if n := &nodes.Items[i]; !isReady(n) {
			t.Errorf("node %s is not ready", n.Name)
		}
	}
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
