// Package release implements the commands release and run-now, which release held Jobs and pods.
package release

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
)

const (
	// Workers is the maximum number of concurrent releases.
	Workers = 32
	// Time without held Jobs after the policy was removed. API servers reload their policies every second.
	releaseSettle = 4 * time.Second
	// Pause is the interval between two passes.
	Pause = time.Second
)

type releaseFlags struct {
	cmdutil.ClusterFlags
	all, removePolicy bool
	timeout           time.Duration
}

// NewCommand returns the command release, which resumes Jobs that are held or suspended because of a budget.
func NewCommand(t cmdutil.Terminal) *cobra.Command {
	var f releaseFlags
	cmd := &cobra.Command{
		Use:   "release job NAME | --all",
		Short: "Resume Jobs that are held or suspended because of a budget, even if KubEnergy is not running",
		Long: `Resume one or all Jobs that are held or suspended because of an energy budget, and remove the label
kubenergy.io/held or kubenergy.io/budget-suspended. The command does not require any running component of KubEnergy.
The budget does not suspend the same Job again. With --remove-policy, new Jobs are no longer held, which is the first
step of an uninstallation.

Bare pods are not released, because they wait for the scheduler in their spec. Use kubenergy run-now instead. Objects
that use a scheduler of KubEnergy remain pending once it no longer runs. They are listed at the end, with a command per
kind that moves them to the default scheduler.`,
		Example: `  kubenergy release job nightly-report -n reports
  kubenergy release --all
  kubenergy release --all --remove-policy   # before the scheduler is removed`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), t, args) },
	}
	f.Add(cmd.Flags(), "namespace of the Job, or of the Jobs with --all (default: all namespaces)")
	cmd.Flags().BoolVar(&f.all, "all", false, "release all held Jobs")
	cmd.Flags().BoolVar(&f.removePolicy, "remove-policy", false,
		"before releasing, remove the admission policy that holds new Jobs")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 5*time.Minute, "maximum duration of the command")
	return cmd
}

// check validates the flags and arguments, and returns the name of the Job if a single one is selected.
func (f *releaseFlags) check(args []string) (name string, err error) {
	switch {
	case f.timeout <= 0:
		return "", cmdutil.UsageErrorf("--timeout is %v: want more than 0", f.timeout)
	case f.all && len(args) > 0:
		return "", cmdutil.UsageErrorf("%q and --all are mutually exclusive", strings.Join(args, " "))
	case f.removePolicy && !f.all:
		return "", cmdutil.UsageErrorf("--remove-policy requires --all: Jobs that remain held would never start")
	case f.removePolicy && f.Namespace != "":
		return "", cmdutil.UsageErrorf("--remove-policy affects all namespaces and cannot be combined with --namespace")
	case f.all:
		return "", nil
	case len(args) == 0:
		return "", cmdutil.UsageErrorf("want job and a name, or --all")
	}
	_, name, err = cmdutil.OneObject(args, cmdutil.KindJob)
	return name, err
}

func (f *releaseFlags) run(ctx context.Context, t cmdutil.Terminal, args []string) error {
	name, err := f.check(args)
	if err != nil {
		return err
	}
	c, err := f.Open(t)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	r := &Releaser{Client: c, Out: t.Out, Err: t.Err, Now: t.Now, Pause: Pause}
	if !f.all {
		return r.one(ctx, c.Namespace, name)
	}
	if f.removePolicy {
		r.Settle = releaseSettle
		if err := r.RemovePolicy(ctx); err != nil {
			return err
		}
	}
	err = r.All(ctx, f.Namespace)
	r.NoteDependents(context.WithoutCancel(ctx), t.Err, f.Namespace, f.removePolicy)
	return err
}

// Releaser resumes held Jobs.
type Releaser struct {
	Client        kubernetes.Interface
	Out, Err      io.Writer
	Now           func() time.Time
	Settle, Pause time.Duration
	reported      bool // whether notify has printed the reason for retries
}

