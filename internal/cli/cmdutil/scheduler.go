package cmdutil

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// EndOf is how a Job ended; "": it did not.
func EndOf(job *batchv1.Job) batchv1.JobConditionType {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == v1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// Serving is which names of schedulers are ours, and whether a scheduler serves them.
type Serving struct {
	Configured []string // profiles of the scheduler's configuration, but that of the cluster's own scheduler
	seen       bool     // the configuration
	Runs       bool
}

// usualNames are those that the chart configures.
var usualNames = []string{policy.SchedulerName, policy.GardenerSchedulerName, policy.HybridSchedulerName}

// ReadServing looks at the Leases and the configuration of the installation in a namespace.
func ReadServing(ctx context.Context, client kubernetes.Interface, namespace string, now time.Time) (Serving, error) {
	var s Serving
	s.Configured, s.seen = configuredNames(ctx, client, namespace)
	why, err := kube.Absent(ctx, client, namespace, SchedulerName, now)
	s.Runs = why == ""
	return s, err
}

// WithoutScheduler describes how held Jobs are released if no scheduler runs: by the controller, as controllerDoes
// describes, or not at all. It returns "" if a scheduler runs or if its absence cannot be determined.
func WithoutScheduler(ctx context.Context, client kubernetes.Interface, namespace string, now time.Time,
	controllerDoes string,
) (text string, released bool) {
	why, err := kube.Absent(ctx, client, namespace, SchedulerName, now)
	if why == "" || err != nil {
		return "", true
	}
	text = "no scheduler runs (" + why + ")"
	if why, err = kube.Absent(ctx, client, namespace, ControllerName, now); why != "" && err == nil {
		return text + ", nor does the controller (" + why + "): kubenergy release lets held Jobs start", false
	}
	return text + ": the controller " + controllerDoes, true
}

// configuredNames are the profiles of the scheduler's configuration, but that of the cluster's own scheduler. seen
// reports whether the configuration can be read.
func configuredNames(ctx context.Context, client kubernetes.Interface, namespace string) (names []string, seen bool) {
	config, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, SchedulerName, metav1.GetOptions{})
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

// Names are all that pods may give to a scheduler of ours.
func (s *Serving) Names() []string {
	names := slices.Concat(usualNames, s.Configured)
	slices.Sort(names)
	return slices.Compact(names)
}

// Stranded are those that no scheduler serves.
func (s *Serving) Stranded() []string {
	return slices.DeleteFunc(s.Names(), func(name string) bool {
		return s.Runs && (!s.seen || slices.Contains(s.Configured, name))
	})
}

// MendScheduler returns the shell command that gives o, an object of the given kind whose pods name the given
// scheduler, to the default scheduler. For a pod of a Job, the command replaces the Job. For a pod of any other
// controller, there is no command: the text says what to write into the template of that controller.
func MendScheduler(kind, scheduler string, o metav1.Object) string {
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
