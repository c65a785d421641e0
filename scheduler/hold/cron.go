package hold

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched"
)

// cronDeadline returns the deadline of a run, which its CronJob may make earlier.
func cronDeadline(ctx context.Context, client kubernetes.Interface, namespace string, run *kube.Run, job *sched.Job,
) (latest time.Time, err error) {
	c, err := client.BatchV1().CronJobs(namespace).Get(ctx, run.CronJob, metav1.GetOptions{})
	if err == nil {
		latest, err = kube.Deadline(job, run, c)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading CronJob %s/%s: %w", namespace, run.CronJob, err)
	}
	return latest, nil
}
