package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/power"
	"github.com/kubenergy/kubenergy/internal/sched"
)

func (d *Doctor) checkMode(ctx context.Context) {
	if !d.crds {
		d.okWithScheduler(ctx, "EnergyPolicy is not installed: the settings of the scheduler apply")
		return
	}
	var policies v1alpha1.EnergyPolicyList
	if err := cmdutil.GetJSON(ctx, d.client, cmdutil.ResourcePath+"energypolicies", &policies); err != nil {
		d.unseen("EnergyPolicies", err)
		return
	}
	for _, p := range policies.Items {
		if p.Name == v1alpha1.PolicyName && p.Namespace == d.Namespace {
			d.policy = &p
		}
		if err := policy.ReadPolicy(&p); err != nil {
			d.warn("correct the policy: it is ignored until then", "EnergyPolicy %s/%s: %s", p.Namespace,
				p.Name, cmdutil.OneLine(err))
		} else if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionValid); c != nil &&
			c.Status == metav1.ConditionFalse {
			d.warn("correct the policy: it is ignored until then", "EnergyPolicy %s/%s is invalid: %s",
				p.Namespace, p.Name, c.Message)
		}
	}
	mode := v1alpha1.ModeShadow
	if d.policy != nil && d.policy.Spec.Mode != "" {
		mode = d.policy.Spec.Mode
	}
	d.checkDelays(ctx, policies.Items)
	own := ""
	if n := d.namespacesOfTheirOwn(ctx, policies.Items); n > 0 {
		own = fmt.Sprintf("; %s a different mode", humanize.Plural(n, "namespace has", "namespaces have"))
	}
	d.okWithScheduler(ctx, "the mode of the cluster is %s: %s%s", mode, cmdutil.ModeMeans[mode], own)
}

// checkDelays reports policies with a delay that exceeds the maximum.
func (d *Doctor) checkDelays(ctx context.Context, policies []v1alpha1.EnergyPolicy) {
	view, err := d.knowledge(ctx)
	if err != nil {
		return // reported by checkNodes
	}
	for _, p := range policies {
		if p.Name != v1alpha1.PolicyName {
			continue
		}
		for _, f := range view.FindPolicy(p.Namespace) {
			d.warn(cmp.Or(f.Mend, "correct the policy"), "EnergyPolicy %s/%s: %s", p.Namespace, p.Name, f.Said)
		}
	}
}

// namespacesOfTheirOwn returns the number of namespaces that set their own mode, and reports ineffective settings
// of namespaces.
func (d *Doctor) namespacesOfTheirOwn(ctx context.Context, policies []v1alpha1.EnergyPolicy) int {
	own := map[string]bool{}
	for _, p := range policies {
		if p.Spec.Mode != "" && p.Namespace != d.Namespace {
			own[p.Namespace] = true
		}
	}
	err := cmdutil.EachItem(ctx, metav1.ListOptions{}, d.client.CoreV1().Namespaces().List, func(n *v1.Namespace) {
		if policy.ModeOf(n.Labels) != "" {
			own[n.Name] = true
		}
		for _, f := range policy.FindNamespace(n) {
			d.warn(cmp.Or(f.Mend, "correct or remove the setting"), "namespace %s: %s", n.Name, f.Said)
		}
	})
	if err != nil {
		d.unseen("namespaces", err)
	}
	return len(own)
}

func (d *Doctor) checkZones(ctx context.Context) {
	if !d.crds {
		d.okWithScheduler(ctx, "GridZone is not installed: signals are read from files of the scheduler, which "+
			"are not checked")
		return
	}
	zones, err := cmdutil.ListZones(ctx, d.client)
	if err != nil {
		d.unseen("GridZones", err)
		return
	}
	if len(zones) == 0 {
		d.warn("create a GridZone for the location of the nodes: kubectl explain gridzone.spec",
			"there is no GridZone: workloads are not held, and nodes are ranked by energy only")
	}
	for i := range zones {
		d.checkZone(ctx, &zones[i])
	}
}

func (d *Doctor) checkZone(ctx context.Context, z *v1alpha1.GridZone) {
	ready := meta.FindStatusCondition(z.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		d.fail("check whether kubenergy-controller is running", "GridZone %s: the status is empty", z.Name)
		return
	case ready.Status != metav1.ConditionTrue:
		d.fail("check its sources: kubectl describe gridzone "+z.Name, "GridZone %s is not ready: %s",
			z.Name, ready.Message)
		return
	}
	d.checkSignal(ctx, z, "carbon", z.Status.Carbon, cmp.Or(z.Spec.Carbon, &v1alpha1.CarbonSpec{}).MaxAge)
	d.checkSignal(ctx, z, "price", z.Status.Price, cmp.Or(z.Spec.Price, &v1alpha1.PriceSpec{}).MaxAge)
	// The message of the condition lists problems of other sources after the selected source.
	if _, trouble, ok := strings.Cut(ready.Message, "; "); ok {
		d.warn("check its sources: kubectl describe gridzone "+z.Name, "GridZone %s: %s", z.Name, trouble)
	}
}

