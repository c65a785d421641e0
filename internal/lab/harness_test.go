package lab

import (
	"bufio"
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
)

func job(name, seconds, schedulerName string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}}
	j.Spec.Template.Spec = corev1.PodSpec{
		SchedulerName: schedulerName,
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "main", Image: "none"}},
	}
	if seconds != "" {
		j.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationLabRunSeconds: seconds}
	}
	return j
}

func runJob(ctx context.Context, t *testing.T, client kubernetes.Interface, j *batchv1.Job) time.Duration {
	t.Helper()
	jobs := client.BatchV1().Jobs("default")
	if _, err := jobs.Create(ctx, j, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var got *batchv1.Job
	eventually(t, "Job "+j.Name+" completes", func() bool {
		var err error
		if got, err = jobs.Get(ctx, j.Name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		return got.Status.CompletionTime != nil
	})
	return got.Status.CompletionTime.Sub(got.Status.StartTime.Time)
}

func getPod(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) *corev1.Pod {
	t.Helper()
	p, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func podsOf(ctx context.Context, t *testing.T, client kubernetes.Interface, job string) []corev1.Pod {
	t.Helper()
	pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "job-name=" + job})
	if err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

// eventually waits long enough for a busy machine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	kit.Eventually(t, 3*time.Minute, what, ok)
}

// stopwatch returns a function that logs the time since its last call.
func stopwatch(t *testing.T) func(what string) {
	last := time.Now()
	return func(what string) {
		t.Helper()
		t.Logf("%-30s %v", what, time.Since(last).Round(time.Millisecond))
		last = time.Now()
	}
}

// listeners returns the TCP and Unix sockets on which this process listens.
func listeners(t *testing.T) map[string]bool {
	if runtime.GOOS != "linux" {
		return nil
	}
	mine := map[string]bool{}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			mine[to] = true
		}
	}
	found := map[string]bool{}
	// Column numbers of state, inode and address, and the value of the listening state.
	for file, col := range map[string]struct {
		state, inode, addr int
		listening          string
	}{
		"tcp": {3, 9, 1, "0A"}, "tcp6": {3, 9, 1, "0A"}, "unix": {3, 6, 7, "00010000"},
	} {
		f, err := os.Open("/proc/net/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			w := strings.Fields(s.Text())
			if len(w) > col.addr && len(w) > col.inode && w[col.state] == col.listening &&
				mine["socket:["+w[col.inode]+"]"] {
				found[file+" "+w[col.addr]] = true
			}
		}
		f.Close()
	}
	return found
}
