package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/cli/doctor"
	"github.com/kubenergy/kubenergy/internal/cli/explain"
	"github.com/kubenergy/kubenergy/internal/cli/release"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

const (
	before         = 24 * time.Hour   // start of the default time range before now
	after          = 48 * time.Hour   // end of the default time range after now
	savingsAge     = 10 * time.Minute // maximum age of savings, which require many requests and change slowly
	savingsWait    = 2 * time.Second  // maximum wait of the first view for savings
	savingsTake    = 2 * time.Minute
	pageDecisions  = 2000 // maximum number of decisions on a page
	tokenRenewedBy = cmdutil.TokenSeconds * time.Second / 2
)

// LiveSource provides the data of a cluster that the user may see.
type LiveSource struct {
	*cmdutil.Cluster
	flags *cmdutil.ControllerFlags
	t     cmdutil.Terminal
	only  string // restricts the page to a namespace; empty for all

	mu      sync.Mutex
	unit    *cmdutil.ControllerClient
	unitErr error
	asked   time.Time // time of the last token request

	saving   singleflight.Group
	saved    *dashboard.Saved
	savedErr error
	savedAt  time.Time
}

// OpenLive returns the source of a page about the cluster selected by f, restricted to the namespace of f if it has
// one. It returns an error if the API server does not respond.
func OpenLive(ctx context.Context, t cmdutil.Terminal, f *cmdutil.ControllerFlags) (dashboard.Source, error) {
	c, err := f.Open(t)
	if err != nil {
		return nil, err
	}
	if _, err := c.Discovery().ServerVersion(); err != nil {
		return nil, fmt.Errorf("connecting to the API server: %s", cmdutil.OneLine(err))
	}
	return &LiveSource{Cluster: c, flags: f, t: t, only: f.Namespace}, ctx.Err()
}

// Live returns true, because the cluster changes.
func (s *LiveSource) Live() bool { return true }

// controller returns a client of the controller with a valid token.
func (s *LiveSource) controller(ctx context.Context) (*cmdutil.ControllerClient, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.t.Now(); s.unit == nil || s.unitErr != nil || now.Sub(s.asked) > tokenRenewedBy {
		s.asked = now
		s.unit, s.unitErr = s.flags.Connect(ctx, s.t, s.namespaces()...)
	}
	return s.unit, s.unitErr
}

func (s *LiveSource) namespaces() []string {
	if s.only == "" {
		return nil
	}
	return []string{s.only}
}

// Model reads the data of a view. It lists data that cannot be read in Unseen.
func (s *LiveSource) Model(ctx context.Context, q dashboard.Query) (*dashboard.Model, error) {
	now := s.t.Now().UTC()
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
	r := &liveReader{LiveSource: s, m: m}
	switch q.View {
	case dashboard.Decisions:
		r.mode(ctx)
		r.decisions(ctx)
	case dashboard.Machines:
		r.mode(ctx)
		if c, err := s.controller(ctx); err != nil {
			r.unseen("energy of machines", err)
		} else {
			m.Machines = r.used(ctx, c, "machines", ledger.Query{
				GroupBy: []ledger.Dimension{ledger.ByCluster, ledger.ByNode},
			})
		}
	case dashboard.Doctor:
		r.mode(ctx)
		m.Findings = doctor.Examine(ctx, s.Cluster, s.flags.Component, s.t.Now).Findings
	case dashboard.Savings:
		r.mode(ctx)
		r.savings(ctx, savingsTake)
	default:
		r.overview(ctx)
	}
	return m, ctx.Err()
}

// title returns the name of the kubeconfig context, and the namespace if the page is restricted to one.
func (s *LiveSource) title() string {
	name := cmp.Or(s.flags.Context, strings.TrimPrefix(strings.TrimPrefix(s.Config.Host, "https://"), "http://"))
	if s.only != "" {
		return name + ", namespace " + s.only
	}
	return name
}

