package release

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// dependents are the objects of one kind with pods that use a scheduler.
type dependents struct {
	kind, Scheduler string
	objects         []metav1.Object
}

// Dependencies collects the objects that use one of the given schedulers.
type Dependencies struct {
	client    kubernetes.Interface
	namespace string
	names     []string

	Found  []dependents
	Unseen map[string]error // kinds that could not be listed
}

// FindDependents returns the pending pods that use one of the given schedulers. If templates is true, it also
// returns Jobs, CronJobs and Deployments, and omits their pods.
func FindDependents(ctx context.Context, client kubernetes.Interface, namespace string, names []string,
	templates bool,
) *Dependencies {
	d := &Dependencies{client: client, namespace: namespace, names: names, Unseen: map[string]error{}}
	if templates {
		d.findTemplates(ctx)
	}
	for _, name := range names {
		d.note("pods", cmdutil.EachItem(ctx, metav1.ListOptions{
			FieldSelector: "status.phase=Pending,spec.nodeName=,spec.schedulerName=" + name,
		}, client.CoreV1().Pods(namespace).List, func(pod *v1.Pod) {
			if !d.hasTemplate(pod) {
				d.take("pod", name, pod)
			}
		}))
	}
	return d
}

func (d *Dependencies) findTemplates(ctx context.Context) {
	d.note("Jobs", cmdutil.EachItem(ctx, metav1.ListOptions{}, d.client.BatchV1().Jobs(d.namespace).List,
		func(job *batchv1.Job) {
			placed := job.Status.Active > 0 && ptr.Deref(job.Status.Ready, 0) >= job.Status.Active
			if cmdutil.EndOf(job) == "" && !placed {
				d.takeNamed("Job", job, &job.Spec.Template)
			}
		}))
	d.note("CronJobs", cmdutil.EachItem(ctx, metav1.ListOptions{}, d.client.BatchV1().CronJobs(d.namespace).List,
		func(c *batchv1.CronJob) { d.takeNamed("CronJob", c, &c.Spec.JobTemplate.Spec.Template) }))
	d.note("Deployments", cmdutil.EachItem(ctx, metav1.ListOptions{}, d.client.AppsV1().Deployments(d.namespace).List,
		func(o *appsv1.Deployment) { d.takeNamed("Deployment", o, &o.Spec.Template) }))
}

func (d *Dependencies) note(what string, err error) {
	if err != nil {
		d.Unseen[what] = err
	}
}

func (d *Dependencies) takeNamed(kind string, o metav1.Object, template *v1.PodTemplateSpec) {
	if slices.Contains(d.names, template.Spec.SchedulerName) {
		d.take(kind, template.Spec.SchedulerName, o)
	}
}

func (d *Dependencies) take(kind, scheduler string, o metav1.Object) {
	for i := range d.Found {
		if f := &d.Found[i]; f.kind == kind && f.Scheduler == scheduler {
			f.objects = append(f.objects, o)
			return
		}
	}
	d.Found = append(d.Found, dependents{kind, scheduler, []metav1.Object{o}})
}

// hasTemplate reports whether a pod was created from a template that was found.
func (d *Dependencies) hasTemplate(pod *v1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return false
	}
	kind, name := owner.Kind, owner.Name
	if kind == "ReplicaSet" { // naming scheme of the Deployment controller
		kind = "Deployment"
		name = strings.TrimSuffix(name, "-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey])
	}
	return slices.ContainsFunc(d.Found, func(f dependents) bool {
		return f.kind == kind && slices.ContainsFunc(f.objects, func(o metav1.Object) bool {
			return o.GetNamespace() == pod.Namespace && o.GetName() == name
		})
	})
}

// String describes the objects and the consequences for their pods.
func (d *dependents) String() string {
	names := sliceutil.Map(d.objects, func(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() })
	one := len(names) == 1
	text := "use the scheduler %s, and their pods remain"
	switch {
	case d.kind == "pod" && one:
		text = "is waiting for the scheduler %s and remains"
	case d.kind == "pod":
		text = "are waiting for the scheduler %s and remain"
	case one:
		text = "uses the scheduler %s, and its pods remain"
	}
	return fmt.Sprintf("%s "+text+" pending while no such scheduler is running: %s", humanize.Count(len(names), d.kind),
		d.Scheduler, humanize.Few(3, names))
}

// Mend returns a command that moves the first object to the default scheduler.
func (d *dependents) Mend() string {
	command := cmdutil.MendScheduler(d.kind, d.Scheduler, d.objects[0])
	if len(d.objects) > 1 {
		command += "   # repeat for the others"
	}
	return command
}

// NoteDependents prints the objects that use a scheduler of KubEnergy. They are not held, but without such a
// scheduler their pods remain pending. It also prints the kinds that could not be listed.
func (r *Releaser) NoteDependents(ctx context.Context, w io.Writer, namespace string, uninstalls bool) {
	s, err := cmdutil.ReadServing(ctx, r.Client, v1alpha1.SystemNamespace, r.Now())
	all := FindDependents(ctx, r.Client, namespace, s.Names(), uninstalls || err != nil || !s.Runs)
	for _, f := range all.Found {
		fmt.Fprintf(w, "%s\n  → %s\n", &f, f.Mend())
	}
	for _, what := range slices.Sorted(maps.Keys(all.Unseen)) {
		fmt.Fprintf(w, "Failed to list %s: %s\n", what, cmdutil.Because(all.Unseen[what]))
	}
}
