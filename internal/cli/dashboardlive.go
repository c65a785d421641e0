package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
)

// savingsSpan is the time over which savings are shown.
const savingsSpan = 7 * 24 * time.Hour

const (
	before         = 24 * time.Hour   // now: since yesterday,
	after          = 48 * time.Hour   // up to the day after tomorrow
	savingsAge     = 10 * time.Minute // they take many requests, and change slowly
	savingsWait    = 2 * time.Second  // that the first screen waits for them
	savingsTake    = 2 * time.Minute
	pageDecisions  = 2000 // that a page looks at
	tokenRenewedBy = tokenSeconds * time.Second / 2
)

// liveSource is what a page shows of a cluster: all that the user may see.
type liveSource struct {
	*cluster
	flags *centralFlags
	t     terminal
	only  string // this namespace; "": all

	mu      sync.Mutex
	unit    *centralUnit
	unitErr error
	asked   time.Time // for the token

	saved     *dashboard.Saved
	savedErr  error
	savedAt   time.Time
	savedDone chan struct{} // closed when the computation that runs has ended; nil: none runs
}

func openLive(ctx context.Context, t terminal, f *centralFlags) (dashboard.Source, error) {
	c, err := f.open(t)
	if err != nil {
		return nil, err
	}
	s := &liveSource{cluster: c, flags: f, t: t, only: f.namespace}
	if _, err := c.Discovery().ServerVersion(); err != nil {
		return nil, fmt.Errorf("asking the API server: %s", oneLine(err))
	}
	return s, ctx.Err()
}

// Live is true: the cluster changes.
func (s *liveSource) Live() bool { return true }

// central connects to the central unit, with a token that is young enough.
func (s *liveSource) central(ctx context.Context) (*centralUnit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.t.now(); s.unit == nil || s.unitErr != nil || now.Sub(s.asked) > tokenRenewedBy {
		s.asked = now
		s.unit, s.unitErr = s.flags.connect(ctx, s.t, s.namespaces()...)
	}
	return s.unit, s.unitErr
}

func (s *liveSource) namespaces() []string {
	if s.only == "" {
		return nil
	}
	return []string{s.only}
}

// Model reads what a view shows. What cannot be read is said, and the rest is shown without it.
func (s *liveSource) Model(ctx context.Context, q dashboard.Query) (*dashboard.Model, error) {
	now := s.t.now().UTC()
	m := &dashboard.Model{
		APIVersion: "kubenergy.io/v1alpha1", Kind: dashboard.KindDashboard, Title: s.title(), Now: now,
		From:  cmp.Or(q.From, now.Add(-before).Truncate(time.Hour)),
		To:    cmp.Or(q.To, now.Add(after).Truncate(time.Hour)),
		Zones: []dashboard.Zone{}, Jobs: []dashboard.Job{}, Namespaces: []dashboard.Use{},
		Budgets: []dashboard.Budget{},
	}
	if !m.From.Before(m.To) {
		return nil, errors.New("from is not before to")
	}
	r := &liveReader{liveSource: s, m: m}
	switch q.View {
	case dashboard.Decisions:
		r.mode(ctx)
		r.decisions(ctx)
	case dashboard.Doctor:
		r.mode(ctx)
		m.Findings = examine(ctx, s.cluster, s.flags.component, s.t.now).findings
	case dashboard.Savings:
		r.mode(ctx)
		r.savings(ctx, savingsTake)
	default:
		r.overview(ctx)
	}
	return m, ctx.Err()
}

// title is the context of the kubeconfig, and the namespace where only one is shown.
func (s *liveSource) title() string {
	name := cmp.Or(s.flags.context, strings.TrimPrefix(strings.TrimPrefix(s.config.Host, "https://"), "http://"))
	if s.only != "" {
		return name + ", namespace " + s.only
	}
	return name
}

// Job explains a Job or a pod as explain does, and weighs other delays.
func (s *liveSource) Job(ctx context.Context, _ dashboard.Query,
	kind, namespace, name string,
) (*dashboard.JobView, error) {
	e := &explainer{client: s.cluster, config: s.config, now: s.t.now()}
	found, err := e.explain(ctx, kind, namespace, name)
	if err != nil {
		return nil, err
	}
	v := &dashboard.JobView{
		Explanation: found.Explanation, Now: e.now.UTC(),
		Command: "kubenergy explain " + kind + " " + name + " -n " + namespace,
	}
	site := e.view.DefaultSite()
	switch {
	case found.State != stateHeld && found.State != stateWaiting:
		return v, nil
	case e.best != nil && e.best.Site.Name != "":
		site, v.Where = e.best.Site, e.best.Site.Name+", the site of the node that is ranked first"
	case site == nil:
		v.Where = "no node is ranked, and no default GridZone is seen"
		return v, nil
	default:
		v.Where = site.Name + ", the default GridZone, since no node is ranked"
	}
	if site.Carbon.Series == nil {
		v.Where += ", has no carbon intensity"
		return v, nil
	}
	v.Weigh(site.Carbon.Series, "gCO2e/kWh", &e.job, e.now.UTC(), func(allowed time.Duration) time.Time {
		job := e.job
		job.AllowedDelay = allowed
		return e.view.Decide(e.now, job, e.settled).Window.Start.UTC()
	})
	return v, nil
}