// one releases a single Job.
func (r *Releaser) one(ctx context.Context, namespace, name string) error {
	job, err := r.Client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading Job %s/%s: %s", namespace, name,
			cmdutil.Elsewhere(ctx, r.Client, err, cmdutil.KindJob, name))
	}
	what := "released"
	if waitsBy(job) == "" {
		what = "not held by KubEnergy, unchanged"
	} else if gone, err := r.release(ctx, job); err != nil {
		return fmt.Errorf("releasing Job %s/%s: %s", namespace, name, cmdutil.Because(err))
	} else if gone {
		what = "no longer held"
	}
	_, err = fmt.Fprintf(r.Out, "job %s/%s: %s\n", namespace, name, what)
	return err
}

// RemovePolicy removes the policy that suspends new Jobs. It deletes the binding first, because a policy without a
// binding has no effect.
func (r *Releaser) RemovePolicy(ctx context.Context) error {
	policies := r.Client.AdmissionregistrationV1()
	err := policies.MutatingAdmissionPolicyBindings().Delete(ctx, kube.HoldPolicy, metav1.DeleteOptions{})
	if cmdutil.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting MutatingAdmissionPolicyBinding %s: %s", kube.HoldPolicy, cmdutil.Because(err))
	}
	err = policies.MutatingAdmissionPolicies().Delete(ctx, kube.HoldPolicy, metav1.DeleteOptions{})
	if cmdutil.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting MutatingAdmissionPolicy %s: %s", kube.HoldPolicy, cmdutil.Because(err))
	}
	return nil
}

// All releases Jobs until no Job is held. If the policy was removed, no Job must be held for the duration of
// Settle.
func (r *Releaser) All(ctx context.Context, namespace string) error {
	var total int
	quietSince := r.Now()
	for {
		p, err := r.pass(ctx, namespace)
		total += p.released
		if err != nil || p.seen > 0 {
			quietSince = r.Now()
		}
		switch {
		case err == nil && p.seen == 0 && r.Now().Sub(quietSince) >= r.Settle:
			_, err := fmt.Fprintf(r.Out, "%s released, no Job is held\n", humanize.Count(total, "Job"))
			return err
		case err != nil && !transient(err) && ctx.Err() == nil:
			return fmt.Errorf("listing held Jobs: %s", cmdutil.Because(err))
		case err == nil && p.hopeless() && ctx.Err() == nil:
			return p.error(total)
		case p.released > 0:
			continue // there may be more held Jobs
		}
		err = cmp.Or(err, p.cause())
		r.notify(ctx, err)
		if !kube.Pause(ctx, r.Pause) {
			return p.unfinished(cmp.Or(err, ctx.Err()), total)
		}
	}
}

// notify prints once that an error prevented all releases of a pass and until when passes are retried.
func (r *Releaser) notify(ctx context.Context, err error) {
	until, limited := ctx.Deadline()
	if err == nil || r.reported || !limited || ctx.Err() != nil {
		return
	}
	r.reported = true
	fmt.Fprintf(r.Err, "Retrying until %s (--timeout): %s\n", until.Format(time.TimeOnly), cmdutil.Because(err))
}

// pass is the result of one pass over all held Jobs.
type pass struct {
	seen, released int
	failed         map[string]error // by namespace and name of the Job
}

// cause returns the error of the first failed Job by name, or nil.
func (p *pass) cause() error {
	if len(p.failed) == 0 {
		return nil
	}
	return p.failed[slices.Min(slices.Collect(maps.Keys(p.failed)))]
}

// transient reports whether a retry may resolve the error. A patch with a failed test operation is rejected as
// invalid, because the Job has changed since it was listed.
func transient(err error) bool {
	return slices.Contains([]metav1.StatusReason{
		metav1.StatusReasonUnknown, // network errors
		metav1.StatusReasonConflict, metav1.StatusReasonInvalid, metav1.StatusReasonExpired,
		metav1.StatusReasonTooManyRequests, metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout,
		metav1.StatusReasonInternalError, metav1.StatusReasonServiceUnavailable,
	}, apierrors.ReasonForError(err))
}

