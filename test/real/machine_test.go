//go:build linux

package real

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubenergy/kubenergy/test/kit"
)

// world is a control plane with one real node.
type world struct {
	dir        string
	burner     string // path of the binary
	lab        string
	kubelet    string
	group      string // parent of the kubelet's control groups
	kubeconfig string
	client     kubernetes.Interface
}

// build creates a world without starting any program.
func build(t *testing.T) *world {
	t.Helper()
	w := &world{dir: kit.Dir(t, "kubenergy-real")}
	w.burner, w.lab = kit.Build(t, "./test/real/testdata/burner"), kit.Build(t, "./cmd/kubenergy-lab")
	w.kubelet = kit.Kubernetes(t, "kubelet")
	return w
}

// start runs a program that is terminated gracefully when the test ends.
func start(t *testing.T, dir, name string, cmd *exec.Cmd) *kit.Process {
	t.Helper()
	p := kit.Start(t, dir, name, cmd)
	t.Cleanup(func() { _ = p.Stop(15 * time.Second) }) // the program may have exited
	return p
}

// startControlPlane runs the lab's control plane with kube-scheduler. Its simulated nodes are not used, because the
// pods select the real node.
func (w *world) startControlPlane(t *testing.T) {
	t.Helper()
	lab := start(t, w.dir, "lab", exec.Command(w.lab, "up", "--stock", "--dir",
		filepath.Join(w.dir, "lab")))
	kit.Await(t, 2*time.Minute, "the control plane is ready", func(context.Context) (bool, error) {
		return strings.Contains(lab.Output(), "Interrupt to stop"), nil
	}, lab)
	w.kubeconfig = filepath.Join(w.dir, "lab/cluster/kubeconfig")
	config, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig)
	if err == nil {
		w.client, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A burner is a pod that uses as much CPU as its limit allows.
type burner struct {
	pod    *corev1.Pod
	milli  int64    // limit and request
	id     string   // container ID
	limit  string   // control group of the container, which has the limit
	kernel *witness // records the CPU time of the container
}

const container = "burn"

// submit creates a pod with two busy loops. A pod without a memory limit is burstable, and its control group has a
// different parent than that of a guaranteed pod.
func (w *world) submit(t *testing.T, name string, milli int64, guaranteed bool) *burner {
	t.Helper()
	cpu := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
	if guaranteed {
		cpu[corev1.ResourceMemory] = resource.MustParse("64Mi")
	}
	none, grace := false, int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: nodeName}, HostNetwork: true,
			RestartPolicy:                corev1.RestartPolicyNever,
			AutomountServiceAccountToken: &none, EnableServiceLinks: &none, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: container, Image: image, ImagePullPolicy: corev1.PullNever, Args: []string{"2"},
				Resources: corev1.ResourceRequirements{Requests: cpu, Limits: cpu},
			}},
		},
	}
	pod, err := w.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &burner{pod: pod, milli: milli}
}

// awaitRunning waits until a pod is running and starts recording the CPU time of its control group.
func (w *world) awaitRunning(t *testing.T, b *burner) {
	t.Helper()
	kit.Await(t, time.Minute, "pod "+b.pod.Name+" runs", func(ctx context.Context) (bool, error) {
		pod, err := w.client.CoreV1().Pods(b.pod.Namespace).Get(ctx, b.pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		b.pod = pod
		statuses := pod.Status.ContainerStatuses
		if len(statuses) != 1 || statuses[0].State.Running == nil {
			return false, fmt.Errorf("%s %s: %v", pod.Status.Phase, pod.Status.Message, statuses)
		}
		b.id = strings.TrimPrefix(statuses[0].ContainerID, "containerd://")
		return true, nil
	})
	b.limit = groupOf(t, "cpu", w.group, b.id)
	b.kernel = watch(t, groupOf(t, "cpuacct", w.group, b.id))
}

// end deletes a pod and waits until the pod and its control group no longer exist.
func (w *world) end(t *testing.T, b *burner) {
	t.Helper()
	pods := w.client.CoreV1().Pods(b.pod.Namespace)
	if err := pods.Delete(t.Context(), b.pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kit.Await(t, time.Minute, "pod "+b.pod.Name+" is deleted", func(ctx context.Context) (bool, error) {
		_, err := pods.Get(ctx, b.pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	kit.Await(t, time.Minute, "the control group of pod "+b.pod.Name+" is removed",
		func(context.Context) (bool, error) {
			_, err := os.Stat(b.limit)
			return os.IsNotExist(err), err
		})
}
