package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// variablesOf are the environment variables that a Deployment gives its containers; nil has none.
func variablesOf(dep *appsv1.Deployment) map[string]v1.EnvVar {
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

// environOf are the same as a program sees them. A value that stands elsewhere, as in a Secret, is not known: only
// variables of which no more counts than that they are set are there.
func environOf(dep *appsv1.Deployment) (environ []string) {
	for name, e := range variablesOf(dep) {
		switch {
		case e.ValueFrom == nil:
			environ = append(environ, name+"="+e.Value)
		case !policy.SharedVariable(name):
			environ = append(environ, name+"=set")
		}
	}
	return environ
}

// defaultsOf are what holds where no policy says anything, as the variables of the scheduler change it.
func defaultsOf(scheduler *appsv1.Deployment) policy.Defaults {
	d, _ := policy.AliasEnvironment(policy.SchedulerProgram, environOf(scheduler), nil, policy.BuiltIn())
	return d
}

// readDefaults reads the scheduler's Deployment for [defaultsOf]. Without it, what is built in holds.
func readDefaults(ctx context.Context, client kubernetes.Interface) (policy.Defaults, error) {
	dep, err := client.AppsV1().Deployments(v1alpha1.SystemNamespace).Get(ctx, schedulerName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return policy.BuiltIn(), nil
	case err != nil:
		return policy.BuiltIn(), fmt.Errorf("the variables of the scheduler: %s", because(err))
	}
	return defaultsOf(dep), nil
}

// knowledge is what the cluster knows of grids, hardware and policies, read once.
func (d *doctor) knowledge(ctx context.Context) (*kube.View, error) {
	if d.view == nil {
		view, _, err := kube.ListView(ctx, d.config, "", defaultsOf(d.deployments[schedulerName]))
		if err != nil {
			return nil, err
		}
		d.view = view
	}
	return d.view, nil
}

// lookAtVariables tells of variables of Compute Gardener that do nothing where they are set, or that scheduler and
// controller read differently.
func (d *doctor) lookAtVariables(ctx context.Context) {
	scheduler, controller := d.deployments[schedulerName], d.deployments[controllerName]
	if scheduler == nil && controller == nil {
		return
	}
	before := len(d.findings)
	most := policy.BuiltIn().MaxDelay
	if d.policy != nil && d.policy.Spec.MaxDelay != nil {
		most = d.policy.Spec.MaxDelay.Duration
	}
	for _, program := range []string{schedulerName, controllerName} {
		environ := environOf(d.deployments[program])
		_, found := policy.AliasEnvironment(program, environ, nil, policy.BuiltIn())
		d.sayOf(program, append(found, policy.FindDelay(environ, most)...))
	}
	if zones, err := listZones(ctx, d.client); err == nil { // else another check tells
		d.sayOf(controllerName, policy.FindKey(environOf(controller), slices.ContainsFunc(zones, namesGardenerKey)))
		priced := slices.ContainsFunc(zones, func(z v1alpha1.GridZone) bool { return z.Status.Price != nil })
		if on, _ := strconv.ParseBool(variablesOf(scheduler)["PRICING_ENABLED"].Value); on && !priced {
			d.say(statusWarn, "give a GridZone prices", "%s: PRICING_ENABLED holds nothing: no GridZone has prices",
				schedulerName)
		}
	}
	if scheduler != nil && controller != nil {
		d.compareVariables(variablesOf(scheduler), variablesOf(controller))
	}
	if len(d.findings) == before {
		d.ok("no variable of Compute Gardener is set in vain")
	}
}

// sayOf tells what is wrong with the variables of a program.
func (d *doctor) sayOf(program string, found []policy.Finding) {
	for _, f := range found {
		d.say(statusWarn, cmp.Or(f.Mend, "set what it lacks or unset it: see docs/how-to/compute-gardener.md"),
			"%s: %s", program, f.Said)
	}
}

// namesGardenerKey reports whether a zone takes the key of Electricity Maps from the environment.
func namesGardenerKey(z v1alpha1.GridZone) bool {
	names := func(s *v1alpha1.ElectricityMapsSource) bool { return s != nil && s.Key == policy.GardenerKey }
	return z.Spec.Carbon != nil && slices.ContainsFunc(z.Spec.Carbon.Sources, func(s v1alpha1.CarbonSource) bool {
		return names(s.ElectricityMaps)
	}) || z.Spec.Price != nil && slices.ContainsFunc(z.Spec.Price.Sources, func(s v1alpha1.PriceSource) bool {
		return names(s.ElectricityMaps)
	})
}

// compareVariables wants the scheduler and the controller to read the same.
func (d *doctor) compareVariables(scheduler, controller map[string]v1.EnvVar) {
	names := slices.Concat(slices.Collect(maps.Keys(scheduler)), slices.Collect(maps.Keys(controller)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		a, b := valueOfVariable(scheduler, name), valueOfVariable(controller, name)
		if policy.SharedVariable(name) && a != b {
			d.say(statusWarn, "give both the same: scheduler.extraEnv and controller.extraEnv",
				"%s is %s for the scheduler and %s for the controller: what shadow mode counts and what is estimated "+
					"is not what the scheduler does", name, a, b)
		}
	}
}

func valueOfVariable(all map[string]v1.EnvVar, name string) string {
	switch e, ok := all[name]; {
	case !ok:
		return "not set"
	case e.ValueFrom != nil:
		return "from " + strings.TrimPrefix(e.ValueFrom.String(), "&")
	default:
		return strconv.Quote(e.Value)
	}
}

// lookAtDefaults tells of defaults that are others than in the release before, where they are not set.
func (d *doctor) lookAtDefaults(context.Context) {
	scheduler := d.deployments[schedulerName]
	if scheduler == nil {
		return
	}
	var args []string
	for i := range scheduler.Spec.Template.Spec.Containers {
		args = append(args, scheduler.Spec.Template.Spec.Containers[i].Args...)
	}
	before := len(d.findings)
	for _, c := range policy.ChangedDefaults {
		byFlag := func(arg string) bool { return arg == c.Flag || strings.HasPrefix(arg, c.Flag+"=") }
		if d.policy != nil && c.SetBy(d.policy) || slices.ContainsFunc(args, byFlag) {
			continue
		}
		d.say(statusOK, fmt.Sprintf("to have it as before: %s: %s in the EnergyPolicy %s/%s", c.Setting, c.Was,
			d.namespace, v1alpha1.PolicyName), "%s is not set; its default was %s and is %s: "+
			"%s", c.Setting, c.Was, c.Is,
			c.Effect)
	}
	if len(d.findings) == before {
		d.ok("no default that changed with this release holds here")
	}
}