// Job explains a Job or pod like kubenergy explain, and compares other delays.
func (s *LiveSource) Job(ctx context.Context, _ dashboard.Query,
	kind, namespace, name string,
) (*dashboard.JobView, error) {
	e := &explain.Explainer{Cluster: s.Cluster, Now: s.t.Now()}
	found, err := e.Explain(ctx, kind, namespace, name)
	if err != nil {
		return nil, err
	}
	v := &dashboard.JobView{
		Explanation: found.Explanation, Now: e.Now.UTC(),
		Command: "kubenergy explain " + kind + " " + name + " -n " + namespace,
	}
	var site *sched.Site
	switch {
	case found.State != explain.StateHeld && found.State != explain.StateWaiting:
		return v, nil
	case e.Best != nil && e.Best.Site.Name != "":
		site, v.Where = e.Best.Site, e.Best.Site.Name+", the site of the highest ranked node"
	default:
		q, run := e.View.Question(e.Now, e.Job, e.Settled), e.View.Decide(e.Now, e.Job, e.Settled).Window
		known := q.Known(&e.Job, true, false)
		if len(known) == 0 {
			v.Where = "no node is ranked, and no zone with nodes has a current carbon intensity"
			return v, nil
		}
		mean := func(s *sched.Site) float64 { return s.Carbon.Series.Mean(run.Start, run.End) }
		site = slices.MinFunc(known, func(a, b *sched.Site) int { return cmp.Compare(mean(a), mean(b)) })
		v.Where = site.Name + ", the cleanest zone with nodes, because no node is ranked"
	}
	if site.Carbon.Series == nil {
		v.Where += ", has no carbon intensity"
		return v, nil
	}
	v.Weigh(site.Carbon.Series, "gCO2e/kWh", &e.Job, e.Now.UTC(), func(allowed time.Duration) time.Time {
		job := e.Job
		job.AllowedDelay, job.Sites = allowed, []string{site.Name}
		return e.View.Decide(e.Now, job, e.Settled).Window.Start.UTC()
	})
	return v, nil
}