// Decision asks for a decision with its snapshot, and without it where the user may not see all nodes.
func (s *liveSource) Decision(ctx context.Context, _ dashboard.Query, d *ledger.Record) (*ledger.Record, error) {
	c, err := s.central(ctx)
	if err != nil {
		return nil, err
	}
	q := &ledger.RecordQuery{
		From: d.At, To: d.At.Add(time.Millisecond), Namespaces: s.namespaces(), UID: d.UID, Snapshots: true, Limit: 1,
	}
	wanted := func(r *ledger.Record) bool { return r.ID == d.ID }
	found, _, err := c.decisions(ctx, q, wanted)
	if err != nil {
		q.Snapshots = false
		found, _, err = c.decisions(ctx, q, wanted)
	}
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// Origin takes what was booked in the last seven days apart.
func (s *liveSource) Origin(ctx context.Context, q dashboard.Query,
	namespace, owner string,
) (*dashboard.Origin, error) {
	c, err := s.central(ctx)
	if err != nil {
		return nil, err
	}
	now := s.t.now().UTC()
	from, to := cmp.Or(q.From, now.Add(-savingsSpan)), grid.Earlier(cmp.Or(q.To, now), now)
	cluster := cmp.Or(q.Cluster, ledger.OwnCluster)
	o, filters := &dashboard.Origin{Meters: map[string]string{}}, map[string][]string{"cluster": {cluster}}
	o.Command = "kubenergy report --from " + from.Format(time.RFC3339) + " --group-by node,hour -n " + namespace +
		" --cluster " + cluster
	if owner != "" {
		filters["owner"] = []string{owner}
		o.Command += " --owner " + owner
	}
	for d, into := range map[ledger.Dimension]*[]ledger.Row{ledger.ByNode: &o.Nodes, ledger.ByHour: &o.Hours} {
		answer, err := c.ledger(ctx, &ledger.Query{
			From: from, To: to, Namespaces: []string{namespace}, GroupBy: []ledger.Dimension{d},
			Kinds: ledger.Workloads(),
		}, filters)
		if err != nil {
			return nil, err
		}
		*into = slices.DeleteFunc(answer.Rows, func(r ledger.Row) bool { return len(r.Key) != 1 })
		o.Total = answer.Total
	}
	if len(o.Nodes) == 0 {
		return nil, nil
	}
	nodes, _ := c.nodes(ctx) // who may not see all nodes sees what was booked
	for i := range nodes {
		o.Meters[nodes[i].Name] = nodes[i].Source + ", " + nodes[i].Quality.String()
	}
	return o, nil
}

// modes are those that a page switches between.
var modes = []v1alpha1.Mode{v1alpha1.ModeShadow, v1alpha1.ModeAdvise, v1alpha1.ModeEnforce}

// Effect says what run-now or another mode would come to. Nothing is changed.
func (s *liveSource) Effect(ctx context.Context, a dashboard.Act) (effect, command string, err error) {
	switch {
	case a.Do == dashboard.DoRunNow && (a.Kind == kindJob || a.Kind == kindPod):
		e := &explainer{client: s.cluster, config: s.config, now: s.t.now()}
		found, err := e.explain(ctx, a.Kind, a.Namespace, a.Name)
		if err != nil {
			return "", "", err
		}
		effect = found.Sentence + " It would start now, and not be held any more."
		if d := found.Decision; d != nil && d.Held && d.Grams > 0 {
			effect += fmt.Sprintf(" What waiting is expected to save is lost: %.3g g of CO2e, %.0f %%.", d.Grams,
				100*d.Saving)
		}
		return effect, fmt.Sprintf("kubenergy run-now %s %s -n %s", a.Kind, a.Name, a.Namespace), nil
	case a.Do == dashboard.DoMode && slices.Contains(modes, v1alpha1.Mode(a.Mode)) && a.Namespace != "":
		h := &holdings{client: s.cluster, now: s.t.now()}
		if err := h.read(ctx, s.cluster, a.Namespace); err != nil {
			return "", "", err
		}
		mode := v1alpha1.Mode(a.Mode)
		effect = fmt.Sprintf("In %s mode %s.", mode, modeMeans[mode])
		if mode != v1alpha1.ModeEnforce && len(h.items) > 0 {
			effect += fmt.Sprintf(" %s held there now, and would start.",
				report.Plural(len(h.items), "object is", "objects are"))
		}
		command = fmt.Sprintf("kubectl label --overwrite namespace %s %s=%s", a.Namespace, v1alpha1.LabelMode, mode)
		return effect, command, nil
	}
	return "", "", errors.New("want run-now of a job or a pod, or a mode of a namespace: shadow, advise or enforce")
}

// Act does it, with the user's rights.
func (s *liveSource) Act(ctx context.Context, a dashboard.Act) (result string, err error) {
	if _, _, err := s.Effect(ctx, a); err != nil {
		return "", err // it makes no sense, or what it is about is gone
	}
	if a.Do == dashboard.DoRunNow {
		result, err := runNow(ctx, s.cluster, a.Kind, a.Namespace, a.Name, s.t.now())
		return fmt.Sprintf("%s %s/%s: %s", a.Kind, a.Namespace, a.Name, result), err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelMode, a.Mode)
	if _, err := s.CoreV1().Namespaces().Patch(ctx, a.Namespace, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return "", fmt.Errorf("labelling namespace %s: %s", a.Namespace, because(err))
	}
	return fmt.Sprintf("namespace %s: its mode is %s", a.Namespace, a.Mode), nil
}
