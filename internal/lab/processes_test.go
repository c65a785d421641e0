package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
)

// testImages are the images that the shared cluster runs as processes. The program of the second image does not
// exist.
var testImages = []string{"process", "absent"}

func buildProcess(t *testing.T, dir string) {
	t.Helper()
	if err := kit.BuildTo(filepath.Join(dir, "process"), "./internal/lab/testdata/process"); err != nil {
		t.Fatal(err)
	}
}

// processPods contains the tests of pods that run as processes.
type processPods struct {
	t       *testing.T
	cluster *Cluster
	client  kubernetes.Interface
}

func checkProcesses(t *testing.T, c *Cluster, client kubernetes.Interface) {
	p := &processPods{t, c, client}
	t.Run("replicas", func(t *testing.T) { p.in(t).replicas() })
	t.Run("restart", func(t *testing.T) { p.in(t).restart() })
	t.Run("stubborn", func(t *testing.T) { p.in(t).stubborn() })
	t.Run("jobs", func(t *testing.T) { p.in(t).jobs() })
	t.Run("program that is not there", func(t *testing.T) { p.in(t).absent() })
	t.Run("unsupported features", func(t *testing.T) { p.in(t).refused() })
}

func (p *processPods) in(t *testing.T) *processPods { return &processPods{t, p.cluster, p.client} }

// pod returns a pod of the test program that is ready when its health page responds.
func (p *processPods) pod(name string, args ...string) *corev1.Pod {
	page := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("health")}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "process"}},
		Spec: corev1.PodSpec{
			NodeName: "node-0000", TerminationGracePeriodSeconds: ptr.To[int64](20),
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example:5000/some/process:v1@sha256:" + strings.Repeat("0", 64),
				Args:           append([]string{"--listen-address=:8080"}, args...),
				Ports:          []corev1.ContainerPort{{Name: "health", ContainerPort: 8080}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: page, PeriodSeconds: 1},
				LivenessProbe:  &corev1.Probe{ProbeHandler: page, PeriodSeconds: 1, FailureThreshold: 3},
			}},
		},
	}
}