// Decision requests a decision with its snapshot, or without it if the user may not see all nodes.
func (s *LiveSource) Decision(ctx context.Context, _ dashboard.Query, d *ledger.Record) (*ledger.Record, error) {
	c, err := s.controller(ctx)
	if err != nil {
		return nil, err
	}
	q := &ledger.RecordQuery{
		From: d.At, To: d.At.Add(time.Millisecond), Namespaces: s.namespaces(), UID: d.UID, Snapshots: true, Limit: 1,
	}
	wanted := func(r *ledger.Record) bool { return r.ID == d.ID }
	found, _, err := c.Decisions(ctx, q, wanted)
	if err != nil {
		q.Snapshots = false
		found, _, err = c.Decisions(ctx, q, wanted)
	}
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// Origin returns the breakdown of the energy booked in the last seven days.
func (s *LiveSource) Origin(ctx context.Context, q dashboard.Query,
	namespace, owner string,
) (*dashboard.Origin, error) {
	c, err := s.controller(ctx)
	if err != nil {
		return nil, err
	}
	now := s.t.Now().UTC()
	from, to := cmp.Or(q.From, now.Add(-cmdutil.SavingsSpan)), timeutil.Earlier(cmp.Or(q.To, now), now)
	cluster := cmp.Or(q.Cluster, ledger.OwnCluster)
	o, filters := &dashboard.Origin{Meters: map[string]string{}}, map[string][]string{"cluster": {cluster}}
	o.Command = "kubenergy report --from " + from.Format(time.RFC3339) + " --group-by node,hour -n " + namespace +
		" --cluster " + cluster
	if owner != "" {
		filters["owner"] = []string{owner}
		o.Command += " --owner " + owner
	}
	for d, into := range map[ledger.Dimension]*[]ledger.Row{ledger.ByNode: &o.Nodes, ledger.ByHour: &o.Hours} {
		answer, err := c.Ledger(ctx, &ledger.Query{
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
	nodes, _ := c.Nodes(ctx) // without permission to list all nodes, only booked energy is shown
	for i := range nodes {
		o.Meters[nodes[i].Name] = nodes[i].Source + ", " + nodes[i].Quality.String()
	}
	return o, nil
}

// modes contains the modes that a page can set.
var modes = []v1alpha1.Mode{v1alpha1.ModeShadow, v1alpha1.ModeAdvise, v1alpha1.ModeEnforce}

// Effect returns the effect of run-now or of another mode. It does not change anything.
func (s *LiveSource) Effect(ctx context.Context, a dashboard.Act) (effect, command string, err error) {
	switch {
	case a.Do == dashboard.DoRunNow && (a.Kind == cmdutil.KindJob || a.Kind == cmdutil.KindPod):
		e := &explain.Explainer{Cluster: s.Cluster, Now: s.t.Now()}
		found, err := e.Explain(ctx, a.Kind, a.Namespace, a.Name)
		if err != nil {
			return "", "", err
		}
		effect = found.Sentence + " It would start now and would no longer be held."
		if d := found.Decision; d != nil && d.Held && d.Grams > 0 {
			effect += fmt.Sprintf(" The expected savings of waiting would be lost: %.3g g of CO2e, %.0f %%.", d.Grams,
				100*d.Saving)
		}
		return effect, fmt.Sprintf("kubenergy run-now %s %s -n %s", a.Kind, a.Name, a.Namespace), nil
	case a.Do == dashboard.DoMode && slices.Contains(modes, v1alpha1.Mode(a.Mode)) && a.Namespace != "":
		h := &explain.Holdings{Cluster: s.Cluster, Now: s.t.Now()}
		if err := h.Read(ctx, a.Namespace); err != nil {
			return "", "", err
		}
		mode := v1alpha1.Mode(a.Mode)
		effect = fmt.Sprintf("In %s mode %s.", mode, cmdutil.ModeMeans[mode])
		if mode != v1alpha1.ModeEnforce && len(h.Items) > 0 {
			effect += fmt.Sprintf(" %s currently held in it and would start.",
				humanize.Plural(len(h.Items), "object is", "objects are"))
		}
		command = fmt.Sprintf("kubectl label --overwrite namespace %s %s=%s", a.Namespace, v1alpha1.LabelMode, mode)
		return effect, command, nil
	}
	return "", "", errors.New("want run-now for a job or a pod, or a mode for a namespace: shadow, advise or enforce")
}

// Act performs an action with the user's permissions.
func (s *LiveSource) Act(ctx context.Context, a dashboard.Act) (result string, err error) {
	if _, _, err := s.Effect(ctx, a); err != nil {
		return "", err // the action is invalid, or its object no longer exists
	}
	if a.Do == dashboard.DoRunNow {
		result, err := release.RunNow(ctx, s.Cluster, a.Kind, a.Namespace, a.Name, s.t.Now())
		return fmt.Sprintf("%s %s/%s: %s", a.Kind, a.Namespace, a.Name, result), err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelMode, a.Mode)
	if _, err := s.CoreV1().Namespaces().Patch(ctx, a.Namespace, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return "", fmt.Errorf("labelling namespace %s: %s", a.Namespace, cmdutil.Because(err))
	}
	return fmt.Sprintf("namespace %s: its mode is %s", a.Namespace, a.Mode), nil
}

// renewSavings computes the savings again if they are too old.
func (s *LiveSource) renewSavings(ctx context.Context, now time.Time) error {
	if now.Sub(s.savedAt) <= savingsAge { // the group serializes calls
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, savingsTake)
	defer cancel()
	saved, err := s.compare(ctx, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved, s.savedErr, s.savedAt = saved, err, now
	return err
}

// compare computes the savings like kubenergy report --savings.
func (s *LiveSource) compare(ctx context.Context, now time.Time) (*dashboard.Saved, error) {
	c, err := s.controller(ctx)
	if err != nil {
		return nil, err
	}
	q := &ledger.Query{From: now.Add(-cmdutil.SavingsSpan), To: now, Namespaces: s.namespaces()}
	evidence, known, missing, err := c.Evidence(ctx, q, true, pageDecisions)
	switch {
	case err != nil:
		return nil, err
	case !known || evidence == nil:
		return nil, errors.New(strings.Join(missing, " "))
	}
	found, err := report.Compare(evidence, report.DefaultBaseline, q.From, 1)
	if err != nil {
		return nil, err
	}
	saved := dashboard.SavedOf(found)
	if o := report.FindOptimum(evidence, q.From, q.To); o.Efficiency != nil {
		saved.Optimum = o
	}
	saved.Method = strings.Join(append([]string{"Savings of the last seven days. " + saved.Method}, missing...), " ")
	saved.Command = fmt.Sprintf("kubenergy report --savings --max-decisions %d", pageDecisions)
	return saved, nil
}
