package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
)

var resourcePath = "/apis/" + v1alpha1.GroupVersion.String() + "/"

func (d *doctor) lookAtMode(ctx context.Context) {
	if !d.crds {
		d.ok("no EnergyPolicy can exist here: the scheduler's own settings hold")
		return
	}
	var policies v1alpha1.EnergyPolicyList
	if err := getJSON(ctx, d.client, resourcePath+"energypolicies", &policies); err != nil {
		d.unseen("EnergyPolicies", err)
		return
	}
	for i := range policies.Items {
		p := &policies.Items[i]
		if p.Name == v1alpha1.PolicyName && p.Namespace == d.namespace {
			d.policy = p
		}
		if err := policy.ReadPolicy(p); err != nil {
			d.say(statusWarn, "correct it: until then it counts as absent", "EnergyPolicy %s/%s: %s", p.Namespace,
				p.Name, oneLine(err))
		} else if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionValid); c != nil &&
			c.Status == metav1.ConditionFalse {
			d.say(statusWarn, "correct it: until then it counts as absent", "EnergyPolicy %s/%s is not valid: %s",
				p.Namespace, p.Name, c.Message)
		}
	}
	mode := v1alpha1.ModeShadow
	if d.policy != nil && d.policy.Spec.Mode != "" {
		mode = d.policy.Spec.Mode
	}
	d.lookAtDelays(ctx, policies.Items)
	own := ""
	if n := d.namespacesOfTheirOwn(ctx, policies.Items); n > 0 {
		own = fmt.Sprintf("; %s another one", report.Plural(n, "namespace has", "namespaces have"))
	}
	d.ok("the cluster's mode is %s: %s%s", mode, modeMeans[mode], own)
}

// lookAtDelays tells of policies that allow longer delays than any hold may last.
func (d *doctor) lookAtDelays(ctx context.Context, policies []v1alpha1.EnergyPolicy) {
	view, err := d.knowledge(ctx)
	if err != nil {
		return // told with the nodes
	}
	for _, p := range policies {
		if p.Name != v1alpha1.PolicyName {
			continue
		}
		for _, f := range view.FindPolicy(p.Namespace) {
			d.say(statusWarn, cmp.Or(f.Mend, "correct it"), "EnergyPolicy %s/%s: %s", p.Namespace, p.Name, f.Said)
		}
	}
}

// modeMeans says what a mode does.
var modeMeans = map[v1alpha1.Mode]string{
	v1alpha1.ModeOff:     "nothing is decided",
	v1alpha1.ModeShadow:  "decisions are counted, nothing is touched",
	v1alpha1.ModeAdvise:  "decisions are told as events, nothing is touched",
	v1alpha1.ModeEnforce: "decisions are carried out",
}

// namespacesOfTheirOwn counts the namespaces that say themselves which mode holds in them, and tells of those that say
// something in vain.
func (d *doctor) namespacesOfTheirOwn(ctx context.Context, policies []v1alpha1.EnergyPolicy) int {
	own := map[string]bool{}
	for i := range policies {
		if p := &policies[i]; p.Spec.Mode != "" && p.Namespace != d.namespace {
			own[p.Namespace] = true
		}
	}
	err := eachItem(ctx, metav1.ListOptions{}, d.client.CoreV1().Namespaces().List, func(n *v1.Namespace) {
		if policy.ModeOf(n.Labels) != "" {
			own[n.Name] = true
		}
		for _, f := range policy.FindNamespace(n) {
			d.say(statusWarn, cmp.Or(f.Mend, "correct or remove it"), "namespace %s: %s", n.Name, f.Said)
		}
	})
	if err != nil {
		d.unseen("namespaces", err)
	}
	return len(own)
}

// listZones returns the GridZones, none where the cluster has no such kind.
func listZones(ctx context.Context, client kubernetes.Interface) ([]v1alpha1.GridZone, error) {
	var list v1alpha1.GridZoneList
	if err := getJSON(ctx, client, resourcePath+"gridzones", &list); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return list.Items, nil
}

func (d *doctor) lookAtZones(ctx context.Context) {
	if !d.crds {
		d.ok("no GridZone can exist here: signals come from the scheduler's files, which cannot be seen")
		return
	}
	zones, err := listZones(ctx, d.client)
	if err != nil {
		d.unseen("GridZones", err)
		return
	}
	if len(zones) == 0 {
		d.say(statusWarn, "create one for the place where the nodes are: kubectl explain gridzone.spec",
			"there is no GridZone: no work is held, nodes are told apart by energy alone")
	}
	for i := range zones {
		d.lookAtZone(&zones[i])
	}
}