func (p *processPods) create(pod *corev1.Pod) {
	p.t.Helper()
	if _, err := p.client.CoreV1().Pods("default").Create(p.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *processPods) get(name string) *corev1.Pod {
	return getPod(p.t.Context(), p.t, p.client, name)
}

func (p *processPods) log(name string) string {
	text, err := os.ReadFile(filepath.Join(p.cluster.PodsDir(), "logs", "default_"+name+"_main.log"))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

func (p *processPods) eventually(what string, ok func() bool) {
	p.t.Helper()
	eventually(p.t, what, ok)
}

// programs returns the directory of the test program.
func (p *processPods) programs() string { return filepath.Dir(p.cluster.dir) }

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// pid returns the process ID that the process has logged.
func (p *processPods) pid(name string) (pid int) {
	p.t.Helper()
	_, after, _ := strings.Cut(p.log(name), " pid ")
	if _, err := fmt.Sscan(after, &pid); err != nil {
		p.t.Fatalf("no process ID in the log of %s: %v", name, err)
	}
	return pid
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func (p *processPods) port(name string) int {
	p.t.Helper()
	var port int
	if _, err := fmt.Sscanf(p.get(name).Annotations[v1alpha1.AnnotationLabPorts], "8080=%d", &port); err != nil {
		p.t.Fatal(err)
	}
	return port
}

// replicas verifies that replicas can listen on the same port, read their mounts, and use their service account.
func (p *processPods) replicas() {
	t, ctx := p.t, p.t.Context()
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "app"}, Data: map[string]string{"greeting": "hello"},
	}
	if _, err := p.client.CoreV1().ConfigMaps("default").Create(ctx, config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "app"}, StringData: map[string]string{"key": "hidden"}}
	if _, err := p.client.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"replica-1", "replica-2"} {
		pod := p.pod(name, "--show=/etc/app/greeting,"+accountPath+"/namespace", "--env=POD,IP,KEY,FILE,KUBECONFIG",
			"--", "$(POD)", "/etc/apple")
		mounted := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "app", VolumeSource: corev1.VolumeSource{ConfigMap: mounted}}}
		main := &pod.Spec.Containers[0]
		main.VolumeMounts = []corev1.VolumeMount{{Name: "app", MountPath: "/etc/app"}}
		key := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}, Key: "key"}
		main.Env = []corev1.EnvVar{
			{
				Name:      "POD",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
			},
			{
				Name:      "IP",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}},
			},
			{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: key}},
			{Name: "FILE", Value: "/etc/app/greeting"},
		}
		p.create(pod)
	}
	for _, name := range []string{"replica-1", "replica-2"} {
		p.eventually(name+" is ready", func() bool { return isReady(p.get(name)) })
		if got := p.get(name); got.Status.Phase != corev1.PodRunning || !strings.HasPrefix(got.Status.PodIP, "10.127.") ||
			got.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("unexpected status of %s: %+v", name, got.Status)
		}
		log := p.log(name)
		for _, want := range []string{
			`: "hello" <nil>`, `: "default" <nil>`, "env POD=" + name, "env IP=127.0.0.1", "env KEY=hidden",
			"args [" + name + " /etc/apple]",
		} {
			if !strings.Contains(log, want) {
				t.Errorf("the log of %s does not contain %q:\n%s", name, want, log)
			}
		}
		p.account(name, log)
	}
	if a, b := p.port("replica-1"), p.port("replica-2"); a == b {
		t.Errorf("both replicas listen on the same port %d", a)
	}
	p.proxied()
	file := p.logged("replica-1", "env FILE=")
	if _, err := p.client.CoreV1().ConfigMaps("default").Patch(ctx, "app", "application/merge-patch+json",
		[]byte(`{"data":{"greeting":"bye"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	p.eventually("the mounted file follows its ConfigMap", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && string(text) == "bye"
	})
}

// proxied connects to a pod through its Service and the API server, like kubenergy report does to the controller.
func (p *processPods) proxied() {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "process"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "process"},
		Ports:    []corev1.ServicePort{{Name: "web", Port: 80, TargetPort: intstr.FromString("health")}},
	}}
	if _, err := p.client.CoreV1().Services("default").Create(p.t.Context(), service, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
	p.eventually("the API server's proxy connects to the pods", func() bool {
		_, err := p.client.CoreV1().Services("default").ProxyGet("http", "process", "web", "healthz", nil).
			DoRaw(p.t.Context())
		return err == nil
	})
}

const accountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// logged returns the rest of the log line with the given prefix.
func (p *processPods) logged(name, prefix string) string {
	for line := range strings.Lines(p.log(name)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	p.t.Fatalf("the log of %s has no line with prefix %q", name, prefix)
	return ""
}

// account verifies that the process uses the pod's own service account.
func (p *processPods) account(name, log string) {
	config, err := clientcmd.BuildConfigFromFlags("", p.logged(name, "env KUBECONFIG="))
	if err != nil {
		p.t.Fatal(err)
	}
	review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().
		Create(p.t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	user := review.Status.UserInfo
	if user.Username != "system:serviceaccount:default:default" ||
		user.Extra["authentication.kubernetes.io/pod-name"][0] != name {
		p.t.Errorf("%s is %+v\n%s", name, user, log)
	}
}

// restart lets one process exit and makes another one unresponsive.
func (p *processPods) restart() {
	p.create(p.pod("restarted"))
	p.eventually("the pod is ready", func() bool { return isReady(p.get("restarted")) })
	if answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/end", p.port("restarted"))); err == nil {
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	p.eventually("the process runs again", func() bool {
		pod := p.get("restarted")
		status := pod.Status.ContainerStatuses[0]
		return isReady(pod) && status.RestartCount == 1 && status.LastTerminationState.Terminated != nil &&
			status.LastTerminationState.Terminated.ExitCode == 3
	})
	lap := stopwatch(p.t)
	p.remove("restarted", metav1.DeleteOptions{})
	lap("end of a process")
	if log := p.log("restarted"); !strings.Contains(log, "received SIGTERM") {
		p.t.Errorf("the process did not receive SIGTERM:\n%s", log)
	}
	dirs, err := filepath.Glob(filepath.Join(p.cluster.PodsDir(), "default_restarted_*"))
	if err != nil || len(dirs) > 0 {
		p.t.Errorf("remaining directories: %v (%v)", dirs, err)
	}
}

func (p *processPods) remove(name string, o metav1.DeleteOptions) {
	p.t.Helper()
	if err := p.client.CoreV1().Pods("default").Delete(p.t.Context(), name, o); err != nil {
		p.t.Fatal(err)
	}
	p.eventually(name+" is deleted", func() bool {
		_, err := p.client.CoreV1().Pods("default").Get(p.t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// stubborn processes are killed after the grace period, or immediately.
func (p *processPods) stubborn() {
	for name, o := range map[string]metav1.DeleteOptions{
		"stubborn": {GracePeriodSeconds: ptr.To[int64](1)},
		"forced":   {GracePeriodSeconds: ptr.To[int64](0)},
	} {
		p.create(p.pod(name, "--stubborn"))
		p.eventually(name+" is ready", func() bool { return isReady(p.get(name)) })
		pid := p.pid(name)
		if !alive(pid) {
			p.t.Fatalf("process %[2]d of %[1]s does not exist", name, pid)
		}
		began := time.Now()
		p.remove(name, o)
		p.eventually("the process of "+name+" has exited", func() bool { return !alive(pid) })
		if took := time.Since(began); name == "stubborn" && took < 900*time.Millisecond {
			p.t.Errorf("grace period of 1 s ended after %v", took)
		}
	}
}

// jobs verifies that Jobs complete with the exit codes of their processes.
func (p *processPods) jobs() {
	ctx := p.t.Context()
	for name, code := range map[string]string{"good": "0", "bad": "4"} {
		j := job("process-"+name, "", "default-scheduler")
		j.Spec.BackoffLimit = ptr.To[int32](0)
		j.Spec.Template.Spec.Containers[0].Image = "process"
		j.Spec.Template.Spec.Containers[0].Args = []string{"--after=100ms", "--code=" + code}
		if _, err := p.client.BatchV1().Jobs("default").Create(ctx, j, metav1.CreateOptions{}); err != nil {
			p.t.Fatal(err)
		}
		want := map[string]batchv1.JobConditionType{"good": batchv1.JobComplete, "bad": batchv1.JobFailed}[name]
		p.eventually(j.Name+" is "+string(want), func() bool {
			got, err := p.client.BatchV1().Jobs("default").Get(ctx, j.Name, metav1.GetOptions{})
			if err != nil {
				p.t.Fatal(err)
			}
			for _, c := range got.Status.Conditions {
				if c.Type == want && c.Status == corev1.ConditionTrue {
					return true
				}
			}
			return false
		})
		pod := podsOf(ctx, p.t, p.client, j.Name)[0]
		if got := pod.Status.ContainerStatuses[0].State.Terminated; got == nil ||
			strconv.Itoa(int(got.ExitCode)) != code {
			p.t.Errorf("unexpected container status of the pod of %s: %+v", j.Name, pod.Status.ContainerStatuses)
		}
		p.remove(pod.Name, metav1.DeleteOptions{})
	}
}

func (p *processPods) waiting(name, reason string) string {
	var message string
	p.eventually(name+" waits", func() bool {
		for _, s := range p.get(name).Status.ContainerStatuses {
			if s.State.Waiting != nil && s.State.Waiting.Reason == reason {
				message = s.State.Waiting.Message
				return true
			}
		}
		return false
	})
	return message
}

func (p *processPods) absent() {
	pod := p.pod("absent")
	pod.Spec.Containers[0].Image = "absent"
	p.create(pod)
	program := filepath.Join(p.programs(), "absent")
	if message := p.waiting("absent", "ErrImagePull"); !strings.Contains(message, "go build -o "+program) {
		p.t.Errorf("unexpected message %q", message)
	}
	if err := os.Link(filepath.Join(p.programs(), "process"), program); err != nil {
		p.t.Fatal(err)
	}
	p.eventually("the pod is ready", func() bool { return isReady(p.get("absent")) })
}

func (p *processPods) refused() {
	pod := p.pod("refused")
	pod.Spec.Volumes = []corev1.Volume{{
		Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
	}}
	p.create(pod)
	if message := p.waiting("refused", "ContainerCreating"); !strings.Contains(message, "volume host: only configMap") {
		p.t.Errorf("unexpected message %q", message)
	}
	p.remove("refused", metav1.DeleteOptions{})
}

// endWithCluster returns a check for remaining processes of pods, to be called after Stop.
func endWithCluster(ctx context.Context, t *testing.T, c *Cluster, client kubernetes.Interface) func() {
	p := &processPods{t, c, client}
	pids := map[string]int{}
	pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=process"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		name := pods.Items[i].Name
		if pids[name] = p.pid(name); !alive(pids[name]) {
			t.Errorf("%s is not running before Stop", name)
		}
	}
	if len(pids) < 3 {
		t.Errorf("only %v are running before Stop, want at least 3", pids)
	}
	return func() {
		for name, pid := range pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("%s still runs after Stop: %v", name, err)
			}
		}
	}
}
