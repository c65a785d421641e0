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

// EndOf returns the type of the condition with which a Job finished, or "" if it has not finished.
func EndOf(job *batchv1.Job) batchv1.JobConditionType {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == v1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// Serving describes the scheduler names of KubEnergy and whether a scheduler serves them.
type Serving struct {
	Configured []string // profiles of the scheduler's configuration, except the default scheduler
	replaces   bool     // the configuration has a profile of the default scheduler
	seen       bool     // whether the configuration could be read
	Runs       bool
}

// usualNames are the scheduler names configured by the chart.
var usualNames = []string{policy.SchedulerName, policy.GardenerSchedulerName, policy.HybridSchedulerName}

// ReadServing reads the Leases and the scheduler configuration in a namespace.
func ReadServing(ctx context.Context, client kubernetes.Interface, namespace string, now time.Time) (Serving, error) {
	var s Serving
	all, seen := configuredNames(ctx, client, namespace)
	// Also served by the default scheduler.
	isDefault := func(name string) bool { return name == v1.DefaultSchedulerName }
	s.replaces, s.seen = slices.ContainsFunc(all, isDefault), seen
	s.Configured = slices.DeleteFunc(all, isDefault)
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
	text = "no scheduler is running (" + why + ")"
	if why, err = kube.Absent(ctx, client, namespace, ControllerName, now); why != "" && err == nil {
		return text + ", and neither is the controller (" + why + "): use kubenergy release to start held Jobs", false
	}
	return text + ", so the controller " + controllerDoes, true
}

// configuredNames returns the profiles of the scheduler's configuration. seen reports whether it could be read.
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
		names = append(names, p.SchedulerName)
	}
	return names, true
}

// Names returns all scheduler names of KubEnergy that pods may use.
func (s *Serving) Names() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(usualNames, s.Configured))))
}

// Places reports whether KubEnergy places pods with this scheduler name.
func (s *Serving) Places(name string) bool {
	return slices.Contains(s.Names(), name) || s.replaces && name == v1.DefaultSchedulerName
}

// Stranded returns the names that no scheduler serves.
func (s *Serving) Stranded() []string {
	return slices.DeleteFunc(s.Names(), func(name string) bool {
		return s.Runs && (!s.seen || slices.Contains(s.Configured, name))
	})
}

// MendScheduler returns a shell command that moves o, an object of the given kind with pods that use the given
// scheduler, to the default scheduler. For a pod of a Job, the command replaces the Job. For a pod of any other
// controller, it returns an instruction to change the template of that controller.
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
			return fmt.Sprintf("set schedulerName: %s in the template of %s %s", v1.DefaultSchedulerName,
				owner.Kind, owner.Name)
		}
		kind, name = owner.Kind, owner.Name
	}
	// The field is immutable in pods and in the templates of Jobs, so the object is replaced. A Job gets a new
	// selector.
	return fmt.Sprintf("%s get %s %s -o yaml | sed '/controller-uid: /d; s/schedulerName: %s$/schedulerName: %s/' | "+
		"kubectl replace --force -f -", of, strings.ToLower(kind), name, scheduler, v1.DefaultSchedulerName)
}
