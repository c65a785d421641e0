package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/report"
)

// serving is which names of schedulers are ours, and whether a scheduler serves them.
type serving struct {
	configured []string // profiles of the scheduler's configuration, but that of the cluster's own scheduler
	seen       bool     // the configuration
	runs       bool
}

// usualNames are those that the chart configures.
var usualNames = []string{policy.SchedulerName, policy.GardenerSchedulerName, policy.HybridSchedulerName}

// readServing looks at the Leases and the configuration of the installation in a namespace.
func readServing(ctx context.Context, client kubernetes.Interface, namespace string, now time.Time) (serving, error) {
	var s serving
	s.configured, s.seen = configuredNames(ctx, client, namespace)
	why, err := kube.Absent(ctx, client, namespace, schedulerName, now)
	s.runs = why == ""
	return s, err
}

// withoutScheduler describes how held Jobs are released if no scheduler runs: by the controller, as controllerDoes
// describes, or not at all. It returns "" if a scheduler runs or if its absence cannot be determined.
func withoutScheduler(ctx context.Context, client kubernetes.Interface, namespace string, now time.Time,
	controllerDoes string,
) (text string, released bool) {
	why, err := kube.Absent(ctx, client, namespace, schedulerName, now)
	if why == "" || err != nil {
		return "", true
	}
	text = "no scheduler runs (" + why + ")"
	if why, err = kube.Absent(ctx, client, namespace, controllerName, now); why != "" && err == nil {
		return text + ", nor does the controller (" + why + "): kubenergy release lets held Jobs start", false
	}
	return text + ": the controller " + controllerDoes, true
}

// configuredNames are the profiles of the scheduler's configuration, but that of the cluster's own scheduler. seen
// reports whether the configuration can be read.
func configuredNames(ctx context.Context, client kubernetes.Interface, namespace string) (names []string, seen bool) {
	config, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, schedulerName, metav1.GetOptions{})
	if err != nil {
		return nil, false
	}
	var file struct {
		Profiles []struct {
			SchedulerName string `json:"schedulerName"`
		} `json:"profiles"`
	}
	if yaml.Unmarshal([]byte(config.Data["scheduler.yaml"]), &file) != nil {
		return nil, false
	}
	for _, p := range file.Profiles {
		if p.SchedulerName != v1.DefaultSchedulerName { // which the cluster's own scheduler serves as well
			names = append(names, p.SchedulerName)
		}
	}
	return names, true
}

// names are all that pods may give to a scheduler of ours.
func (s *serving) names() []string {
	names := slices.Concat(usualNames, s.configured)
	slices.Sort(names)
	return slices.Compact(names)
}

// stranded are those that no scheduler serves.
func (s *serving) stranded() []string {
	return slices.DeleteFunc(s.names(), func(name string) bool {
		return s.runs && (!s.seen || slices.Contains(s.configured, name))
	})
}

// dependents are the objects of one kind whose pods name a scheduler.
type dependents struct {
	kind, scheduler string
	objects         []metav1.Object
}

// dependencies looks for what names some schedulers.
type dependencies struct {
	client    kubernetes.Interface
	namespace string
	names     []string

	found  []dependents
	unseen map[string]error // kinds that could not be listed
}

// findDependents returns what names one of some schedulers: pods that wait for a node, and with templates also Jobs,
// CronJobs and Deployments; the pods of those that are found are then left out.
func findDependents(ctx context.Context, client kubernetes.Interface, namespace string, names []string,
	templates bool,
) *dependencies {
	d := &dependencies{client: client, namespace: namespace, names: names, unseen: map[string]error{}}
	if templates {
		d.findTemplates(ctx)
	}
	for _, name := range names {
		d.note("pods", eachItem(ctx, metav1.ListOptions{
			FieldSelector: "status.phase=Pending,spec.nodeName=,spec.schedulerName=" + name,
		}, client.CoreV1().Pods(namespace).List, func(pod *v1.Pod) {
			if !d.hasTemplate(pod) {
				d.take("pod", name, pod)
			}
		}))
	}
	return d
}

func (d *dependencies) findTemplates(ctx context.Context) {
	d.note("Jobs", eachItem(ctx, metav1.ListOptions{}, d.client.BatchV1().Jobs(d.namespace).List,
		func(job *batchv1.Job) {
			placed := job.Status.Active > 0 && ptr.Deref(job.Status.Ready, 0) >= job.Status.Active
			if endOf(job) == "" && !placed {
				d.takeNamed("Job", job, &job.Spec.Template)
			}
		}))
	d.note("CronJobs", eachItem(ctx, metav1.ListOptions{}, d.client.BatchV1().CronJobs(d.namespace).List,
		func(c *batchv1.CronJob) { d.takeNamed("CronJob", c, &c.Spec.JobTemplate.Spec.Template) }))
	d.note("Deployments", eachItem(ctx, metav1.ListOptions{}, d.client.AppsV1().Deployments(d.namespace).List,
		func(o *appsv1.Deployment) { d.takeNamed("Deployment", o, &o.Spec.Template) }))
}

func (d *dependencies) note(what string, err error) {
	if err != nil {
		d.unseen[what] = err
	}
}