func (d *Doctor) checkSignal(ctx context.Context, z *v1alpha1.GridZone, name string, s *v1alpha1.SignalStatus,
	maxAge *metav1.Duration,
) {
	if s == nil {
		return
	}
	now := d.Now()
	what := fmt.Sprintf("GridZone %s: %s %s from %s, %s", z.Name, name, cmdutil.ValueOf(s.Now, s.Unit), s.Source,
		s.Quality)
	age := time.Duration(0)
	if s.AsOf != nil {
		age = now.Sub(s.AsOf.Time)
		what += ", " + humanize.Rounded(max(0, age)) + " old"
	}
	end := s.Start.Add(time.Duration(len(s.Values)) * s.Step.Duration)
	switch {
	case maxAge != nil && maxAge.Duration > 0 && age > maxAge.Duration:
		d.fail("check its sources: kubectl describe gridzone "+z.Name,
			"%s, which exceeds the maximum age of %v and is ignored", what, maxAge.Duration)
	case !end.After(now):
		d.fail("check whether kubenergy-controller is running", "%s, but its last value ended %s ago", what,
			humanize.Rounded(now.Sub(end)))
	case d.absent(ctx, cmdutil.ControllerName):
		d.warn(adviceInstall, "%s; no controller that updates it is installed or running", what)
	case end.Sub(now) < 2*time.Hour:
		d.warn("put a source with forecasts first in its spec",
			"%s, but only known for the next %s, which limits holds", what, humanize.Rounded(end.Sub(now)))
	case s.Quality == "estimated":
		d.warn("put a source with measured data first in its spec", "%s", what)
	default:
		d.ok("%s", what)
	}
}

func (d *Doctor) checkNodes(ctx context.Context) {
	list, err := d.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		d.unseen("nodes", err)
		return
	}
	defer d.checkSleep(list.Items)
	view, err := d.knowledge(ctx)
	if err != nil {
		d.unseen("profiles", err)
		return
	}
	var noProfile, noSite []string
	for _, n := range list.Items {
		if _, ok := view.Node(&n, sched.Resources{}, sched.Resources{}, 0); !ok {
			noProfile = append(noProfile, n.Name)
		}
		if view.SiteOfNode(&n).Name == "" {
			noSite = append(noSite, n.Name)
		}
	}
	all := len(list.Items)
	if n := len(noProfile); n > 0 && d.crds {
		d.warn("label the nodes (kubenergy profile --label-nodes), or set the nodeSelector of a PowerProfile",
			"%d of %s without a power profile: %s; workloads that fit on them are placed regardless of energy", n,
			humanize.Count(all, "node"), firstOf(noProfile))
	}
	if n := len(noSite); n > 0 && d.crds {
		d.warn("create a GridZone with default: true, or label nodes with "+v1alpha1.LabelSite,
			"%d of %s without a grid zone: %s", n, humanize.Count(all, "node"), firstOf(noSite))
	}
	switch {
	case !d.crds:
		d.okWithScheduler(ctx, "%s; power profiles are read from files of the scheduler, which are not checked",
			humanize.Count(all, "node"))
	case len(noProfile)+len(noSite) == 0:
		d.ok("%s, each with a power profile and a grid zone", humanize.Count(all, "node"))
	}
}

func firstOf(names []string) string { return humanize.Few(3, slices.Sorted(slices.Values(names))) }

// checkSleep reports the power states of machines that may sleep and conditions that prevent them from waking up.
func (d *Doctor) checkSleep(nodes []v1.Node) {
	var may, away, failed []string
	states := map[string]int{}
	for _, n := range nodes {
		if n.Labels[v1alpha1.LabelMaySleep] == "true" {
			may = append(may, n.Name)
		}
		if state := n.Labels[v1alpha1.LabelPowerState]; state != "" {
			away = append(away, n.Name)
			states[state]++
		}
		var memory struct {
			Failed int `json:"failed"`
		}
		if text := n.Annotations[v1alpha1.AnnotationPower]; text != "" &&
			(json.Unmarshal([]byte(text), &memory) != nil || memory.Failed > 0) {
			failed = append(failed, n.Name)
		}
	}
	dep := d.deployments[power.Name]
	works := dep != nil && dep.Status.ReadyReplicas > 0
	switch {
	case len(may)+len(away) == 0:
		return
	case len(away) > 0 && !works:
		d.fail("start "+power.Name+", or wake up the machines: kubenergy wake --all",
			"no %s is ready to wake up machines, but these nodes are not awake: %s", power.Name, firstOf(away))
	case dep == nil:
		d.warn("set power.enabled in the chart, or remove the label "+v1alpha1.LabelMaySleep,
			"%s may sleep, but %s is not installed: %s", humanize.Count(len(may), "node"), power.Name, firstOf(may))
	default:
		d.ok("%s may sleep: %d asleep, %d booting, %d stopping", humanize.Count(len(may), "node"),
			states[v1alpha1.PowerAsleep], states[v1alpha1.PowerBooting], states[v1alpha1.PowerStopping])
	}
	if len(failed) > 0 {
		d.warn("check the events and the management controller: kubectl describe node "+failed[0],
			"the last boot of these nodes failed: %s", firstOf(failed))
	}
}
