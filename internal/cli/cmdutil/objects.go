package cmdutil

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// GetJSON reads an object of a kind that client-go does not know.
func GetJSON(ctx context.Context, client kubernetes.Interface, path string, into any) error {
	data, err := client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").
		Do(ctx).Raw() // whose error, unlike that of DoRaw, is what the API server said
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// ResourcePath is the path of KubEnergy's API group and version at the API server, with a slash at its end.
var ResourcePath = "/apis/" + v1alpha1.GroupVersion.String() + "/"

// ModeMeans says what a mode does.
var ModeMeans = map[v1alpha1.Mode]string{
	v1alpha1.ModeOff:     "nothing is decided",
	v1alpha1.ModeShadow:  "decisions are counted, nothing is touched",
	v1alpha1.ModeAdvise:  "decisions are told as events, nothing is touched",
	v1alpha1.ModeEnforce: "decisions are carried out",
}

// ListZones returns the GridZones, none where the cluster has no such kind.
func ListZones(ctx context.Context, client kubernetes.Interface) ([]v1alpha1.GridZone, error) {
	var list v1alpha1.GridZoneList
	if err := GetJSON(ctx, client, ResourcePath+"gridzones", &list); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return list.Items, nil
}

// ValueOf shows a value with its unit.
func ValueOf(v float64, unit string) string {
	if strings.HasPrefix(unit, "g") {
		return fmt.Sprintf("%.0f %s", v, unit)
	}
	return fmt.Sprintf("%.4g %s", v, unit)
}

// VariablesOf are the environment variables that a Deployment gives its containers; nil has none.
func VariablesOf(dep *appsv1.Deployment) map[string]v1.EnvVar {
	all := map[string]v1.EnvVar{}
	if dep == nil {
		return all
	}
	for i := range dep.Spec.Template.Spec.Containers {
		for _, e := range dep.Spec.Template.Spec.Containers[i].Env {
			all[e.Name] = e
		}
	}
	return all
}

// EnvironOf are the same as a program sees them. A value that stands elsewhere, as in a Secret, is not known: only
// variables of which no more counts than that they are set are there.
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

// DefaultsOf are what holds where no policy says anything, as the variables of the scheduler change it.
func DefaultsOf(scheduler *appsv1.Deployment) policy.Defaults {
	d, _ := policy.AliasEnvironment(policy.SchedulerProgram, EnvironOf(scheduler), nil, policy.BuiltIn())
	return d
}

// ReadDefaults reads the scheduler's Deployment for [DefaultsOf]. Without it, what is built in holds.
func ReadDefaults(ctx context.Context, client kubernetes.Interface) (policy.Defaults, error) {
	dep, err := client.AppsV1().Deployments(v1alpha1.SystemNamespace).Get(ctx, SchedulerName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return policy.BuiltIn(), nil
	case err != nil:
		return policy.BuiltIn(), fmt.Errorf("the variables of the scheduler: %s", Because(err))
	}
	return DefaultsOf(dep), nil
}