func (d *dependencies) takeNamed(kind string, o metav1.Object, template *v1.PodTemplateSpec) {
	if slices.Contains(d.names, template.Spec.SchedulerName) {
		d.take(kind, template.Spec.SchedulerName, o)
	}
}

func (d *dependencies) take(kind, scheduler string, o metav1.Object) {
	for i := range d.found {
		if f := &d.found[i]; f.kind == kind && f.scheduler == scheduler {
			f.objects = append(f.objects, o)
			return
		}
	}
	d.found = append(d.found, dependents{kind, scheduler, []metav1.Object{o}})
}

// hasTemplate reports whether a pod is made from a template that was found.
func (d *dependencies) hasTemplate(pod *v1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return false
	}
	kind, name := owner.Kind, owner.Name
	if kind == "ReplicaSet" { // a Deployment names its ReplicaSets so
		kind = "Deployment"
		name = strings.TrimSuffix(name, "-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey])
	}
	return slices.ContainsFunc(d.found, func(f dependents) bool {
		return f.kind == kind && slices.ContainsFunc(f.objects, func(o metav1.Object) bool {
			return o.GetNamespace() == pod.Namespace && o.GetName() == name
		})
	})
}

// String says which objects these are, and what happens to them.
func (d *dependents) String() string {
	names := report.Each(d.objects, func(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() })
	one := len(names) == 1
	text := "name the scheduler %s, and their pods stay"
	switch {
	case d.kind == "pod" && one:
		text = "waits for the scheduler %s, and stays"
	case d.kind == "pod":
		text = "wait for the scheduler %s, and stay"
	case one:
		text = "names the scheduler %s, and its pods stay"
	}
	return fmt.Sprintf("%s "+text+" pending while no such scheduler runs: %s", count(len(names), d.kind), d.scheduler,
		report.Few(3, names))
}

// mend is a command that gives the first of the objects to the cluster's own scheduler.
func (d *dependents) mend() string {
	command := mendScheduler(d.kind, d.scheduler, d.objects[0])
	if len(d.objects) > 1 {
		command += "   # and likewise for the others"
	}
	return command
}

func mendScheduler(kind, scheduler string, o metav1.Object) string {
	const named = `{"spec":{"schedulerName":"` + v1.DefaultSchedulerName + `"}}`
	of, name := "kubectl -n "+o.GetNamespace(), o.GetName()
	switch kind {
	case "Deployment":
		return fmt.Sprintf(`%s patch deployment %s -p '{"spec":{"template":%s}}'`, of, name, named)
	case "CronJob":
		return fmt.Sprintf(`%s patch cronjob %s -p '{"spec":{"jobTemplate":{"spec":{"template":%s}}}}'`, of,
			name, named)
	}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && kind == "pod" {
		if owner.Kind != "Job" {
			return fmt.Sprintf("write schedulerName: %s into the template of %s %s", v1.DefaultSchedulerName,
				owner.Kind, owner.Name)
		}
		kind, name = owner.Kind, owner.Name
	}
	// Nothing changes it in a pod, or in the template of a Job: both are made anew, a Job with a selector of its own.
	return fmt.Sprintf("%s get %s %s -o yaml | sed '/controller-uid: /d; s/schedulerName: %s$/schedulerName: %s/' | "+
		"kubectl replace --force -f -", of, strings.ToLower(kind), name, scheduler, v1.DefaultSchedulerName)
}

// lookAtStranded finds what waits for a scheduler that does not run.
func (d *doctor) lookAtStranded(ctx context.Context) {
	s, err := readServing(ctx, d.client, d.namespace, d.now())
	if err != nil {
		d.unseen("Leases in "+d.namespace, err)
		return
	}
	names := s.stranded()
	if len(names) == 0 {
		d.ok("a scheduler serves pods that name %s", orOf(s.names()))
		return
	}
	all := findDependents(ctx, d.client, v1.NamespaceAll, names, true)
	for _, what := range slices.Sorted(maps.Keys(all.unseen)) {
		d.unseen(what, all.unseen[what])
	}
	for i := range all.found {
		f, status, mend := &all.found[i], statusFail, all.found[i].mend()
		// Another system may serve a name that ours is not configured for.
		if f.scheduler != policy.SchedulerName && !slices.Contains(s.configured, f.scheduler) {
			status, mend = statusWarn, "where no other system serves that name: "+mend
		}
		d.say(status, mend, "%s", f)
	}
	if len(all.found)+len(all.unseen) == 0 {
		d.ok("no scheduler serves pods that name %s, and nothing does", orOf(names))
	}
}

// noteDependents tells of what names a scheduler of ours: nothing written on it holds it, but without one of these
// schedulers its pods stay pending. What the user may not list is named.
func (r *releaser) noteDependents(ctx context.Context, w io.Writer, namespace string, uninstalls bool) {
	s, err := readServing(ctx, r.client, v1alpha1.SystemNamespace, r.now())
	all := findDependents(ctx, r.client, namespace, s.names(), uninstalls || err != nil || !s.runs)
	for i := range all.found {
		fmt.Fprintf(w, "%s\n  → %s\n", &all.found[i], all.found[i].mend())
	}
	for _, what := range slices.Sorted(maps.Keys(all.unseen)) {
		fmt.Fprintf(w, "not seen: %s: %s\n", what, because(all.unseen[what]))
	}
}