func (d *doctor) lookAtZone(z *v1alpha1.GridZone) {
	ready := meta.FindStatusCondition(z.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		d.say(statusFail, "look whether kubenergy-controller runs", "GridZone %s: its status is empty", z.Name)
		return
	case ready.Status != metav1.ConditionTrue:
		d.say(statusFail, "see its sources: kubectl describe gridzone "+z.Name, "GridZone %s is not ready: %s", z.Name,
			ready.Message)
		return
	}
	if s := z.Status.Carbon; s != nil {
		d.lookAtSignal(z, "carbon", s, cmp.Or(z.Spec.Carbon, &v1alpha1.CarbonSpec{}).MaxAge)
	}
	if s := z.Status.Price; s != nil {
		d.lookAtSignal(z, "price", s, cmp.Or(z.Spec.Price, &v1alpha1.PriceSpec{}).MaxAge)
	}
	// After the source that is believed, the condition names what is wrong with the others.
	if _, trouble, ok := strings.Cut(ready.Message, "; "); ok {
		d.say(statusWarn, "see its sources: kubectl describe gridzone "+z.Name, "GridZone %s: %s", z.Name, trouble)
	}
}

func (d *doctor) lookAtSignal(z *v1alpha1.GridZone, name string, s *v1alpha1.SignalStatus, maxAge *metav1.Duration) {
	now := d.now()
	what := fmt.Sprintf("GridZone %s: %s %s from %s, %s", z.Name, name, valueOf(s.Now, s.Unit), s.Source, s.Quality)
	age := time.Duration(0)
	if s.AsOf != nil {
		age = now.Sub(s.AsOf.Time)
		what += ", " + report.Rounded(max(0, age)) + " old"
	}
	end := s.Start.Add(time.Duration(len(s.Values)) * s.Step.Duration)
	switch {
	case maxAge != nil && maxAge.Duration > 0 && age > maxAge.Duration:
		d.say(statusFail, "see its sources: kubectl describe gridzone "+z.Name,
			"%s, which is older than %v: it counts for nothing", what, maxAge.Duration)
	case !end.After(now):
		d.say(statusFail, "look whether kubenergy-controller runs", "%s, and its last value ended %s ago", what,
			report.Rounded(now.Sub(end)))
	case end.Sub(now) < 2*time.Hour:
		d.say(statusWarn, "name a source that forecasts first in its spec",
			"%s, and is known for the next %s only: little can wait for more", what, report.Rounded(end.Sub(now)))
	case s.Quality == "estimated":
		d.say(statusWarn, "name a source of real data first in its spec", "%s", what)
	default:
		d.ok("%s", what)
	}
}

// valueOf shows a value with its unit.
func valueOf(v float64, unit string) string {
	if strings.HasPrefix(unit, "g") {
		return fmt.Sprintf("%.0f %s", v, unit)
	}
	return fmt.Sprintf("%.4g %s", v, unit)
}

func (d *doctor) lookAtNodes(ctx context.Context) {
	list, err := d.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		d.unseen("nodes", err)
		return
	}
	defer d.lookAtSleep(list.Items)
	view, err := d.knowledge(ctx)
	if err != nil {
		d.unseen("profiles", err)
		return
	}
	var noProfile, noSite []string
	for i := range list.Items {
		n := &list.Items[i]
		if _, ok := view.Node(n, sched.Resources{}, sched.Resources{}, 0); !ok {
			noProfile = append(noProfile, n.Name)
		}
		if view.SiteOfNode(n).Name == "" {
			noSite = append(noSite, n.Name)
		}
	}
	all := len(list.Items)
	if n := len(noProfile); n > 0 && d.crds {
		d.say(statusWarn, "label them (kubenergy profile --label-nodes), or give a PowerProfile a nodeSelector",
			"%d of %s without a power profile: %s; where one fits, work is placed without regard to energy", n,
			count(all, "node"), firstOf(noProfile))
	}
	if n := len(noSite); n > 0 && d.crds {
		d.say(statusWarn, "create a GridZone with default: true, or label nodes with "+v1alpha1.LabelSite,
			"%d of %s in no grid zone: %s", n, count(all, "node"), firstOf(noSite))
	}
	switch {
	case !d.crds:
		d.ok("%s; which profiles they have stands in the scheduler's files, which cannot be seen", count(all, "node"))
	case len(noProfile)+len(noSite) == 0:
		d.ok("%s, each with a power profile and a grid zone", count(all, "node"))
	}
}

func firstOf(names []string) string { return report.Few(3, slices.Sorted(slices.Values(names))) }
