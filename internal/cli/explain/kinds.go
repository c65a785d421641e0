package explain

import (
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// subject is the common representation of pods and Jobs. A CronJob is represented by the Job that it would create
// now, a Deployment by one of its pods, and a namespace by a Job without settings.
type subject struct {
	kind   string
	object metav1.Object
	pod    *v1.Pod          // for a Job, a pod of its template
	job    *batchv1.Job     // nil if it is not a Job
	cron   *batchv1.CronJob // owner of the Job, or nil
	ready  string           // number of ready pods of a Deployment, as text
	above  []policy.Finding // problems of keys on a CronJob or Deployment instead of its template
	work   policy.Work
	err    error // error of invalid annotations
}

// titles maps kinds to their names in errors.
var titles = map[string]string{
	cmdutil.KindJob: "Job", cmdutil.KindPod: "pod", cmdutil.KindCronJob: "CronJob",
	cmdutil.KindDeployment: "Deployment", cmdutil.KindNamespace: "namespace",
}

func (e *Explainer) read(ctx context.Context, kind, namespace, name string) (*subject, error) {
	s, err := e.get(ctx, kind, namespace, name)
	switch {
	case err != nil && kind == cmdutil.KindNamespace:
		return nil, fmt.Errorf("reading namespace %s: %s", name, cmdutil.Because(err))
	case apierrors.IsNotFound(err) && kind == cmdutil.KindJob && strings.HasPrefix(name, "slurm-"):
		return nil, fmt.Errorf("job %s/%s is not waiting: see kubenergy decisions -n %s for its decisions, and the "+
			"log of kubenergy-slurm for the reason why a job was not delayed", namespace, name, namespace)
	case err != nil:
		return nil, fmt.Errorf("reading %s %s/%s: %s", titles[kind], namespace, name,
			cmdutil.Elsewhere(ctx, e, err, kind, name))
	}
	s.kind = kind
	s.work, s.err = policy.Read(s.object)
	return s, nil
}

// get reads an object. If it returns an error, the object is empty.
func (e *Explainer) get(ctx context.Context, kind, namespace, name string) (*subject, error) {
	switch kind {
	case cmdutil.KindPod:
		pod, err := e.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return &subject{object: pod, pod: pod}, err
	case cmdutil.KindCronJob:
		c, err := e.BatchV1().CronJobs(namespace).Get(ctx, name, metav1.GetOptions{})
		s := ofJob(kube.NextRun(c, e.Now))
		s.cron = c
		s.above = policy.FindCronJob(c)
		return s, err
	case cmdutil.KindDeployment:
		d, err := e.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		pod := podOf(namespace, &d.Spec.Template)
		pod.Name = d.Name
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "of " + d.Name, Controller: new(true)}}
		ready := fmt.Sprintf("%d of %s ready", d.Status.ReadyReplicas,
			humanize.Count(int(ptr.Deref(d.Spec.Replicas, 1)), "pod"))
		above := policy.FindAbove("Deployment", "spec.template.metadata", d, &d.Spec.Template)
		return &subject{object: pod, pod: pod, ready: ready, above: above}, err
	case cmdutil.KindNamespace:
		_, err := e.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			err = nil // lacks reports resources that may not be read
		}
		return ofJob(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: name}}), err
	}
	job, err := e.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	return ofJob(job), err
}

func ofJob(job *batchv1.Job) *subject {
	return &subject{object: job, job: job, pod: podOf(job.Namespace, &job.Spec.Template)}
}

// podOf returns the pod that a template creates.
func podOf(namespace string, template *v1.PodTemplateSpec) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: template.Spec}
	pod.Namespace = namespace
	return pod
}

// cronJobState describes when the next Job is created and whether it may be held.
func (e *Explainer) cronJobState(s *subject, job *sched.Job, settings *policy.Settings) {
	tick, err := kube.NextTick(s.cron, e.Now.UTC())
	switch {
	case err != nil:
		e.set(StateSuspended, "The schedule is invalid, so its Jobs are not held: %s.", cmdutil.OneLine(err))
		return
	case tick.IsZero():
		e.set(StateSuspended, "Its schedule never creates a Job.")
		return
	case ptr.Deref(s.cron.Spec.Suspend, false):
		e.set(StateSuspended, "It is suspended and creates no Jobs until a user resumes it.")
		return
	}
	e.set(StateScheduled, "The next Job is created at %s", e.clock(tick))
	e.out.NextRun = &tick
	for _, f := range kube.FindRuns(e.View, s.cron, s.job) {
		e.out.Warnings = append(e.out.Warnings, humanize.Plain(f.String(), e.Now))
	}
	why := e.notHeld(s, job, settings)
	if latest, err := kube.LatestRun(s.cron, tick, job.Duration); err == nil && !latest.IsZero() && why == "" {
		if job.AllowedDelay = min(job.AllowedDelay, max(0, latest.Sub(tick))); job.AllowedDelay == 0 {
			why = "the next one leaves no time to wait (concurrencyPolicy " +
				string(s.cron.Spec.ConcurrencyPolicy) + ")"
		}
	}
	switch latest := tick.Add(job.AllowedDelay); {
	case why != "":
		e.out.Sentence += ", but will not be held: " + why + "." + e.wouldHold(s, *job, settings)
	case e.noMode:
		e.out.Sentence += ", but it is unknown whether it may be held."
	default:
		e.out.LatestStart = &latest
		e.out.Sentence += fmt.Sprintf(" and may be held until %s. The decision is made at that time. The decision "+
			"below is for a Job that is created now.", e.clock(latest))
	}
}

