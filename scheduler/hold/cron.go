package hold

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/kube"
)

// cronRun is which run of which CronJob a Job is.
type cronRun struct {
	cronJob   string
	scheduled time.Time
}

// cronLatest is [kube.LatestRun] of a run.
func cronLatest(ctx context.Context, client kubernetes.Interface, namespace string, run *cronRun,
	duration time.Duration,
) (latest time.Time, err error) {
	c, err := client.BatchV1().CronJobs(namespace).Get(ctx, run.cronJob, metav1.GetOptions{})
	if err == nil {
		latest, err = kube.LatestRun(c, run.scheduled, duration)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading CronJob %s/%s: %w", namespace, run.cronJob, err)
	}
	return latest, nil
}
