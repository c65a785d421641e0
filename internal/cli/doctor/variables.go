package doctor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// knowledge returns the grid zones, profiles and policies of the cluster, which are read once.
func (d *Doctor) knowledge(ctx context.Context) (*kube.View, error) {
	if d.view == nil {
		view, _, err := kube.ListView(ctx, d.Config, "", cmdutil.DefaultsOf(d.deployments[cmdutil.SchedulerName]))
		if err != nil {
			return nil, err
		}
		d.view = view
	}
	return d.view, nil
}

// checkVariables reports variables of Compute Gardener that have no effect or that scheduler and controller
// interpret differently.
func (d *Doctor) checkVariables(ctx context.Context) {
	scheduler, controller := d.deployments[cmdutil.SchedulerName], d.deployments[cmdutil.ControllerName]
	if scheduler == nil && controller == nil {
		return
	}
	before := len(d.Findings)
	most := policy.BuiltIn().MaxDelay
	if d.policy != nil && d.policy.Spec.MaxDelay != nil {
		most = d.policy.Spec.MaxDelay.Duration
	}
	for _, program := range []string{cmdutil.SchedulerName, cmdutil.ControllerName} {
		environ := cmdutil.EnvironOf(d.deployments[program])
		_, found := policy.AliasEnvironment(program, environ, nil, policy.BuiltIn())
		d.sayOf(program, append(found, policy.FindDelay(environ, most)...))
	}
	if zones, err := cmdutil.ListZones(ctx, d.client); err == nil { // otherwise reported by another check
		d.sayOf(cmdutil.ControllerName, policy.FindKey(cmdutil.EnvironOf(controller),
			slices.ContainsFunc(zones, namesGardenerKey)))
		priced := slices.ContainsFunc(zones, func(z v1alpha1.GridZone) bool { return z.Status.Price != nil })
		if on, _ := strconv.ParseBool(cmdutil.VariablesOf(scheduler)["PRICING_ENABLED"].Value); on && !priced {
			d.warn("add prices to a GridZone", "%s: PRICING_ENABLED has no effect: no GridZone has prices",
				cmdutil.SchedulerName)
		}
	}
	if scheduler != nil && controller != nil {
		d.compareVariables(cmdutil.VariablesOf(scheduler), cmdutil.VariablesOf(controller))
	}
	if len(d.Findings) == before {
		d.ok("no variable of Compute Gardener is ineffective")
	}
}

// sayOf reports problems with the variables of a program.
func (d *Doctor) sayOf(program string, found []policy.Finding) {
	for _, f := range found {
		d.warn(cmp.Or(f.Mend, "complete or unset the variable: see docs/how-to/compute-gardener.md"),
			"%s: %s", program, f.Said)
	}
}

// namesGardenerKey reports whether a zone reads the key of Electricity Maps from the environment.
func namesGardenerKey(z v1alpha1.GridZone) bool {
	names := func(s *v1alpha1.ElectricityMapsSource) bool { return s != nil && s.Key == policy.GardenerKey }
	return z.Spec.Carbon != nil && slices.ContainsFunc(z.Spec.Carbon.Sources, func(s v1alpha1.CarbonSource) bool {
		return names(s.ElectricityMaps)
	}) || z.Spec.Price != nil && slices.ContainsFunc(z.Spec.Price.Sources, func(s v1alpha1.PriceSource) bool {
		return names(s.ElectricityMaps)
	})
}

// compareVariables reports shared variables that differ between the scheduler and the controller.
func (d *Doctor) compareVariables(scheduler, controller map[string]v1.EnvVar) {
	names := slices.Concat(slices.Collect(maps.Keys(scheduler)), slices.Collect(maps.Keys(controller)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		a, b := valueOfVariable(scheduler, name), valueOfVariable(controller, name)
		if policy.SharedVariable(name) && a != b {
			d.warn("set the same value in scheduler.extraEnv and controller.extraEnv",
				"%s is %s for the scheduler and %s for the controller: shadow mode and estimates do not match the "+
					"decisions of the scheduler", name, a, b)
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
