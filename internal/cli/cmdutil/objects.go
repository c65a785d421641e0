package cmdutil

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// GetJSON reads an object of a kind that client-go does not support.
func GetJSON(ctx context.Context, client kubernetes.Interface, path string, into any) error {
	data, err := client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").
		Do(ctx).Raw() // unlike the error of DoRaw, its error is the message of the API server
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// Elsewhere is like [Because], but for a missing Job, CronJob or pod it adds the namespaces that contain one of this
// name, as far as the user may list them.
func Elsewhere(ctx context.Context, client kubernetes.Interface, err error, kind, name string) string {
	text := Because(err)
	if !apierrors.IsNotFound(err) {
		return text
	}
	var found []string
	note := func(o metav1.Object) {
		if o.GetName() == name {
			found = append(found, "-n "+o.GetNamespace())
		}
	}
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	switch kind { // if the lists fail, only the missing object is reported
	case KindJob:
		_ = EachItem(ctx, options, client.BatchV1().Jobs("").List, func(j *batchv1.Job) { note(j) })
	case KindCronJob:
		_ = EachItem(ctx, options, client.BatchV1().CronJobs("").List, func(c *batchv1.CronJob) { note(c) })
	case KindPod:
		_ = EachItem(ctx, options, client.CoreV1().Pods("").List, func(p *v1.Pod) { note(p) })
	}
	if len(found) > 0 {
		text += ", but it exists with " + humanize.Few(3, found)
	}
	return text
}

// ResourcePath is the path of the API group and version of KubEnergy, with a trailing slash.
var ResourcePath = "/apis/" + v1alpha1.GroupVersion.String() + "/"

// ModeMeans describes the effect of each mode.
var ModeMeans = map[v1alpha1.Mode]string{
	v1alpha1.ModeOff:     "no decisions are made",
	v1alpha1.ModeShadow:  "decisions are counted but not applied",
	v1alpha1.ModeAdvise:  "decisions are reported as events but not applied",
	v1alpha1.ModeEnforce: "decisions are applied",
}

// ListZones returns the GridZones, or none if the cluster does not have this kind.
func ListZones(ctx context.Context, client kubernetes.Interface) ([]v1alpha1.GridZone, error) {
	var list v1alpha1.GridZoneList
	if err := GetJSON(ctx, client, ResourcePath+"gridzones", &list); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return list.Items, nil
}

// ValueOf formats a value with its unit.
func ValueOf(v float64, unit string) string {
	if strings.HasPrefix(unit, "g") {
		return fmt.Sprintf("%.0f %s", v, unit)
	}
	return fmt.Sprintf("%.4g %s", v, unit)
}

// VariablesOf returns the environment variables of a Deployment's containers. dep may be nil.
func VariablesOf(dep *appsv1.Deployment) map[string]v1.EnvVar {
	all := map[string]v1.EnvVar{}
	for _, c := range ptr.Deref(dep, appsv1.Deployment{}).Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			all[e.Name] = e
		}
	}
	return all
}

// EnvironOf returns the environment variables of a Deployment as KEY=VALUE. Values from other sources such as
// Secrets are unknown. These variables are only included, with a placeholder, if only their presence matters.
func EnvironOf(dep *appsv1.Deployment) (environ []string) {
	for name, e := range VariablesOf(dep) {
		switch {
		case e.ValueFrom == nil:
			environ = append(environ, name+"="+e.Value)
		case !policy.SharedVariable(name):
			environ = append(environ, name+"=set")
		}
	}
	return environ
}

// DefaultsOf returns the default settings, as modified by the environment variables of the scheduler.
func DefaultsOf(scheduler *appsv1.Deployment) policy.Defaults {
	d, _ := policy.AliasEnvironment(policy.SchedulerProgram, EnvironOf(scheduler), nil, policy.BuiltIn())
	return d
}

// ReadDefaults returns the default settings from the scheduler's Deployment, or the built-in ones if it does not
// exist.
func ReadDefaults(ctx context.Context, client kubernetes.Interface) (policy.Defaults, error) {
	dep, err := client.AppsV1().Deployments(v1alpha1.SystemNamespace).Get(ctx, SchedulerName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return policy.BuiltIn(), nil
	case err != nil:
		return policy.BuiltIn(), fmt.Errorf("environment variables of the scheduler: %s", Because(err))
	}
	return DefaultsOf(dep), nil
}

// Lateness is the tolerated delay of a Job after its latest start.
const Lateness = time.Minute

// HeldMarks contains the annotations that the hold loop sets on a held Job.
type HeldMarks struct {
	Until, Latest *time.Time
	Reason        string
}

// ReadWritten parses the annotations of a held Job. A time that is missing or not in RFC 3339 is nil.
func ReadWritten(annotations map[string]string) (w HeldMarks) {
	in := func(key string) *time.Time {
		t, err := time.Parse(time.RFC3339, annotations[key])
		if err != nil {
			return nil
		}
		return &t
	}
	return HeldMarks{
		in(v1alpha1.AnnotationHeldUntil), in(v1alpha1.AnnotationLatestStart),
		annotations[v1alpha1.AnnotationHeldReason],
	}
}

// HeldMessage returns the message that the hold loop set on a pending pod, or "" if the pod is not held. In modes
// other than enforce it may be left over from a previous hold.
func HeldMessage(pod *v1.Pod) string {
	c := policy.Scheduled(pod)
	if pod.Spec.NodeName != "" || len(pod.Spec.SchedulingGates) > 0 || c.Reason != v1.PodReasonSchedulingGated {
		return ""
	}
	return strings.TrimSuffix(c.Message, ".")
}
