package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/chart"
	"github.com/kubenergy/kubenergy/test/kit"
)

// world is a directory that looks like a clone with all programs built, with the cluster that was started in it.
type world struct {
	dir     string
	shell   *shell
	client  kubernetes.Interface
	objects dynamic.Interface
}

// build creates the directory with links to the directories that the commands use and to the results of `make build
// tools`.
func build(t *testing.T) string {
	t.Helper()
	dir := kit.Dir(t, "life")
	began := time.Now()
	programs, err := os.ReadDir(filepath.Join(kit.Root, "cmd"))
	if err != nil {
		t.Fatal(err)
	}
	bin := ""
	for _, p := range programs {
		bin = filepath.Dir(kit.Build(t, "./cmd/"+p.Name()))
	}
	helm, err := chart.Program()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("built all programs in %v", time.Since(began).Round(time.Second))
	for link, path := range map[string]string{
		filepath.Join(bin, "helm"): helm, filepath.Join(bin, "kubectl"): "kubenergy-lab", filepath.Join(dir, "bin"): bin,
	} {
		_ = os.Remove(link) // left by a previous run
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"charts", "examples", "deploy", "scenarios"} {
		if err := os.Symlink(filepath.Join(kit.Root, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// connect creates clients for the cluster with the kubeconfig written by the lab.
func (w *world) connect(t *testing.T) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(w.dir, "out/lab/cluster/kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	if w.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if w.objects, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
}

func (w *world) zone(t *testing.T) *v1alpha1.GridZone {
	t.Helper()
	got, err := w.objects.Resource(v1alpha1.GroupVersion.WithResource("gridzones")).Get(t.Context(), "default",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var zone v1alpha1.GridZone
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, &zone); err != nil {
		t.Fatal(err)
	}
	return &zone
}

func (w *world) policy(t *testing.T) *v1alpha1.EnergyPolicy {
	t.Helper()
	got, err := w.objects.Resource(v1alpha1.GroupVersion.WithResource("energypolicies")).Namespace(
		v1alpha1.SystemNamespace).
		Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var policy v1alpha1.EnergyPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, &policy); err != nil {
		t.Fatal(err)
	}
	return &policy
}

const team = "team-a"

// submit creates a Job that runs for two seconds. If delay is empty, the Job must not be delayed. If scheduler is
// empty, the default scheduler is used.
func (w *world) submit(t *testing.T, namespace, name, delay, scheduler string) *batchv1.Job {
	t.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       batchv1.JobSpec{Template: pods(scheduler)},
	}
	job.Annotations = map[string]string{v1alpha1.AnnotationExpectedDuration: "30s"}
	if delay != "" {
		job.Annotations[v1alpha1.AnnotationAllowedDelay] = delay
	}
	if delay != "" && namespace == team {
		job.Annotations[v1alpha1.AnnotationStrategy] = cleanMinutes
	}
	created, err := w.client.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func pods(scheduler string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubenergy.io/lab-run-seconds": "2"}},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "main", Image: "example.org/work"}},
		},
	}
}

// cleanMinutes is a strategy that uses the short clean periods of the test's grid. Joint plans have longer slots.
const cleanMinutes = "carbon+window"

// submitCron creates a CronJob that runs within 70 s, then every hour, and allows its Jobs to be delayed.
func (w *world) submitCron(t *testing.T, name, delay string) {
	t.Helper()
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.CronJobSpec{
		Schedule: fmt.Sprintf("%d * * * *", time.Now().Add(70*time.Second).Minute()),
		JobTemplate: batchv1.JobTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				v1alpha1.AnnotationAllowedDelay: delay, v1alpha1.AnnotationStrategy: cleanMinutes,
			}},
			Spec: batchv1.JobSpec{Template: pods("")},
		},
	}}
	if _, err := w.client.BatchV1().CronJobs(team).Create(t.Context(), cron, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) job(t *testing.T, namespace, name string) *batchv1.Job {
	t.Helper()
	job, err := w.client.BatchV1().Jobs(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func (w *world) jobs(t *testing.T) []batchv1.Job {
	t.Helper()
	list, err := w.client.BatchV1().Jobs("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func suspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func complete(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobComplete {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// held reports whether a Job is held and has annotations with its planned start, latest start and reason.
func held(job *batchv1.Job) bool {
	for _, key := range []string{
		v1alpha1.AnnotationHeldUntil, v1alpha1.AnnotationLatestStart, v1alpha1.AnnotationHeldReason,
	} {
		if job.Annotations[key] == "" {
			return false
		}
	}
	return suspended(job) && job.Labels[v1alpha1.LabelHeld] == "true"
}

// heldUntil waits until a Job is held with a plan and returns its planned start.
func (w *world) heldUntil(t *testing.T, name string) time.Time {
	t.Helper()
	var job *batchv1.Job
	w.eventually(t, 30*time.Second, name+" is held with a planned start and a reason", func() bool {
		job = w.job(t, team, name)
		return held(job)
	})
	until, err := time.Parse(time.RFC3339, job.Annotations[v1alpha1.AnnotationHeldUntil])
	if err != nil {
		t.Fatal(err)
	}
	return until
}

// ownedBy returns the Jobs of a CronJob.
func (w *world) ownedBy(t *testing.T, cron string) []batchv1.Job {
	t.Helper()
	var owned []batchv1.Job
	for _, job := range w.jobs(t) {
		for _, o := range job.OwnerReferences {
			if o.Kind == "CronJob" && o.Name == cron {
				owned = append(owned, job)
			}
		}
	}
	return owned
}

func (w *world) eventually(t *testing.T, within time.Duration, what string, done func() bool) {
	t.Helper()
	began, ok := time.Now(), false
	defer func() {
		if !ok {
			w.dump(t)
		}
	}()
	kit.Eventually(t, within, what, done)
	ok = true
	t.Logf("after %v: %s", time.Since(began).Round(100*time.Millisecond), what)
}

// dump logs the state of the cluster for debugging failures.
func (w *world) dump(t *testing.T) {
	for _, command := range []string{
		"kubectl get pods,jobs -A -o wide", "kubectl get energypolicies,gridzones -A -o yaml | head -120",
		"kubectl get events -A | tail -30",
	} {
		output, _ := w.shell.try(command)
		t.Logf("$ %s\n%s", command, output)
	}
	logs, err := filepath.Glob(filepath.Join(w.dir, "out/lab/cluster/pods/logs/*"))
	if err != nil {
		t.Log(err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Log(err)
		}
		t.Logf("end of %s:\n%s", filepath.Base(path), text[max(0, len(text)-3000):])
	}
}

// ours returns the running processes of KubEnergy binaries in the directory, except the lab. It is only supported
// on Linux.
func (w *world) ours(t *testing.T) map[int]string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	processes := map[int]string{}
	for _, link := range links {
		program, err := os.Readlink(link)
		if err != nil || filepath.Dir(program) != filepath.Join(w.dir, "bin") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err != nil {
			t.Fatal(errors.Join(err, fmt.Errorf("reading %s", link)))
		}
		if name := filepath.Base(program); name != "kubenergy-lab" {
			processes[pid] = name
		}
	}
	return processes
}
