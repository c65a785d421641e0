package release

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// NewRunNowCommand returns the command run-now, which requests that a held Job or pod starts now.
func NewRunNowCommand(t cmdutil.Terminal) *cobra.Command {
	var f cmdutil.ClusterFlags
	cmd := &cobra.Command{
		Use:   "run-now job|pod NAME",
		Short: "Request that a held Job or pod starts now",
		Long: `Set the annotation kubenergy.io/run-now on a Job or a pod, so that it is not held, regardless of other
settings. It is released by the scheduler, or by the controller if no scheduler is running. If neither is running, the
exit code is 1. Use kubenergy release in this case.`,
		Example: `  kubenergy run-now job nightly-report -n reports
  kubenergy run-now pod/train-7`,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, err := cmdutil.OneObject(args, cmdutil.KindJob, cmdutil.KindPod)
			if err != nil {
				return err
			}
			c, err := f.Open(t)
			if err != nil {
				return err
			}
			result, err := RunNow(cmd.Context(), c, kind, c.Namespace, name, t.Now())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(t.Out, "%s %s/%s: %s\n", kind, c.Namespace, name, result)
			return err
		},
	}
	f.Add(cmd.Flags(), "namespace of the object")
	return cmd
}

const askedNow = "requested to start now"

// RunNow annotates the object and returns a description of the consequence.
func RunNow(ctx context.Context, client *cmdutil.Cluster, kind, namespace, name string, now time.Time) (string, error) {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationRunNow)
	if kind == cmdutil.KindPod {
		pod, err := client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		switch {
		case err != nil:
			return "", fmt.Errorf("annotating pod %s/%s: %s", namespace, name,
				cmdutil.Elsewhere(ctx, client, err, cmdutil.KindPod, name))
		case pod.Spec.NodeName != "":
			return "already scheduled to " + pod.Spec.NodeName, nil
		case policy.Serves(pod.Spec.SchedulerName):
			why, err := kube.Absent(ctx, client, v1alpha1.SystemNamespace, cmdutil.SchedulerName, now)
			if why != "" && err == nil {
				return "", fmt.Errorf("pod %s/%s is marked, but waits for the scheduler %s, which is not running (%s)",
					namespace, name, pod.Spec.SchedulerName, why)
			}
		}
		return askedNow, nil
	}
	job, err := client.BatchV1().Jobs(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch suspended := err == nil && job.Spec.Suspend != nil && *job.Spec.Suspend; {
	case err != nil:
		return "", fmt.Errorf("annotating Job %s/%s: %s", namespace, name,
			cmdutil.Elsewhere(ctx, client, err, cmdutil.KindJob, name))
	case suspended && job.Labels[v1alpha1.LabelBudgetSuspended] != "":
		return "marked, but suspended because of a budget (kubenergy.io/budget-suspended): users with the role " +
			"kubenergy-releaser can resume it with kubenergy release", nil
	case suspended && job.Labels[v1alpha1.LabelHeld] != "true":
		return "marked, but suspended by its user, so it remains suspended", nil
	case !suspended:
		return "was not held", nil
	}
	absence, released := cmdutil.WithoutScheduler(ctx, client, v1alpha1.SystemNamespace, now,
		"releases it within seconds")
	switch {
	case !released:
		return "", fmt.Errorf("Job %s/%s is marked, but %s", namespace, name, absence)
	case absence != "":
		return askedNow + "; " + absence, nil
	}
	return askedNow, nil
}