// namespaceState describes the settings of a namespace for a Job without settings of its own.
func (e *Explainer) namespaceState(ctx context.Context, s *subject, settings *policy.Settings) {
	name := s.object.GetNamespace()
	_, optedIn := e.View.Mode(name)
	why, never := policy.NeverHeld(s.object)
	switch {
	case never:
		e.set(StateNotIn, "No workload is held: %s.", why)
	case e.noMode:
		e.set(UnknownMode, "It is unknown whether the namespace has opted in.")
	case !optedIn:
		e.set(StateNotIn, "The namespace has not opted in. Only annotated workloads are managed, in mode %s (%s). To "+
			"opt in: kubectl label namespace %s %s=shadow --overwrite.", settings.Mode,
			cmdutil.ModeMeans[settings.Mode], name, v1alpha1.LabelMode)
	case settings.AllowedDelay > 0:
		e.set(StateOptedIn, "The mode is %s: %s. Jobs without annotations may be held for at most %v.", settings.Mode,
			cmdutil.ModeMeans[settings.Mode], settings.AllowedDelay)
	default:
		e.set(StateOptedIn, "The mode is %s: %s. Only workloads with the annotation %s may be held, because no delay "+
			"is allowed by default.", settings.Mode, cmdutil.ModeMeans[settings.Mode], v1alpha1.AnnotationAllowedDelay)
	}
	e.heldIn(ctx, name)
	e.policyOf(ctx, name)
	e.budgetsOf(ctx, name)
}

// heldIn adds the number of held Jobs.
func (e *Explainer) heldIn(ctx context.Context, namespace string) {
	held := 0
	err := cmdutil.EachItem(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHeld + "=true"},
		e.BatchV1().Jobs(namespace).List, func(*batchv1.Job) { held++ })
	if err != nil {
		e.unseen("held Jobs: " + cmdutil.Because(err))
		return
	}
	if held > 0 {
		e.out.Sentence += fmt.Sprintf(" %s currently held: see kubenergy held -n %s.",
			humanize.Plural(held, "Job is", "Jobs are"), namespace)
	}
}

// policyOf adds the shadow statistics and the problems of the namespace's own policy.
func (e *Explainer) policyOf(ctx context.Context, namespace string) {
	var p v1alpha1.EnergyPolicy
	path := cmdutil.ResourcePath + "namespaces/" + namespace + "/energypolicies/" + v1alpha1.PolicyName
	if cmdutil.GetJSON(ctx, e.Cluster, path, &p) != nil {
		return // it does not exist, or lacks has reported that it cannot be read
	}
	if err := policy.ReadPolicy(&p); err != nil {
		e.out.Warnings = append(e.out.Warnings, "EnergyPolicy is ignored: "+cmdutil.OneLine(err))
	}
	for _, f := range e.View.FindPolicy(namespace) {
		e.out.Warnings = append(e.out.Warnings, "EnergyPolicy: "+f.String())
	}
	if c := p.Status.Shadow; c != nil && c.Decided > 0 {
		e.out.Sentence += fmt.Sprintf(" Decisions that were not applied: %d of %d would have been holds and saved an "+
			"estimated %.4g gCO2e.", c.Held, c.Decided, c.SavedGrams)
		if e.Settled.Mode != v1alpha1.ModeEnforce {
			e.out.Sentence += " To enforce decisions: " + policy.EnforceCommand(namespace, "") + "."
		}
	}
}

// budgetsOf lists the budgets of the namespace.
func (e *Explainer) budgetsOf(ctx context.Context, namespace string) {
	var list v1alpha1.EnergyBudgetList
	if cmdutil.GetJSON(ctx, e.Cluster, cmdutil.ResourcePath+"namespaces/"+namespace+"/energybudgets", &list) != nil {
		return // as in policyOf
	}
	for _, b := range list.Items {
		used := dashboard.UsedBudget{
			Name: b.Name, Period: b.Spec.Period.Type, Percent: b.Status.Percent, Suspended: b.Status.Suspended,
		}
		if policy.Closes(&b) {
			used.ClosedUntil = &b.Status.ClosedUntil.Time
		}
		e.out.Budgets = append(e.out.Budgets, used)
	}
}