// hopeless reports whether another pass would have the same result.
func (p *pass) hopeless() bool {
	errs := slices.Collect(maps.Values(p.failed))
	return p.seen > 0 && len(errs) == p.seen && !slices.ContainsFunc(errs, transient)
}

// unfinished returns the error for a pass that was interrupted by the timeout.
func (p *pass) unfinished(err error, released int) error {
	if len(p.failed) > 0 {
		return p.error(released)
	}
	return fmt.Errorf("%s released, but it is unknown whether others are still held: %s",
		humanize.Count(released, "Job"), cmdutil.OneLine(err))
}

func (p *pass) error(released int) error {
	jobs := slices.Sorted(maps.Keys(p.failed))
	const most = 10
	if n := len(jobs) - most; n > 0 {
		jobs = append(jobs[:most], fmt.Sprintf("and %d more", n))
	}
	return fmt.Errorf("%s released, %s still held: %s (%s)", humanize.Count(released, "Job"),
		humanize.Count(len(p.failed), "Job"), strings.Join(jobs, ", "), cmdutil.Because(p.cause()))
}

// pass releases all Jobs that are held or suspended because of a budget.
func (r *Releaser) pass(ctx context.Context, namespace string) (pass, error) {
	p := pass{failed: map[string]error{}}
	var mu sync.Mutex // guards p
	for _, selector := range []string{v1alpha1.LabelHeld + "=true", v1alpha1.LabelBudgetSuspended} {
		var work errgroup.Group
		work.SetLimit(Workers)
		list := r.Client.BatchV1().Jobs(namespace).List
		err := cmdutil.EachItem(ctx, metav1.ListOptions{LabelSelector: selector}, list, func(job *batchv1.Job) {
			work.Go(func() error {
				gone, err := r.release(ctx, job)
				mu.Lock()
				defer mu.Unlock()
				p.seen++
				switch {
				case err != nil:
					p.failed[job.Namespace+"/"+job.Name] = err
				case !gone:
					p.released++
				}
				return nil
			})
		})
		_ = work.Wait() // errors are recorded in p
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// waitsBy returns the label of a Job that is held or suspended because of a budget, or "" if KubEnergy did not
// suspend it.
func waitsBy(job *batchv1.Job) string {
	if job.Labels[v1alpha1.LabelHeld] == "true" {
		return v1alpha1.LabelHeld
	}
	if job.Labels[v1alpha1.LabelBudgetSuspended] != "" {
		return v1alpha1.LabelBudgetSuspended
	}
	return ""
}

// release resumes the Job with a single patch if it is still held and has the same UID. gone is true if it was
// released or deleted meanwhile.
func (r *Releaser) release(ctx context.Context, job *batchv1.Job) (gone bool, err error) {
	jobs := r.Client.BatchV1().Jobs(job.Namespace)
	_, err = jobs.Patch(ctx, job.Name, types.JSONPatchType, Patch(job, r.Now()), metav1.PatchOptions{})
	if err == nil || apierrors.IsNotFound(err) {
		return err != nil, nil
	}
	if apierrors.IsInvalid(err) { // a test operation of the patch failed
		current, errGet := jobs.Get(ctx, job.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(errGet) || errGet == nil &&
			(current.UID != job.UID || waitsBy(current) != waitsBy(job)) {
			return true, nil
		}
	}
	return false, err
}

// Patch returns the patch that removes the label and resumes a Job. A Job in a queue of Kueue is not resumed,
// because Kueue does that.
func Patch(job *batchv1.Job, now time.Time) []byte {
	if waitsBy(job) == v1alpha1.LabelBudgetSuspended {
		return kube.BudgetResumePatch(job, true)
	}
	held := kube.SeenJob(job)
	held.Final = job.Labels[v1alpha1.LabelInterruptible] == "true"
	return held.ReleasePatch(now)
}
