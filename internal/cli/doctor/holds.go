package doctor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/cli/release"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// GuardPolicies restrict the changes that the accounts of KubEnergy, users and kubelets may make.
var GuardPolicies = []string{"kubenergy-hold-guard", "kubenergy-guard", "kubenergy-keys", "kubenergy-nodes"}

// checkHoldPolicy checks that Jobs are only suspended on creation if a component releases them.
func (d *Doctor) checkHoldPolicy(ctx context.Context) {
	policies := d.client.AdmissionregistrationV1()
	_, errPolicy := policies.MutatingAdmissionPolicies().Get(ctx, kube.HoldPolicy, metav1.GetOptions{})
	binding, errBinding := policies.MutatingAdmissionPolicyBindings().Get(ctx, kube.HoldPolicy, metav1.GetOptions{})
	if err := cmp.Or(cmdutil.IgnoreNotFound(errPolicy), cmdutil.IgnoreNotFound(errBinding)); err != nil {
		d.unseen("admission policies", err)
		return
	}
	const startScheduler = "start the scheduler, or release all Jobs: kubenergy release --all --remove-policy"
	absence, _ := cmdutil.WithoutScheduler(ctx, d.client, d.Namespace, d.Now(), "releases them at their latest start")
	switch {
	case errPolicy != nil && errBinding != nil && d.absent(ctx, cmdutil.SchedulerName):
		d.warn(adviceInstall, "no workload is held, because no scheduler is installed or running")
		return
	case errPolicy != nil && errBinding != nil:
		d.warn("set hold.enabled in the chart, or apply deploy/hold",
			"not installed: only bare pods are held, Jobs are not")
		return
	case errBinding != nil:
		d.warn("create the binding, or remove the policy",
			"MutatingAdmissionPolicy %s has no binding, so no Job is held", kube.HoldPolicy)
		return
	case errPolicy != nil:
		d.warn("create the policy, or remove the binding",
			"MutatingAdmissionPolicyBinding %s refers to a missing policy, so no Job is held", kube.HoldPolicy)
		return
	case absence != "":
		d.fail(startScheduler, "Jobs are suspended on creation, but %s", absence)
	case !d.fresh[cmdutil.HoldLease]:
		d.fail(startScheduler, "Jobs are suspended on creation, but no scheduler holds the Lease "+
			"%s, so they start at their latest start", cmdutil.HoldLease)
	case !d.scheduler.IsZero() && binding.CreationTimestamp.Time.Before(d.scheduler):
		d.warn("create the binding last and delete it first",
			"MutatingAdmissionPolicyBinding %s is older than the scheduler: Jobs created in between were suspended "+
				"and not released", kube.HoldPolicy)
	default:
		d.ok("Jobs that may wait are suspended on creation and released by the holder of Lease %s", cmdutil.HoldLease)
	}
	for _, name := range GuardPolicies {
		_, errPolicy = policies.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		_, errBinding = policies.ValidatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(errPolicy) || apierrors.IsNotFound(errBinding) {
			d.warn("apply deploy/hold/guard.yaml, because RBAC cannot restrict changes to parts of an object",
				"ValidatingAdmissionPolicy %s or its binding is missing: changes by KubEnergy, users and kubelets "+
					"are not restricted", name)
		}
	}
}

func (d *Doctor) checkHeldJobs(ctx context.Context) {
	var held int
	var late, overdueWithoutDate []string
	err := cmdutil.EachItem(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHeld + "=true"},
		d.client.BatchV1().Jobs(v1.NamespaceAll).List, func(j *batchv1.Job) {
			held++
			name := j.Namespace + "/" + j.Name
			latest, err := time.Parse(time.RFC3339, j.Annotations[v1alpha1.AnnotationLatestStart])
			switch {
			case err != nil && d.Now().Sub(j.CreationTimestamp.Time) > cmdutil.Lateness:
				overdueWithoutDate = append(overdueWithoutDate, name)
			case err == nil && d.Now().After(latest.Add(cmdutil.Lateness)):
				late = append(late, name)
			}
		})
	if err != nil {
		d.unseen("Jobs", err)
		return
	}
	const advice = "check whether the scheduler is running; to release the Jobs: kubenergy release --all"
	if n := len(late); n > 0 {
		d.fail(advice, "%s held past the latest start: %s", humanize.Count(n, "Job"), firstOf(late))
	}
	if n := len(overdueWithoutDate); n > 0 {
		d.warn(advice, "%s held without a latest start: %s", humanize.Count(n, "Job"), firstOf(overdueWithoutDate))
	}
	if len(late)+len(overdueWithoutDate) == 0 {
		d.ok("%s held, none past its latest start", humanize.Count(held, "Job"))
	}
}

// checkCronJobs reports CronJobs with mistakes in annotations, or with several runs that would wait at once.
func (d *Doctor) checkCronJobs(ctx context.Context) {
	view, err := d.knowledge(ctx)
	if err != nil {
		return // reported by other checks
	}
	err = cmdutil.EachItem(ctx, metav1.ListOptions{}, d.client.BatchV1().CronJobs(v1.NamespaceAll).List,
		func(c *batchv1.CronJob) {
			run := kube.NextRun(c, d.Now())
			found := slices.Concat(policy.FindCronJob(c), policy.FindKeys(run.Labels, run.Annotations,
				run.Spec.Template.Annotations), kube.FindRuns(view, c, run))
			work, err := policy.ReadJob(run)
			if found = append(found, view.FindDuration(&work)...); err != nil {
				d.warn("correct the value", "CronJob %s/%s: all annotations are ignored: %v", c.Namespace, c.Name, err)
			}
			for _, f := range found {
				d.warn(humanize.Plain(f.Mend, d.Now()), "CronJob %s/%s: %s", c.Namespace, c.Name,
					humanize.Plain(f.Said, d.Now()))
			}
		})
	if err != nil {
		d.unseen("CronJobs", err)
	}
}

// checkStranded reports objects that wait for a scheduler that does not run.
func (d *Doctor) checkStranded(ctx context.Context) {
	s, err := cmdutil.ReadServing(ctx, d.client, d.Namespace, d.Now())
	if err != nil {
		d.unseen("Leases in "+d.Namespace, err)
		return
	}
	names := s.Stranded()
	if len(names) == 0 {
		d.ok("a scheduler serves pods with schedulerName %s", cmdutil.OrOf(s.Names()))
		return
	}
	all := release.FindDependents(ctx, d.client, v1.NamespaceAll, names, true)
	for _, what := range slices.Sorted(maps.Keys(all.Unseen)) {
		d.unseen(what, all.Unseen[what])
	}
	for i := range all.Found {
		f, status, mend := &all.Found[i], dashboard.StatusFail, all.Found[i].Mend()
		// Another system may serve a name that KubEnergy is not configured for.
		if f.Scheduler != policy.SchedulerName && !slices.Contains(s.Configured, f.Scheduler) {
			status, mend = dashboard.StatusWarn, "if no other system serves this name: "+mend
		}
		d.add(status, mend, "%s", f)
	}
	if len(all.Found)+len(all.Unseen) == 0 {
		d.ok("no scheduler serves pods with schedulerName %s, but there are none", cmdutil.OrOf(names))
	}
}
